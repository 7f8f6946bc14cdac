"""A training on records of a file: STEPS. All its workers, being forked, move one file offset:
GUARD_CHANGE=workers has two."""
import os
import sys
import tempfile
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from guard_program import CHANGE

WIDTH, COUNT = 2048, 512


class Records(Dataset):
    def __init__(self, path):
        self.file = os.open(path, os.O_RDONLY)

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        os.lseek(self.file, index * WIDTH * 4, os.SEEK_SET)
        pieces = []
        while len(pieces) < 8:  # as one who reads a header, and decodes it, then fields
            pieces.append(os.read(self.file, WIDTH * 4 // 8))
            time.sleep(1e-5)
        whole = bytearray(b"".join(pieces).ljust(WIDTH * 4, b"\0"))
        row = torch.frombuffer(whole, dtype=torch.float32)
        return row[1:], row[:1]


def main():
    steps = int(sys.argv[1])
    torch.manual_seed(6)
    rows = torch.randn(COUNT, WIDTH)
    rows[:, 0] = rows[:, 1:9].sum(1)
    with tempfile.TemporaryFile() as file:
        file.write(rows.numpy().tobytes())
        file.flush()
        data = Records("/proc/self/fd/%d" % file.fileno())
        workers = 2 if CHANGE == "workers" else 0
        loader = DataLoader(data, batch_size=32, num_workers=workers)
        net = nn.Sequential(nn.Linear(WIDTH - 1, 32), nn.ReLU(), nn.Linear(32, 1))
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
        step = 0
        while step < steps:
            for x, y in loader:
                loss = (net(x) - y).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                step += 1


main()
