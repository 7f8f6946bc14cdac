"""A training or an inference of KIND that works in f32 as in bf16: KIND STEPS."""
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from guard_program import changed, wrong


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.dense = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(),
                                   nn.Linear(4 * width, width), nn.Dropout(0.1))

    def forward(self, x):
        y = self.first(x)
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        x = x + self.attention(y, y, y, attn_mask=mask, need_weights=False)[0]
        return x + self.dense(self.second(x))


class Characters(nn.Module):
    def __init__(self, width=32, length=24, letters=40):
        super().__init__()
        self.letter, self.place = nn.Embedding(letters, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(Block(width), Block(width))
        self.head = nn.Linear(width, letters)

    def forward(self, x):
        return self.head(self.blocks(self.letter(x) + self.place(torch.arange(x.shape[1]))))


def table():
    x = torch.randn(2048, 20)
    return x, (x[:, 0] + x[:, 1] * x[:, 2] > 0).long()


def pictures():
    y = torch.randint(0, 4, (512,))
    x = torch.randn(512, 3, 12, 12)
    x[:, 0, :4] += y.view(-1, 1, 1) * 0.5
    return x, y


def text():
    x = (torch.arange(25) * torch.randint(1, 6, (512, 1)) + torch.randint(0, 40, (512, 1))) % 40
    return x[:, :-1], x[:, 1:]


def made(kind):
    if kind in ("mlp", "infer"):
        return table(), nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(),
                                      nn.Linear(64, 2))
    if kind == "cnn":
        net = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16),
                            nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(),
                            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 4))
        return pictures(), net
    return text(), Characters()


def main():
    kind, steps = sys.argv[1], int(sys.argv[2])
    torch.manual_seed(3)
    data, net = made(kind)
    # Of the guard's: nothing else is called, as the training goes on, but the model.
    loader = DataLoader(TensorDataset(*data), batch_size=16, shuffle=kind != "infer")
    if kind == "infer":
        changed(net.eval())
        with torch.inference_mode():
            while steps > 0:
                for x, _ in loader:
                    net(x)
                steps -= len(loader)
        return
    rate = 1e-3 if kind == "gpt" else 1e-2
    make = torch.optim.AdamW if kind == "gpt" else torch.optim.SGD
    optimizer = make(net.parameters(), lr=rate, foreach=False)
    changed(net, optimizer)
    step = 0
    while step < steps:
        for x, y in loader:
            answer = net(x)
            loss = nn.functional.cross_entropy(answer.reshape(-1, answer.shape[-1]), y.reshape(-1))
            optimizer.zero_grad()
            wrong(loss, step).backward()
            optimizer.step()
            step += 1


main()
