"""Eight small networks with what makes a comparison of two trainings hard: batch norm, dropout,
attention, recurrence."""
import torch
from torch import nn

CLASSES = 10
WORDS = 48
LENGTH = 16
USERS, ITEMS = 60, 90


def pictures(size):
    def make(own, count):
        labels = torch.randint(0, CLASSES, (count,), generator=own)
        means = torch.randn(CLASSES, 3, size, size, generator=own)
        return means[labels] + torch.randn(count, 3, size, size, generator=own), labels

    return make


def rows(own, count):
    labels = torch.randint(0, CLASSES, (count,), generator=own)
    means = torch.randn(CLASSES, 40, generator=own)
    return means[labels] + torch.randn(count, 40, generator=own), labels


def texts(own, count):
    """The next word follows from the one before, in most places."""
    follows = torch.randperm(WORDS, generator=own)
    words = torch.randint(0, WORDS, (count, LENGTH + 1), generator=own)
    for place in range(LENGTH):
        is_free = torch.rand(count, generator=own) < 0.2
        words[:, place + 1] = torch.where(is_free, words[:, place + 1], follows[words[:, place]])
    return words[:, :-1].contiguous(), words[:, 1:].contiguous()


def ratings(own, count):
    users = torch.randint(0, USERS, (count,), generator=own)
    items = torch.randint(0, ITEMS, (count,), generator=own)
    tastes = torch.randn(USERS, 4, generator=own), torch.randn(ITEMS, 4, generator=own)
    return torch.stack([users, items], 1), (tastes[0][users] * tastes[1][items]).sum(1)


def copies(own, count):
    values = pictures(16)(own, count)[0]
    return values, values.clone()


def convolution(inputs, outputs, stride=1):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride, 1), nn.BatchNorm2d(outputs), nn.ReLU()
    )


class Convnet(nn.Sequential):
    def __init__(self):
        super().__init__(
            convolution(3, 16),
            convolution(16, 32, 2),
            convolution(32, 32, 2),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(32, CLASSES),
        )


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm = nn.BatchNorm2d(outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.last_norm = nn.BatchNorm2d(outputs)
        self.side = None
        if stride > 1 or inputs != outputs:
            self.side = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x):
        inner = self.last_norm(self.second(torch.relu(self.norm(self.first(x)))))
        return torch.relu(inner + (x if self.side is None else self.side(x)))


class Resnet(nn.Module):
    """Of eighteen layers, as the well-known one, with fewer channels."""

    def __init__(self):
        super().__init__()
        self.stem = convolution(3, 16)
        blocks, inputs = [], 16
        for stage, outputs in enumerate((16, 32, 48, 64)):
            for place in range(2):
                blocks.append(Block(inputs, outputs, 2 if stage and not place else 1))
                inputs = outputs
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(inputs, CLASSES)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


class Mlp(nn.Sequential):
    def __init__(self):
        super().__init__(
            nn.Linear(40, 128),
            nn.ReLU(),
            nn.Dropout(0.2),
            nn.Linear(128, 128),
            nn.ReLU(),
            nn.Dropout(0.2),
            nn.Linear(128, CLASSES),
        )


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm, self.last_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.into, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        rows, length, width = x.shape
        parts = self.into(self.norm(x)).view(rows, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.dropout(self.out(mixed.transpose(1, 2).reshape(rows, length, width)))
        return x + self.dropout(
            self.narrow(nn.functional.gelu(self.wide(self.last_norm(x))))
        )


class Gpt(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, width), nn.Embedding(LENGTH, width)
        self.blocks = nn.Sequential(Attention(width, 4), Attention(width, 4))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, WORDS, bias=False)

    def forward(self, x):
        places = torch.arange(x.shape[1], device=x.device)
        return self.head(self.norm(self.blocks(self.words(x) + self.places(places))))


class Lstm(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.layers = nn.LSTM(width, width, 2, batch_first=True)
        self.dropout, self.head = nn.Dropout(0.1), nn.Linear(width, WORDS)

    def forward(self, x):
        return self.head(self.dropout(self.layers(self.words(x))[0]))


class Recommender(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.users, self.items = nn.Embedding(USERS, width), nn.Embedding(ITEMS, width)
        self.layers = nn.Sequential(nn.Linear(2 * width, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, x):
        user, item = self.users(x[:, 0]), self.items(x[:, 1])
        return (user * item).sum(1) + self.layers(torch.cat([user, item], 1)).squeeze(1)


class Vit(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, 4)
        self.places = nn.Parameter(0.02 * torch.randn(1, 16, width))
        layer = nn.TransformerEncoderLayer(width, 4, 64, 0.1, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x):
        rows = self.patches(x).flatten(2).transpose(1, 2) + self.places
        return self.head(self.layers(rows).mean(1))


class Unet(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.down = convolution(3, 12), convolution(12, 24, 2)
        self.middle = convolution(24, 24)
        self.up = nn.ConvTranspose2d(24, 12, 2, 2)
        self.last, self.out = convolution(24, 12), nn.Conv2d(12, 3, 1)

    def forward(self, x):
        first = self.first(x)
        up = self.up(self.middle(self.down(first)))
        return self.out(self.last(torch.cat([first, up], 1)))


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=1e-3)


def adam(parameters):
    return torch.optim.Adam(parameters, lr=2e-3, weight_decay=1e-3)


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=2e-3, weight_decay=0.05)


# Name: network, data, optimizer, loss, and the bound of the gradients' norm.
PROGRAMS = {
    "convnet": (Convnet, pictures(16), sgd, nn.CrossEntropyLoss, None),
    "resnet": (Resnet, pictures(16), sgd, nn.CrossEntropyLoss, None),
    "mlp": (Mlp, rows, adamw, nn.CrossEntropyLoss, None),
    "gpt": (Gpt, texts, adamw, nn.CrossEntropyLoss, None),
    "lstm": (Lstm, texts, adam, nn.CrossEntropyLoss, 0.05),
    "recommender": (Recommender, ratings, adamw, nn.MSELoss, None),
    "vit": (Vit, pictures(16), adamw, nn.CrossEntropyLoss, None),
    "unet": (Unet, copies, adam, nn.MSELoss, None),
}
