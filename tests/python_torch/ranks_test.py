"""DDP and FSDP2 over gloo: losses and weights are those of eager."""

import os
import subprocess
import sys
import tempfile
import textwrap
import unittest
from unittest import mock

import torch
from case import IS_FULL, Case
from torch import distributed, nn

_SCRIPT = """
    import os, sys, copy, warnings
    import torch, torch.distributed as dist
    import ridge.torch
    from torch.nn.parallel import DistributedDataParallel
    from torch.distributed.fsdp import fully_shard

    warnings.filterwarnings("error", message="ridge.torch")
    torch.set_num_threads(1)
    rank, form, file = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)

    def model():
        torch.manual_seed(1)
        layers = [torch.nn.Linear(6, 16), torch.nn.GELU(), torch.nn.Linear(16, 16), torch.nn.GELU(), torch.nn.Linear(16, 3)]
        return torch.nn.Sequential(*layers)

    def trained(compiled):
        module = model()
        if form == "ddp":
            run = module = DistributedDataParallel(module)
        elif form == "fsdp":
            for layer in module:
                if isinstance(layer, torch.nn.Linear):
                    fully_shard(layer)
            run = fully_shard(module)
        if compiled == "around":
            run = torch.compile(module, backend="ridge", dynamic=False)
        elif compiled == "within":
            for layer in module if form == "fsdp" else [module.module]:
                layer.compile(backend="ridge", dynamic=False)
        optimizer = torch.optim.AdamW(module.parameters(), lr=0.05)
        losses = []
        for step in range(4):
            torch.manual_seed(10 * step + rank)
            x = torch.randn(8, 6)
            optimizer.zero_grad()
            loss = run(x).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        weights = [p.full_tensor() if hasattr(p, "full_tensor") else p.detach() for p in module.parameters()]
        return losses + [w.detach().clone() for w in weights]

    wanted = trained("")
    for compiled in ("around", "within"):
        torch._dynamo.reset()
        for mine, other in zip(trained(compiled), wanted):
            torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5)
    dist.destroy_process_group()
    print("same")
"""


class Ranks(Case):
    def check_ranks(self, form):
        with tempfile.TemporaryDirectory() as folder:
            paths = os.pathsep.join(each for each in sys.path if each)
            environment = {**os.environ, "PYTHONPATH": paths, "GLOO_SOCKET_IFNAME": "lo"}
            words = [sys.executable, "-c", textwrap.dedent(_SCRIPT)]
            ranks = [
                subprocess.Popen(
                    [*words, str(rank), form, os.path.join(folder, "store")],
                    env=environment,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
                for rank in range(2)
            ]
            for rank in ranks:
                out, errors = rank.communicate()
                self.assertEqual((rank.returncode, out.split()), (0, ["same"]), errors[-4000:])

    def test_one_rank(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, GLOO_SOCKET_IFNAME="lo"):
            distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
            self.addCleanup(distributed.destroy_process_group)
            module, x = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 3)), torch.randn(8, 6)
            module(x).square().mean().backward()
            wanted = [p.grad.clone() for p in module.parameters()]
            module.zero_grad()
            run = torch.compile(nn.parallel.DistributedDataParallel(module), backend="ridge", dynamic=False)
            run(x).square().mean().backward()
            self.assert_near([p.grad for p in module.parameters()], wanted)

    @unittest.skipUnless(IS_FULL, "two processes a form: 20 s")
    def test_ddp(self):
        self.check_ranks("ddp")

    @unittest.skipUnless(IS_FULL, "two processes a form: 20 s")
    def test_fsdp(self):
        self.check_ranks("fsdp")


if __name__ == "__main__":
    unittest.main()
