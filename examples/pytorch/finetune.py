"""Trains a new head on a frozen ResNet-18, from a folder of JPEG pictures.

The backbone is made from its configuration, with no weights fetched; give --weights FILE for real ones.

Usage: finetune.py FOLDER [--epochs 2] [--out finetune.pt]
"""

import argparse

import torch
import torchvision
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets, transforms


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--weights", help="a state_dict of torchvision's resnet18")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--out", default="finetune.pt")
    options = parser.parse_args()
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"

    transform = transforms.Compose([
        transforms.Resize(128),
        transforms.CenterCrop(112),
        transforms.ToTensor(),
        transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    ])
    dataset = datasets.ImageFolder(options.folder, transform=transform)
    loader = DataLoader(dataset, batch_size=options.batch, shuffle=True)

    model = torchvision.models.resnet18(weights=None)
    if options.weights:
        model.load_state_dict(torch.load(options.weights))
    for parameter in model.parameters():
        parameter.requires_grad = False
    model.fc = nn.Linear(model.fc.in_features, len(dataset.classes))
    model.to(device)

    optimizer = torch.optim.SGD(model.fc.parameters(), lr=0.01, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    model.eval()  # the backbone's statistics stay as they are
    for epoch in range(options.epochs):
        total, correct, seen = 0.0, 0, 0
        for images, labels in loader:
            images, labels = images.to(device), labels.to(device)
            optimizer.zero_grad()
            scores = model(images)
            loss = criterion(scores, labels)
            loss.backward()
            optimizer.step()
            total += loss.item() * len(labels)
            correct += (scores.argmax(1) == labels).sum().item()
            seen += len(labels)
        print(f"epoch {epoch}: loss {total / seen:.4f}, accuracy {correct / seen:.4f}", flush=True)
    torch.save(model.fc.state_dict(), options.out)


if __name__ == "__main__":
    main()
