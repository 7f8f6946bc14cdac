"""Writes a checkpoint at each fifth step."""

import pathlib
import tempfile

import torch
from torch import nn

import program


def train(given, path):
    images = torch.randn(4096, 512)
    labels = torch.randint(0, 10, (4096,))
    model = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(),
                          nn.Linear(1024, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    for step in program.counted(given):
        at = step % 32 * 128
        loss = criterion(model(images[at:at + 128]), labels[at:at + 128])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 5 == 4:
            torch.save({"step": step, "model": model.state_dict(),
                        "optimizer": optimizer.state_dict()}, path)
    program.tell(model, loss.detach())


torch.manual_seed(11)
with tempfile.TemporaryDirectory() as folder:
    train(program.arguments(steps=600), pathlib.Path(folder) / "checkpoint.pt")
