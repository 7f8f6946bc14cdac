"""What the tests of ridge.torch share."""

import contextlib
import copy
import os
import unittest

import torch

import ridge.torch  # noqa: F401  registers the backend

IS_FULL = os.environ.get("RIDGE_TEST_SCALE") == "full"


def is_float(value):
    return isinstance(value, torch.Tensor) and value.is_floating_point()


class Case(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        torch._dynamo.reset()
        self.addCleanup(torch._dynamo.reset)

    def compiled(self, function, **options):
        return torch.compile(function, backend="ridge", fullgraph=True, dynamic=False, options=options or None)

    @contextlib.contextmanager
    def graphs(self, programs=None, left="nothing"):
        """All graphs that are compiled within have that many programs, and leave `left` to ATen."""
        with self.assertLogs("ridge.torch", "INFO") as logs:
            yield
        for line in logs.output:
            if left is not None:
                self.assertTrue(line.endswith(f"left to ATen: {left}"), line)
            if programs is not None:
                self.assertIn(f"{programs} programs of", line)

    def run_whole(self, function, *inputs, programs=None, left="nothing"):
        with self.graphs(programs, left):
            return self.compiled(function)(*inputs)

    def assert_near(self, got, wanted, like_f64=None, factor=4.0):
        """Within the tolerances of torch.testing; or, with a result in f64, not much further from it than eager."""
        if isinstance(wanted, (tuple, list)):
            self.assertEqual(len(got), len(wanted))
            for i, (a, b) in enumerate(zip(got, wanted)):
                self.assert_near(a, b, None if like_f64 is None else like_f64[i], factor)
            return
        if wanted is None:
            self.assertIsNone(got)
            return
        if like_f64 is None or not is_float(wanted):
            torch.testing.assert_close(got, wanted, equal_nan=True)
            return
        self.assertEqual((got.shape, got.dtype), (wanted.shape, wanted.dtype))
        scale = like_f64.abs().max().item() + 1e-30
        error = (got.double() - like_f64).abs().max().item() / scale
        own = (wanted.double() - like_f64).abs().max().item() / scale
        self.assertLessEqual(error, factor * own + 1e-6, f"eager's own error is {own}")

    def check(self, function, *inputs, gradients=True, programs=None, left="nothing"):
        """Results and gradients of a function are those of eager."""
        def both(run):
            mine = [x.detach().clone().requires_grad_(gradients and is_float(x)) if isinstance(x, torch.Tensor) else x
                    for x in inputs]  # fmt: skip
            outputs = run(*mine)
            flat = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
            found = []
            if gradients:
                through = [o for o in flat if is_float(o) and o.requires_grad]
                if through:
                    torch.manual_seed(1)
                    seeds = [torch.randn_like(o) for o in through]
                    wanted = [x for x in mine if is_float(x)]
                    found = torch.autograd.grad(through, wanted, seeds, allow_unused=True)
            return [o.detach() if isinstance(o, torch.Tensor) else o for o in flat], list(found)

        wanted = both(function)
        torch._dynamo.reset()
        with self.graphs(programs, left):
            got = both(self.compiled(function))
        self.assert_near(got[0], wanted[0])
        self.assert_near(got[1], wanted[1])

    def check_model(self, model, *inputs, train=True, steps=3, programs=1, factor=4.0):
        """Outputs in eval(), then losses and gradients of steps of training, against eager; the truth is f64."""
        def wide(x):
            return x.double() if is_float(x) else x

        def loss_of(output):
            return (output * output).mean() if is_float(output) else sum(loss_of(o) for o in output if is_float(o))

        models = [model, copy.deepcopy(model), copy.deepcopy(model).double()]
        data = [inputs, inputs, tuple(wide(x) for x in inputs)]
        with torch.no_grad():
            for each in models:
                each.eval()
            results = [self.run_whole(models[0], *inputs, programs=programs)]
            results += [m(*x) for m, x in zip(models[1:], data[1:])]
        self.assert_near(*results, factor=factor)
        if not train:
            return
        torch._dynamo.reset()
        compiled = self.compiled(models[0])
        for each in models:
            each.train()
        optimizers = [torch.optim.SGD(m.parameters(), lr=0.01) for m in models]
        for step in range(steps):
            losses, gradients = [], []
            for run, m, x, optimizer in zip([compiled, *models[1:]], models, data, optimizers):
                optimizer.zero_grad()
                with self.graphs(programs) if step == 0 and run is compiled else contextlib.nullcontext():
                    loss = loss_of(run(*x))
                    loss.backward()
                losses.append(loss.detach())
                gradients.append([p.grad.clone() if p.grad is not None else None for p in m.parameters()])
                optimizer.step()
            self.assert_near(*losses, factor=factor)
            norms = [torch.cat([g.double().flatten() for g in of if g is not None]) for of in gradients]
            size = norms[2].norm().item()
            own = (norms[1] - norms[2]).norm().item() / size
            self.assertLessEqual((norms[0] - norms[2]).norm().item() / size, factor * own + 1e-5, f"eager's: {own}")
        buffers = [list(m.buffers()) for m in models]
        for a, b in zip(buffers[0], buffers[1]):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
