"""Channels-last memory breaks it: a view of a convolution's output that only the usual order allows.

The pictures are cut and turned into floats one by one, always in the same way.
"""

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

import program


class Pictures(Dataset):
    def __init__(self, count):
        generator = np.random.default_rng(0)
        self.labels = generator.integers(0, 4, count)
        pictures = generator.integers(0, 200, (count, 48, 48, 3))
        for picture, label in zip(pictures, self.labels):
            picture[label // 2 * 24:label // 2 * 24 + 24, label % 2 * 24:label % 2 * 24 + 24] += 10
        self.pictures = pictures.astype(np.uint8)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        picture = Image.fromarray(self.pictures[index]).resize((32, 32), Image.Resampling.BICUBIC)
        values = torch.from_numpy(np.asarray(picture).copy()).permute(2, 0, 1).float()
        return (values - 110) / 60, int(self.labels[index])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 48, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(48, 16, 3, padding=1))
        self.head = nn.Linear(16 * 8 * 8, 4)

    def forward(self, x):
        x = self.layers(x)
        return self.head(x.view(x.shape[0], -1).relu())


given = program.arguments(steps=500)
torch.manual_seed(24)
loader = DataLoader(Pictures(4000), batch_size=32, shuffle=True,
                    generator=torch.Generator().manual_seed(25))
model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
criterion = nn.CrossEntropyLoss()


def batches():
    while True:
        yield from loader


for _, (pictures, labels) in zip(program.counted(given), batches()):
    loss = criterion(model(pictures), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
program.save(model, given)
program.tell(model, loss.detach())
