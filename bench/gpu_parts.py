"""The parts of the evidence, by worth: what each measures, in order, and the most that each may take.

A part fits a command of ten minutes: the seconds of its tasks are LIMIT at most, and what runs when
they are over is ended.
"""

from gpu_fast import against_compile, against_eager, kernels, needs_torch, peak_memory, row_ops, training_steps
from gpu_loop import ledger_replay, optimize
from gpu_right import FP16, IDX, TEXT, after, compare_losses, idle, make_pictures, make_table, memory, replay
from gpu_smoke import registry, sanitizer, smoke

LIMIT = 520  # seconds a part: with the end of what runs then, 9 minutes

# The first task of each call: nothing else is worth its time before it.
FIRST = ("smoke", smoke, 60)

TASKS = {
    "smoke": [
        FIRST,
        ("memcheck", sanitizer("memcheck"), 45),
        ("racecheck", sanitizer("racecheck"), 45),
        ("synccheck", sanitizer("synccheck"), 45),
        ("initcheck", sanitizer("initcheck"), 45),
        ("registry", registry, 230),
    ],
    "fast": [
        FIRST,
        # Results of large products are compared on one core, and a slow kernel of a head is timed, too.
        ("kernels", kernels, 100),
        ("step.gpt2_124m", needs_torch(training_steps("gpt2_124m", 3, 2, against_compile)), 240),
        ("memory.gpt2_124m", peak_memory, 1),
        ("rows.bf16", needs_torch(row_ops("bf16")), 60),
        ("rows.f32", needs_torch(row_ops("f32")), 59),
    ],
    "right": [
        FIRST,
        ("losses.mlp_table", after(make_table, compare_losses("mlp_table", "examples/mlp_table.toml", ["data.path={work}/table.csv"])), 30),
        ("losses.gpt_text", compare_losses("gpt_text", "examples/gpt_text.toml", TEXT), 50),
        ("losses.gpt_text.bf16", compare_losses("gpt_text_bf16", "examples/gpt_text.toml", [*TEXT, "train.precision=bf16"]), 50),
        ("losses.gpt_text.fp16", compare_losses("gpt_text_fp16", "examples/gpt_text.toml", FP16), 50),
        ("losses.fashion_mnist", compare_losses("fashion_mnist", "examples/fashion_mnist.toml", IDX), 40),
        ("losses.jpeg_folder", after(make_pictures, compare_losses("jpeg_folder", "examples/jpeg_folder.toml", ["data.path={work}/pictures"])), 45),
        ("replay", replay, 30),
        ("memory", memory, 25),
        ("idle", idle, 45),
        ("step.launch_bound", needs_torch(training_steps("gpt_launch_bound", 5, 1, against_eager)), 90),
    ],
    "loop": [FIRST, ("optimize", optimize, 345), ("ledger_replay", ledger_replay, 115)],
}  # fmt: skip
