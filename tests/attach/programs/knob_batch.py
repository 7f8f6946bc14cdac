"""knob_batch.py train OPTIMIZER BATCH FACTOR: trains with a schedule, and prints losses, bits and what
the program sees of its own numbers. FACTOR: what somebody who wrote a batch that is so much larger would
have set by hand; Ridge's knob has to come to the same bits from FACTOR 1.

knob_batch.py several OPTIMIZER BATCH FACTOR: the same of one update for FACTOR steps, by hand of the mean of
their losses; MODE "several-cleared" sets gradients to zero and clips them, as programs do.

knob_batch.py probe: what is offered to loaders and optimizers of several kinds, "CASE VALUE WORK" or
"CASE refused: WHY".
"""
import hashlib
import sys

import torch
from torch import nn
from torch.utils import data

torch.manual_seed(0)
torch.set_num_threads(1)
STEPS = 12  # of the batches as they are


def by_hand(name, factor):
    """Options of the optimizer for batches that are `factor` times as large as those of a rate of 0.01."""
    root, betas = factor**0.5, (0.9**factor, 0.999**factor)
    return {
        "SGD": {"lr": 0.01 * factor, "momentum": 0.9},
        "Adam": {"lr": 0.01 * root, "betas": betas, "weight_decay": 0.1},
        "AdamW": {"lr": 0.01 * root, "betas": betas, "weight_decay": 0.1 * root},
        "NAdam": {
            "lr": 0.01 * root,
            "betas": betas,
            "weight_decay": 0.1 * root,
            "decoupled_weight_decay": True,
        },
        "RMSprop": {"lr": 0.01 * root, "alpha": 0.99**factor},
    }[name]


def rows(count):
    numbers = torch.arange(count * 6, dtype=torch.float32).mul(0.37).sin().view(count, 6)
    return data.TensorDataset(numbers, numbers.sum(1, keepdim=True))


def train(name, batch, factor):
    own = by_hand(name, factor) if name != "Rprop" else {"lr": 0.01}
    order = torch.Generator().manual_seed(3)
    loader = data.DataLoader(rows(960), batch_size=batch * factor, shuffle=True, generator=order)
    held_out = data.DataLoader(rows(64), batch_size=batch)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = getattr(torch.optim, name)(model.parameters(), **own)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 4, gamma=0.5)
    step = 0
    while step < STEPS:
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            print("loss", len(x), repr(loss.item()))
            step += 1
            if step == STEPS:
                break
    bits = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    print("bits", hashlib.sha1(bits).hexdigest())
    print("length", len(loader), loader.batch_size, len(held_out), held_out.batch_size)
    group = optimizer.state_dict()["param_groups"][0]
    print("own", {key: group[key] for key in own}, schedule.get_last_lr(), file=sys.stderr)


def several(mode, name, batch, factor):
    loader = data.DataLoader(rows(960), batch_size=batch, shuffle=False)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = getattr(torch.optim, name)(model.parameters(), **by_hand(name, factor))
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 4, gamma=0.5)
    losses = []
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        print("loss", repr(loss.item()))
        losses.append(loss)
        if len(losses) == factor:
            optimizer.zero_grad(set_to_none=mode == "several")
            (sum(losses) / factor).backward()
            if mode == "several-cleared":
                nn.utils.clip_grad_value_(model.parameters(), 1e6)
            optimizer.step()
            losses = []
        schedule.step()
    bits = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    print("bits", hashlib.sha1(bits).hexdigest(), "length", len(loader))


# ---- what is offered ----


class Pairs(data.Sampler):
    def __init__(self, count):
        self.count = count

    def __iter__(self):
        return iter([[i, i + 1] for i in range(0, self.count, 2)])

    def __len__(self):
        return self.count // 2


class OwnSgd(torch.optim.SGD):
    pass


def loader(count=1000, **options):
    return data.DataLoader(rows(count), **{"batch_size": 2, "shuffle": True, **options})


CASES = {
    "rows": lambda: [loader()],
    "few": lambda: [loader(500)],
    "fewer": lambda: [loader(300)],
    "ordered": lambda: [loader(shuffle=False)],
    "pairs": lambda: [
        data.DataLoader(rows(1000), batch_sampler=Pairs(1000)),
    ],
    "two": lambda: [loader(), loader()],
    "other": lambda: [loader(), None, loader(batch_size=4)],
    "held_out": lambda: [loader(), None, loader(shuffle=False)],
    "none": lambda: [],
}


def probe():
    shim = sys.modules["ridge_shim"]._shim
    files = {file.__name__: file for file in next(each for each in shim.parts if hasattr(each, "files")).files}
    knob = files["ridge_knob_batch"].Batch
    weight = nn.Parameter(torch.ones(()))

    def step(optimizer):
        optimizer.zero_grad()
        (weight * 2).backward()
        optimizer.step()

    def told(name, optimizer):
        for one in knob.offers(shim, optimizer):
            print(name, "refused: " + one["refusal"] if one["refusal"] else "%(value)s %(work)d" % one)

    def case(name, loaders, optimizer):
        entries = sys.modules["ridge_loaders"]._loaders.entries
        feeding = loaders[: loaders.index(None)] if None in loaders else loaders
        for batches in zip(*feeding):
            for _ in batches:
                step(optimizer)
        told(name, optimizer)
        entries.clear()

    sgd = torch.optim.SGD([weight], lr=0.1)
    for name, make in CASES.items():
        case(name, make(), sgd)
    cache = files["ridge_knob_batch"].ridge_cache
    own, cache.available_bytes = cache.available_bytes, lambda: 1 << 20
    case("memory", [loader()], sgd)
    cache.available_bytes = own
    for kind in (torch.optim.Rprop, OwnSgd):
        other = kind([weight], lr=0.1)
        case(kind.__name__, [loader()], other)
        del other


if __name__ == "__main__":
    if sys.argv[1] == "probe":
        probe()
    else:
        numbers = [int(number) for number in sys.argv[3:5]]
        if sys.argv[1] == "train":
            train(sys.argv[2], *numbers)
        else:
            several(sys.argv[1], sys.argv[2], *numbers)
