"""knob_save.py WHAT: trains and saves, and prints what the files hold. A thread may write them, and nothing
of this is another. On stderr: how many files were written by another thread than the one that steps.
"""
import collections
import hashlib
import io
import os
import resource
import signal
import subprocess
import sys
import threading

import torch
from torch import nn

WRITERS = [0]
_write = torch.serialization._save


def counted(*args, **kwargs):
    WRITERS[0] += threading.current_thread() is not threading.main_thread()
    return _write(*args, **kwargs)


torch.serialization._save = counted


def told(path):
    with open(path, "rb") as file:
        return os.path.basename(path), hashlib.sha1(file.read()).hexdigest()[:12]


class Training:
    def __init__(self, width=64):
        self.model = nn.Sequential(nn.Linear(8, width), nn.BatchNorm1d(width), nn.Linear(width, 3))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)

    def state(self, step):
        return {
            "step": step,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "random": torch.get_rng_state(),
        }

    def steps(self, count, behind):
        for step in range(count):
            self.optimizer.zero_grad()
            loss = self.model(torch.randn(16, 8)).square().mean()
            loss.backward()
            self.optimizer.step()
            print("loss %.9g" % loss.item())
            behind(step)
        print(torch.rand(16).tolist())  # nobody has drawn meanwhile


def saves():
    """The state changes right behind each save."""
    training = Training()

    def save(step):
        torch.save(training.state(step), "step%d.pt" % (step % 3))

    training.steps(7, save)
    for name in sorted(os.listdir(".")):
        if name.endswith(".pt"):
            print(told(name), os.path.getsize(name))


def readers():
    """Whatever asks for the file right behind the save finds it."""
    training = Training()

    def save(step):
        state = training.state(step)
        torch.save(state, "a.pt")
        print(os.path.exists("a.pt"), "a.pt" in os.listdir("."))
        torch.save(state, "a.pt")
        print(torch.load("a.pt", weights_only=True)["step"], told("a.pt"))
        torch.save(state, "a.pt")
        os.replace("a.pt", "b.pt")
        print(told("b.pt"))
        torch.save(state, "a.pt")
        print(subprocess.run(["cksum", "a.pt"], capture_output=True, text=True).stdout)
        os.remove("a.pt")
        print([name for name in os.listdir(".") if not name.startswith(".out")])

    training.steps(3, save)


def shared():
    """Views, tensors of one storage, names that stand twice, attributes of dictionaries."""
    whole = torch.arange(12.0).reshape(3, 4)
    name = "".join(["w", "eight"])
    state = collections.OrderedDict([(name, whole[1:]), ("all", whole), ("again", whole[1:])])
    state._metadata = {name: {"version": 1}}
    parameter = nn.Parameter(whole[:, 1])
    Training().steps(
        2,
        lambda step: torch.save(
            {"state": state, name: (name, [parameter, parameter]), "no": None, "step": step}, "a.pt"
        ),
    )
    whole.zero_()
    print(told("a.pt"))


class Own:
    def __init__(self):
        self.value = torch.ones(3)


def in_place():
    """What is not copied, and what is not replaced by another file."""
    os.mkdir("folder")
    open("folder/real.pt", "w").close()
    os.link("folder/real.pt", "linked.pt")
    os.symlink("folder/real.pt", "named.pt")
    buffer = io.BytesIO()
    Training().steps(2, lambda step: torch.save({"step": step}, buffer))
    print(len(buffer.getvalue()))
    torch.save(Own(), "own.pt")
    torch.save({"a": torch.ones(2)}, "linked.pt")
    print(told("folder/real.pt"))
    os.remove("linked.pt")
    torch.save({"a": torch.zeros(2)}, "named.pt")
    print(told("folder/real.pt"), os.path.islink("named.pt"))
    try:
        torch.save({}, "none/a.pt")
    except RuntimeError as error:
        print(error)


def broken(is_last):
    """Files that are larger than they may be."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    training = Training(20000)

    def save(step):
        os.path.exists("a.pt")  # the last save is done by now
        if step == 1:
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
        if step == 2:
            limit = resource.RLIM_INFINITY
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        try:
            if step < 2 or not is_last:
                torch.save(training.state(step), "a.pt")
        except (OSError, RuntimeError):
            print("save %d failed" % step)

    training.steps(2 if is_last else 4, save)
    if is_last:
        return
    print(torch.load("a.pt", weights_only=True)["step"])


def fails():
    broken(is_last=False)


def ends():
    broken(is_last=True)


def killed():
    """The file is the old one or the new one, and whole."""
    torch.save({"step": 0, "x": torch.zeros(2_000_000)}, "a.pt")
    print(torch.load("a.pt", weights_only=True)["step"])
    Training().steps(1, lambda step: None)
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.execv(sys.executable, [sys.executable, os.path.abspath(__file__), "kills"])
    os.waitpid(child, 0)
    print(torch.load("a.pt", weights_only=True)["x"].numel())


def kills():
    torch.save({"step": 1, "x": torch.ones(2_000_000)}, "a.pt")
    os.kill(os.getpid(), signal.SIGKILL)


def main():
    torch.manual_seed(0)
    globals()[sys.argv[1]]()
    print("elsewhere %d" % WRITERS[0], file=sys.stderr)


if __name__ == "__main__":
    main()
