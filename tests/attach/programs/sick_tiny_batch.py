"""Two samples a step."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import program

given = program.arguments(steps=25000)
torch.manual_seed(8)
dataset = TensorDataset(torch.randn(4096, 64), torch.randint(0, 10, (4096,)))
loader = DataLoader(dataset, batch_size=2, shuffle=True,
                    generator=torch.Generator().manual_seed(9))
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(),
                      nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
criterion = nn.CrossEntropyLoss()


def batches():
    while True:
        yield from loader


for _, (inputs, labels) in zip(program.counted(given), batches()):
    loss = criterion(model(inputs), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
program.tell(model, loss.detach())
