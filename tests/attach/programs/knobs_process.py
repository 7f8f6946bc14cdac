"""knobs_process.py: sets numbers of threads itself, and prints what became of them."""
import os

import torch

torch.set_num_threads(1)
torch.set_num_interop_threads(1)
weight = torch.nn.Parameter(torch.zeros(()))
optimizer = torch.optim.SGD([weight], lr=0.1)
for _ in range(3):
    (weight * 2).backward()
    optimizer.step()
print(
    torch.get_num_threads(),
    torch.get_num_interop_threads(),
    len(os.sched_getaffinity(0)),
    # A worker of a loader has one thread, whoever started it.
    *next(iter(torch.utils.data.DataLoader(
        type("Threads", (), {"__len__": lambda _: 2, "__getitem__": lambda *_: torch.get_num_threads()})(),
        batch_size=2,
        num_workers=1,
    ))).tolist(),
)
