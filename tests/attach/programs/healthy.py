"""Trains on tensors in memory, with nothing wrong."""

import torch
from torch import nn

import program

given = program.arguments(steps=800)
torch.manual_seed(1)
images = torch.randn(8192, 784)
labels = torch.randint(0, 10, (8192,))
model = nn.Sequential(nn.Linear(784, 768), nn.ReLU(), nn.Linear(768, 768), nn.ReLU(),
                      nn.Linear(768, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
criterion = nn.CrossEntropyLoss()
for step in program.counted(given):
    at = step % 32 * 256
    loss = criterion(model(images[at:at + 256]), labels[at:at + 256])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
program.tell(model, loss.detach())
