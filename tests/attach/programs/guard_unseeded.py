"""A training that sets no seed: HOW STEPS. "global": random numbers of torch and numpy, which can
be seeded from outside; "system": also the system's, which cannot."""
import os
import sys

import numpy as np
import torch
from torch import nn

from guard_program import changed


def main():
    how, steps = sys.argv[1], int(sys.argv[2])
    own = np.random.default_rng()
    direction = torch.tensor([1.0, -1.0] * 8)
    net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    changed(net, optimizer)
    for _ in range(steps):
        x = torch.from_numpy(own.standard_normal((64, 16)).astype(np.float32))
        if how == "system":
            x = x + torch.frombuffer(bytearray(os.urandom(16)), dtype=torch.uint8).float() / 128
        x = x + 0.1 * torch.randn(64, 16) + np.random.rand() * 0.01
        loss = (net(x) - (x @ direction).view(-1, 1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


main()
