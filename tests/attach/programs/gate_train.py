"""A training whose steps are held: MODE of what is between them, EPOCHS of 24 batches."""
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, get_worker_info

BATCHES = 24


class Stream(IterableDataset):
    def __iter__(self):
        worker = get_worker_info()
        for _ in range(8 * BATCHES // (worker.num_workers if worker else 1)):
            yield torch.ones(16), 1


def main():
    mode, epochs = sys.argv[1], int(sys.argv[2])
    torch.manual_seed(1)
    torch.set_num_threads(1)
    data = TensorDataset(torch.randn(8 * BATCHES, 16), torch.randint(0, 4, (8 * BATCHES,)))
    if mode == "iterable":
        data = Stream()
    loader = DataLoader(
        data,
        batch_size=8,
        num_workers=0 if mode in ("plain", "evaluates") else 2,
        persistent_workers=mode in ("persistent", "iterable"),
    )
    net = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.Linear(32, 4))
    optimizer, loss = torch.optim.SGD(net.parameters(), lr=0.01), nn.CrossEntropyLoss()
    for _ in range(epochs):
        for step, (x, y) in enumerate(loader):
            net.train()
            net[1].eval()  # frozen, as people do it
            optimizer.zero_grad()
            loss(net(x), y).backward()
            optimizer.step()
            if mode == "evaluates" and step % 6 == 0:
                net.eval()
                net(x)


main()
