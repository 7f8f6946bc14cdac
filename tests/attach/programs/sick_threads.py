"""Sixteen threads, however many processors there are."""

import torch
from torch import nn

import program

given = program.arguments(steps=450)
torch.set_num_threads(16)
torch.manual_seed(7)
images = torch.randn(4096, 256)
labels = torch.randint(0, 10, (4096,))
model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 512), nn.GELU(),
                      nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
criterion = nn.CrossEntropyLoss()
for step in program.counted(given):
    at = step % 16 * 256
    loss = criterion(model(images[at:at + 256]), labels[at:at + 256])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
program.tell(model, loss.detach())
