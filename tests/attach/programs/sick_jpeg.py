"""Decodes photographs on the thread that trains."""

import io
import pathlib
import random
import tempfile

import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

import program


class Photographs(Dataset):
    def __init__(self, folder):
        self.paths = sorted(pathlib.Path(folder).glob("*.jpg"))
        self.transform = transforms.Compose([
            transforms.RandomResizedCrop(64), transforms.RandomHorizontalFlip(),
            transforms.ToTensor()])

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        path = self.paths[index]
        with Image.open(path) as image:
            return self.transform(image.convert("RGB")), int(path.stem) % 10


def make_photographs(folder, count):
    numbers = random.Random(4)
    for i in range(count):
        coarse = Image.frombytes("RGB", (40, 30), numbers.randbytes(40 * 30 * 3))
        packed = io.BytesIO()
        coarse.resize((640, 480), Image.BICUBIC).save(packed, "JPEG", quality=90)
        (pathlib.Path(folder) / f"{i:03}.jpg").write_bytes(packed.getvalue())


def train(given, loader):
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    criterion = nn.CrossEntropyLoss()
    steps = program.counted(given)
    while True:
        for images, labels in loader:
            if next(steps, None) is None:
                program.tell(model, loss.detach())
                return
            loss = criterion(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


given = program.arguments(steps=250)
torch.manual_seed(5)
with tempfile.TemporaryDirectory() as folder:
    make_photographs(folder, 96)
    train(given, DataLoader(Photographs(folder), batch_size=16, shuffle=True,
                            generator=torch.Generator().manual_seed(6)))
