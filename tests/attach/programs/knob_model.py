"""Programs for the knobs of models and optimizers: MODE, then steps. A line "loss X" a step, and at
the end "seen NAME VALUE" of what the knobs change or have to leave alone."""
import copy
import hashlib
import io
import os
import pickle
import sys
import time

if "RIDGE_PACKAGE" in os.environ:
    sys.path.append(os.environ["RIDGE_PACKAGE"])

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


def say(name, *values):
    print("seen", name, *values)


class Look(nn.Module):
    """Sees what comes by within a model."""

    def __init__(self):
        super().__init__()
        self.formats, self.dtypes = set(), set()

    def forward(self, x):
        if x.dim() == 4:
            self.formats.add("last" if x.stride(1) == 1 else "first")
        self.dtypes.add(str(x.dtype))
        return x


class Cnn(nn.Module):
    def __init__(self, channels=3, dropout=0.0):
        super().__init__()
        self.one, self.look = nn.Conv2d(channels, 8, 3, padding=1), Look()
        self.norm, self.two = nn.BatchNorm2d(8), nn.Conv2d(8, 12, 3)
        self.dropout, self.head = nn.Dropout(dropout), nn.Linear(12, 4)

    def forward(self, x):
        x = self.look(self.one(x))
        x = F.relu(self.two(F.max_pool2d(F.relu(self.norm(x)), 2)))
        return self.head(self.dropout(x.mean((2, 3))))


class Dropper(Cnn):
    """Drops values of pictures, by a module, by a call, and in place."""

    def forward(self, x):
        x = F.dropout(self.dropout(self.look(self.one(x))), 0.2, self.training)
        x = F.dropout(self.two(F.relu(self.norm(x))), 0.1, self.training, inplace=True)
        return self.head(x.mean((2, 3)))


class Viewer(Cnn):
    def forward(self, x):
        x = self.one(x)
        return self.head(F.pad(x.view(x.shape[0], -1)[:, :12], (0, 0)))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(12, 32), nn.GELU(), nn.Dropout(0.3), nn.Linear(32, 4))

    def forward(self, x):
        return F.dropout(self.body(x), 0.1, self.training)


class Task(nn.Module):
    """As Lightning's modules are: never called itself."""

    def __init__(self):
        super().__init__()
        self.model = Cnn()

    def training_step(self, x, y):
        return F.cross_entropy(self.model(x), y)


def pictures(channels=3):
    return torch.randn(8, channels, 10, 10), torch.randint(4, (8,))


def rows(count=8):
    return torch.randn(count, 12), torch.randint(4, (count,))


def train(step_loss, optimizer, steps, batches=pictures):
    for _ in range(steps):
        x, y = batches()
        loss = step_loss(x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("loss %.9g" % loss.item())


def loss_of(model):
    return lambda x, y: F.cross_entropy(model(x), y)


def say_saved(model, optimizer):
    """What a program without Ridge reads back."""
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    say("keys", *saved["model"])
    say("contiguous", all(value.is_contiguous() for value in saved["model"].values()))
    states = [v for state in saved["optimizer"]["state"].values() for v in state.values()]
    say("moments contiguous", all(value.is_contiguous() for value in states))
    say("options", *(saved["optimizer"]["param_groups"][0].get(k) for k in ("fused", "foreach")))
    say("pickled", sorted(pickle.loads(pickle.dumps(model)).__dict__) == sorted(copied(model)))
    say("ours", [name for name in copy.deepcopy(model).__dict__ if name.startswith("_comp")])


def copied(model):
    return [name for name in model.__dict__ if name != "_compiled_call_impl"]


def end(model, optimizer=None):
    looks = [m for m in model.modules() if isinstance(m, Look)]
    for look in looks[:1]:
        say("formats", *sorted(look.formats))
        say("dtypes", *sorted(look.dtypes))
    if optimizer is not None:
        group = optimizer.param_groups[0]
        say("fused", group.get("fused"), "foreach", group.get("foreach"))
        say_saved(model, optimizer)
    weights = b"".join(p.detach().contiguous().numpy().tobytes() for p in model.parameters())
    say("hash", hashlib.sha256(weights).hexdigest())


def cnn(steps, channels=3):
    model = Cnn(channels)
    optimizer = torch.optim.AdamW((p for p in model.parameters()), lr=1e-3)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 5)

    def batches():
        schedule.step()
        return pictures(channels)

    optimizer.step()  # so that the schedule is content
    train(loss_of(model), optimizer, steps, batches)
    say("weight", model.one.weight.is_contiguous(), model.one.weight.grad.is_contiguous())
    end(model, optimizer)


def dropout(steps):
    """Of two lengths of batches, trained and evaluated."""
    model = Mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sizes = iter([8, 8, 5, 8, 3] * steps)
    train(loss_of(model), optimizer, steps, lambda: rows(next(sizes)))
    model.eval()
    with torch.no_grad():
        print("loss %.9g" % model(rows()[0]).sum().item())
    end(model, optimizer)


def sequential(steps):
    model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(loss_of(model), optimizer, steps, rows)
    end(model, optimizer)


