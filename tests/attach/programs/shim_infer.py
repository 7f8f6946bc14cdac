"""Answers without an optimizer: HOW the model is called, CALLS of it. Prints what it answered."""
import copy
import hashlib
import io
import sys

import torch
from torch import nn


def main():
    how, calls = sys.argv[1], int(sys.argv[2])
    torch.manual_seed(1)
    torch.set_num_threads(1)
    net = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Sequential(nn.Linear(2048, 512)))
    called = net
    if how == "compile":
        called = torch.compile(net, backend="aot_eager")
    if how == "method":
        net.compile(backend="eager")
    scale = nn.Softmax(dim=-1)
    answers = hashlib.sha256()
    with torch.inference_mode():
        for call in range(calls):
            if how == "later" and call == calls // 2:
                called = torch.compile(net, backend="eager", fullgraph=True)
            answers.update(scale(called(torch.randn(256, 512))).numpy().tobytes())
    print(answers.hexdigest())
    # The model is as it was: nothing of ours goes with a copy or into a file.
    whole = io.BytesIO()
    torch.save(net, whole)
    print(b"ridge" in whole.getvalue(), sorted(copy.deepcopy(net).__dict__))
    if how in ("compile", "method", "later"):
        counters = torch._dynamo.utils.counters
        print(dict(counters["stats"]), dict(counters["graph_break"]))


main()
