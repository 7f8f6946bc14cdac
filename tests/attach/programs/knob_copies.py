"""knob_copies.py MODE: trains on a device that is made up: memory of the CPU, with streams that note what is
asked of them. What it prints is the same with and without copies ahead. On stderr: how many batches the
copies served, and of one step what its streams were asked.

knob_copies.py probe: what is offered to programs that move their batches in several ways.
"""
import gc
import sys

import torch
from torch.utils import data

mode = sys.argv[1]
torch.manual_seed(0)
torch.set_num_threads(1)
HERE = torch.device("cpu")
module = sys.modules.get("ridge_knob_copies")


class MadeUp:
    """Tensors of the CPU stand for those of a GPU."""

    def __init__(self):
        self.asked = []

    def is_there(self):
        return mode != "absent"

    def device(self):
        return HERE

    def is_here(self, device):
        return device.type == "cpu"

    def stream(self):
        return "stream"

    def copy(self, tensor, stream):
        self.asked.append("copy")
        if mode == "failing":
            raise RuntimeError("out of memory")
        return tensor.clone(), mode == "pinned"

    def hand_over(self, copy, stream, waits):
        self.asked.append("hand over and wait" if waits else "hand over")


class Rows(data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        x = torch.arange(4, dtype=torch.float32) * 0.1 + index
        return (x.sin(), index) if mode != "dict" else {"x": x.sin(), "y": [index, "text"]}


def moved(batch):
    """The batch where it is computed with, as the mode has it."""
    x, y = (batch["x"], batch["y"][0]) if mode == "dict" else batch
    if mode == "mutated":
        x.mul_(2)
    if mode == "viewed":
        x[1:].zero_()
    if mode == "numpy":
        x.numpy()[:] += 1
    if mode == "dtype":
        return x.to(HERE, torch.float64).float(), y.to(device=HERE, non_blocking=True)
    return x.to(HERE), y.to("cpu", non_blocking=True)


def train(move=moved, epochs=2):
    model = torch.nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    workers = 2 if mode in ("workers", "left", "ended") else 0
    loader = data.DataLoader(Rows(), batch_size=8, shuffle=True, num_workers=workers)
    kept = []
    for _ in range(epochs):
        for number, batch in enumerate(loader):
            x, y = move(batch)
            if mode == "kept":
                again, _ = move(batch)
                x = x.clone().mul_(3) + again
                kept.append((batch, again))
            loss = torch.nn.functional.cross_entropy(model(x), y % 3) * torch.rand(())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print("loss", repr(loss.item()), x.sum().item(), y.tolist())
            if mode == "left" and number == 3:
                break
    for batch, again in kept:
        print("kept", [t.sum().item() for t in batch], again.sum().item())
    print("random", torch.rand(()).item())
    return optimizer, loader


def half(batch):
    return batch[0].to(HERE), batch[1]


def no_move(batch):
    return batch[0], batch[1]


def probe():
    shim = sys.modules["ridge_shim"]._shim
    module.watch_loader_of_probe(shim, torch.utils.data.dataloader)
    for name, move in (("whole", moved), ("half", half), ("none", no_move)):
        seen = module._seen
        seen.__init__()
        sys.modules["ridge_loaders"]._loaders.entries.clear()
        sys.modules["ridge_knob_loader"]._findings.clear()
        optimizer, loader = train(move)  # both live while they are asked about
        for offer in module.ToDevice.offers(shim, optimizer):
            print("offer", name, offer["value"] or "refused: " + offer["refusal"])
        del optimizer, loader
        gc.collect()  # the next one marks the steps


if module is not None:
    module._device = MadeUp()
    if mode in ("left", "ended"):
        # As if a worker had each batch ready as a step ends; behind the last one there is none.
        module.is_ready = lambda iterator: not iterator._shutdown
if mode == "probe":
    probe()
else:
    train()
    if module is not None:
        knobs = sys.modules["ridge_shim"]._shim.parts[0].knobs
        copies = knobs[0].copies
        asked = module._device.asked
        print("served", copies.count if copies else 0, asked[:4], file=sys.stderr)