def frozen(steps):
    model = Cnn()
    for parameter in model.parameters():
        parameter.requires_grad = False
    model.head = nn.Linear(12, 4)
    optimizer = torch.optim.SGD(model.head.parameters(), lr=0.1)
    train(loss_of(model.eval()), optimizer, steps)
    say("weight", model.two.weight.is_contiguous(), model.head.weight.is_contiguous())
    end(model)


def gan(steps):
    maker = nn.Sequential(nn.ConvTranspose2d(6, 8, 4), Look(), nn.ReLU(), nn.Conv2d(8, 3, 1))
    judge = Cnn()
    optimizers = [torch.optim.Adam(m.parameters(), lr=1e-3) for m in (judge, maker)]
    for _ in range(steps):
        for optimizer in optimizers:
            optimizer.zero_grad()
            loss = judge(maker(torch.randn(4, 6, 6, 6))).square().mean()
            loss.backward()
            optimizer.step()
            print("loss %.9g" % loss.item())
    end(nn.ModuleList([judge, maker]), optimizers[1])
    say("maker", *maker[1].formats)


def parts(steps):
    first, second = nn.Linear(12, 16), nn.Linear(16, 4)
    optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.1)
    train(lambda x, y: F.cross_entropy(second(first(x).relu()), y), optimizer, steps, rows)


def forward(steps):
    """Its forward() is called, and so each layer is an outermost module."""
    model = Cnn()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(lambda x, y: F.cross_entropy(model.forward(x), y), optimizer, steps)


def functions(steps):
    weight = nn.Parameter(torch.randn(12, 4))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    train(lambda x, y: F.cross_entropy(x @ weight, y), optimizer, steps, rows)


def dropper(steps):
    model = Dropper(dropout=0.3)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    train(loss_of(model), optimizer, steps)
    end(model, optimizer)


def task(steps):
    model = Task()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    train(model.training_step, optimizer, steps)
    end(model, optimizer)


def view(steps):
    model = Viewer()
    train(loss_of(model), torch.optim.SGD(model.parameters(), lr=0.1), steps)


def amp(steps):
    model = Cnn()

    def step_loss(x, y):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return F.cross_entropy(model(x), y)

    train(step_loss, torch.optim.SGD(model.parameters(), lr=0.1), steps)
    end(model)


def compiled(steps):
    model = Mlp()
    module = torch.compile(model, backend="eager")
    train(loss_of(module), torch.optim.SGD(module.parameters(), lr=0.1), steps, rows)
    end(model)


def infer(steps, mode=torch.no_grad):
    model = Cnn().eval()
    with mode():
        for _ in range(steps):
            print("loss %.9g" % model(pictures()[0]).sum().item())
    say("weight", model.two.weight.is_contiguous(), model.two.weight.is_inference())
    end(model)
    # It can still be trained.
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    train(loss_of(model), optimizer, 3)
    say("trained", model.two.weight.is_contiguous())
    end(model, optimizer)


def inference_mode(steps):
    infer(steps, torch.inference_mode)


def slow_infer(steps):
    """Its calls are seen and timed before they are so many that it is a model."""
    model = Cnn().eval()
    model.look.register_forward_hook(lambda *_: time.sleep(0.2))
    with torch.no_grad():
        for _ in range(steps):
            model(pictures()[0])


def resume(steps):
    """Loads a checkpoint that was written without knobs, and writes one."""
    model = Cnn()
    optimizer = torch.optim.Adam([{"params": model.parameters(), "lr": 1e-3}], amsgrad=True)
    state = {i: {k: torch.ones_like(p) * 0.1 for k in ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")}
             for i, p in enumerate(model.parameters())}
    for entry in state.values():
        entry["step"] = torch.tensor(7.0)
    saved = optimizer.state_dict()
    optimizer.load_state_dict({"state": state, "param_groups": saved["param_groups"]})
    train(loss_of(model), optimizer, steps)
    end(model, optimizer)


def varied(steps):
    """The learning rate changes in the middle, without a schedule."""
    model = Mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(loss_of(model), optimizer, steps // 2, rows)
    optimizer.param_groups[0]["lr"] = 0.01
    train(loss_of(model), optimizer, steps - steps // 2, rows)
    end(model, optimizer)


class OwnSgd(torch.optim.SGD):
    pass


def optimizers(steps):
    """One that sets the option, and one of a class of the program's own."""
    model = Mlp()
    kinds = {"own": OwnSgd, "set": torch.optim.SGD}
    first = kinds["own"](model.parameters(), lr=0.1)
    second = kinds["set"](model.parameters(), lr=0.1, foreach=False)
    train(loss_of(model), first, steps, rows)
    train(loss_of(model), second, steps, rows)
    say("options", *(o.param_groups[0]["fused"] for o in (first, second)))


def main():
    mode, steps = sys.argv[1], int(sys.argv[2])
    if mode == "grey":
        cnn(steps, 1)
    else:
        globals()[mode](steps)
    if "torch._dynamo.utils" in sys.modules:
        counters = sys.modules["torch._dynamo.utils"].counters
        say("functions", counters["frames"]["ok"])
    say("random", torch.rand(1).item())
    if steps > 20:
        say("call", nn.Module.__call__ is nn.Module._wrapped_call_impl)


main()
