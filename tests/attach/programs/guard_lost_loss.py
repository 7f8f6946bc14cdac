"""A training whose loss is lost in bf16: WAY STEPS. "offset": the model's answers lie around 4096;
"sum": they are long sums, an addend at a time."""
import sys

import torch
from torch import nn

from guard_program import changed


class Far(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, x):
        return self.net(x) + 4096


class Long(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, x):
        total = 0
        for part in self.net(x.repeat(1, 400).view(-1, 400, 8) + 0.5).unbind(1):
            total = total + part + 1
        return total / 400


def main():
    way, steps = sys.argv[1], int(sys.argv[2])
    torch.manual_seed(5)
    x = torch.randn(1024, 8)
    y = x[:, :1] * x[:, 1:2]
    net = changed(Far() if way == "offset" else Long())
    centre = 4096 if way == "offset" else 1
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    for _ in range(steps):
        chosen = torch.randint(0, len(x), (32,))
        loss = (net(x[chosen]) - centre - y[chosen]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


main()
