"""Looks at torch as programs may do, and prints what it sees."""
import importlib
import importlib.util
import inspect
import pickle
import sys

print(importlib.util.find_spec("torch").name, "torch" in sys.modules)
import torch.nn as nn  # noqa: E402
import torch  # noqa: E402
import torch.utils.data as data  # noqa: E402

loader = torch.__spec__.loader
print(type(loader).__name__, sorted(loader.__dict__), nn.Linear.__module__)
for function in (torch.save, data.DataLoader.__init__, torch.optim.SGD.step):
    print(function.__module__, function.__qualname__, inspect.signature(function))
print(pickle.loads(pickle.dumps(torch.save)) is torch.save, torch.serialization.save is torch.save)
print(data.DataLoader.__iter__.__qualname__, len(torch.__dict__), torch.get_num_threads() > 0)
try:
    importlib.reload(torch)
except Exception as error:
    print(type(error), error)
print(len(sys.modules["torch"].__dict__), len(sys.argv), len(sys.path))
