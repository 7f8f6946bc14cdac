#!/usr/bin/env python3
"""The memory of every configuration: planned, least possible, and what the system counts.

Each runs some steps in a process of its own, under RLIMIT_DATA = VmData before the plan's memory is
taken + 1.02 of the plan + 8 MiB. With --peer, PyTorch eager runs the same work, for what both need
above the state (parameters, gradients, moments).

Usage: bench/memory.py [--steps N] [--peer] [--limits SHARE,...] [--json FILE] [CONFIG...]
--limits 75,50 gives parameters, moments and gradients (of AdamW: four times the parameters) and so
many per cent of what the plan needs above them: each is planned and run, and a smaller one must
never get a larger plan.
       (with --peer: build/peers/bin/python bench/memory.py --peer ...)
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "build" / "release" / "bench" / "bench_memory_check"
MIB = 1 << 20

PEER = """
import sys
sys.path.insert(0, sys.argv[1])
import training_step as t, tomllib, torch, torch.nn as nn, torch.nn.functional as F

def field(name):
    for line in open('/proc/self/status'):
        if line.startswith(name):
            return int(line.split()[1]) * 1024

torch.set_num_threads(2)
config = tomllib.loads(open(sys.argv[2]).read())
model, batch = config['model'], config['train']['batch']
before = field('RssAnon:')
net = t.Gpt(model)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
most = 0
import threading, time
def watch():
    global most
    while True:
        most = max(most, field('RssAnon:'))
        time.sleep(0.002)
threading.Thread(target=watch, daemon=True).start()
for _ in range(int(sys.argv[3])):
    x = torch.randint(0, model['vocab'], (batch, config['data']['shape'][0]))
    logits = net(x)
    loss = F.cross_entropy(logits.flatten(0, -2), x.flatten())
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
state = 4 * sum(p.numel() * p.element_size() for p in net.parameters())
print(most - before, state)
"""


def run_peer(path, steps):
    out = subprocess.run(
        [sys.executable, "-c", PEER, str(ROOT / "bench"), str(path), str(steps)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return [int(word) for word in out.split()]


def check(path, arguments):
    run = subprocess.run(
        [str(PROGRAM), str(path), str(arguments.steps)], capture_output=True, text=True, cwd=ROOT
    )
    if run.returncode != 0:
        return {"name": path.stem, "error": run.stderr.strip()}
    found = {"name": path.stem, **json.loads(run.stdout)}
    found["ratio"] = found["planned"] / found["lower_bound"]
    found["difference"] = found["measured"] - found["planned"]
    found["exact"] = abs(found["difference"]) <= max(found["planned"] / 100, 8 * MIB)
    if arguments.peer:
        config = tomllib.loads(path.read_text())
        if config["model"]["kind"] == "gpt":
            total, state = run_peer(path, arguments.steps)
            # The plan counts parameters and moments as state, gradients as what lies in the arena.
            found["above_state"] = found["measured"] - state
            found["peer_above_state"] = total - state
    return found


def check_limits(path, arguments):
    """Whether limits are kept and plans fall with them; prints a row for each."""
    whole = check(path, argparse.Namespace(steps=0, peer=False))
    print("| workload | above the state | limit, MiB | planned, MiB | measured, MiB | s | how |")
    print("|---|---|---|---|---|---|---|")
    last, ok = whole["planned"], True
    held = whole["state"] * 4 // 3
    for share in arguments.limits:
        limit = -(-(held + (whole["planned"] - held) * share // 100) // MIB)
        run = subprocess.run(
            [str(PROGRAM), str(path), str(arguments.steps), f"train.memory_limit={limit}"],
            capture_output=True,
            text=True,
            cwd=ROOT,
        )
        if run.returncode != 0:
            print(f"| {path.stem} | {share} % | {limit} | {run.stderr.strip()} |", flush=True)
            continue
        found = json.loads(run.stdout)
        ok = ok and found["planned"] <= min(last, limit * MIB)
        last = found["planned"]
        print(
            f"| {path.stem} | {share} % | {limit} | {found['planned'] / MIB:.1f} "
            f"| {found['measured'] / MIB:.1f} | {found['limit_seconds']:.1f} "
            f"| {found['limit_text']} |",
            flush=True,
        )
    return ok


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("configs", nargs="*", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--peer", action="store_true")
    parser.add_argument("--limits", type=lambda text: [int(word) for word in text.split(",")])
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    configs = arguments.configs or sorted((ROOT / "bench" / "configs").glob("*.toml")) + sorted(
        (ROOT / "examples").glob("*.toml")
    )
    if arguments.limits:
        return 0 if all([check_limits(path, arguments) for path in configs]) else 1
    print("| workload | planned, MiB | least, MiB | ratio | measured, MiB | difference | exact |")
    print("|---|---|---|---|---|---|---|")
    rows, failed = [], False
    for path in configs:
        row = check(path, arguments)
        rows.append(row)
        if "error" in row:
            failed = True
            print(f"| {row['name']} | {row['error']} |", flush=True)
            continue
        failed = failed or not row["exact"] or row["ratio"] > 1.02
        print(
            f"| {row['name']} | {row['planned'] / MIB:.1f} | {row['lower_bound'] / MIB:.1f} "
            f"| {row['ratio']:.4f} | {row['measured'] / MIB:.1f} "
            f"| {row['difference'] / MIB:+.1f} | {'yes' if row['exact'] else 'NO'} |",
            flush=True,
        )
        if "above_state" in row:
            ridge, peer = row["above_state"] / MIB, row["peer_above_state"] / MIB
            print(f"above the state: {ridge:.0f} MiB, PyTorch eager {peer:.0f}: {ridge / peer:.2f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
