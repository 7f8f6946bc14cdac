"""Trains a CNN on Fashion-MNIST (Debian's package dataset-fashion-mnist, or the same files elsewhere).

Usage: fashion_cnn.py [--data /usr/share/datasets/fashion-mnist] [--epochs 2] [--out fashion_cnn.pt]
"""

import argparse
import gzip
import pathlib

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms


def read_idx(path):
    with gzip.open(path) as file:
        data = file.read()
    dims = [int.from_bytes(data[4 + 4 * i:8 + 4 * i], "big") for i in range(data[3])]
    return np.frombuffer(data, np.uint8, offset=4 + 4 * data[3]).reshape(dims)


class FashionMnist(Dataset):
    def __init__(self, folder, name, transform):
        folder = pathlib.Path(folder)
        self.images = read_idx(folder / f"{name}-images-idx3-ubyte.gz")
        self.labels = read_idx(folder / f"{name}-labels-idx1-ubyte.gz")
        self.transform = transform

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image = Image.fromarray(self.images[index], mode="L")
        return self.transform(image), int(self.labels[index])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.dropout = nn.Dropout(0.25)
        self.fc1 = nn.Linear(64 * 7 * 7, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = torch.flatten(self.dropout(x), 1)
        return self.fc2(F.relu(self.fc1(x)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--out", default="fashion_cnn.pt")
    options = parser.parse_args()
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"

    transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.286,), (0.353,))])
    train = DataLoader(FashionMnist(options.data, "train", transform), batch_size=options.batch, shuffle=True)
    test = DataLoader(FashionMnist(options.data, "t10k", transform), batch_size=1000)

    model = Net().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(options.epochs):
        model.train()
        for step, (images, labels) in enumerate(train):
            images, labels = images.to(device), labels.to(device)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            if step % 100 == 0:
                print(f"epoch {epoch} step {step}: loss {loss.item():.4f}", flush=True)
        model.eval()
        with torch.no_grad():
            right = sum((model(images.to(device)).argmax(1).cpu() == labels).sum().item()
                        for images, labels in test)
        print(f"epoch {epoch}: accuracy {right / len(test.dataset):.4f}", flush=True)
    torch.save(model.state_dict(), options.out)


if __name__ == "__main__":
    main()
