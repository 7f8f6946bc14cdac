"""Everything around a compiled module behaves as in eager: hooks, checkpoints, copies, modes, other tensors."""

import copy
import io
import itertools
import math
import pickle
import unittest
from unittest import mock

import torch
from case import Case
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

import ridge.torch
from ridge.torch import _backend, _compile, _operators


class Perceptron(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.first, self.second = nn.Linear(6, 16), nn.Linear(16, 3)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        return self.second(self.dropout(torch.relu(self.first(x))))


class Checkpointed(nn.Module):
    def __init__(self, reentrant, dropout=0.0):
        super().__init__()
        self.body, self.reentrant = Perceptron(dropout), reentrant

    def forward(self, x):
        return checkpoint(self.body, x, use_reentrant=self.reentrant) * 2


class Counted(nn.Module):
    """It writes to its buffers."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x):
        y = self.layer(x)
        self.calls += 1
        self.mean.mul_(0.9).add_(y.detach().mean(0), alpha=0.1)
        return y - self.mean


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(7, 5), nn.Linear(5, 7, bias=False)
        self.head.weight = self.words.weight

    def forward(self, ids):
        return self.head(torch.tanh(self.words(ids)))


def gradients_of(module, x, run=None):
    module.zero_grad()
    loss = (module if run is None else run)(x).square().sum()
    loss.backward()
    return [loss.detach()] + [None if p.grad is None else p.grad.clone() for p in module.parameters()]


class Around(Case):
    def free(self, function, **options):
        """Compiled, with graph breaks where Dynamo wants them."""
        return torch.compile(function, backend="ridge", dynamic=False, options=options or None)

    def assert_trains_alike(self, module, x, run=None):
        wanted = gradients_of(module, x)
        self.assert_near(gradients_of(module, x, self.free(module) if run is None else run), wanted)

    def test_checkpoints(self):
        x = torch.randn(5, 6, requires_grad=True)
        for reentrant in (False, True):
            with self.subTest(reentrant=reentrant):
                torch._dynamo.reset()
                self.assert_trains_alike(Checkpointed(reentrant), x)
                torch._dynamo.reset()
                body = Perceptron()
                compiled = self.compiled(body)
                self.assert_trains_alike(body, x, lambda x: checkpoint(compiled, x, use_reentrant=reentrant))  # noqa: B023

    def test_checkpoints_with_dropout(self):
        # Whatever is dropped in the forward pass is dropped when it is computed again.
        class Dropped(nn.Module):
            def forward(self, x):
                return checkpoint(lambda x: nn.functional.dropout(x * x, 0.5), x, use_reentrant=False)

        x = torch.rand(40, 50) + 1
        x.requires_grad_()
        y = self.free(Dropped())(x)
        (gradient,) = torch.autograd.grad(y.sum(), x)
        self.assert_near(gradient * x.detach() / 2, y.detach())
        self.assertAlmostEqual(float((y == 0).float().mean()), 0.5, delta=0.08)

    def test_hooks_of_modules(self):
        calls = []

        def hooked(module):
            module.first.register_forward_pre_hook(lambda m, inputs: (inputs[0] * 2,))
            module.first.register_forward_hook(lambda m, inputs, output: output + 1)
            module.register_forward_hook(lambda m, inputs, output: output * 3)
            module.second.register_full_backward_hook(lambda m, got, of: calls.append(got[0].shape))
            return module

        module, x = hooked(Perceptron()), torch.randn(5, 6)
        wanted = gradients_of(module, x)
        self.assert_near(gradients_of(module, x, self.free(module)), wanted)
        self.assertEqual(len(calls), 2)

    def test_hooks_of_tensors(self):
        module, x, seen = Perceptron(), torch.randn(5, 6, requires_grad=True), []
        module.first.weight.register_hook(lambda gradient: gradient * 2)
        module.second.weight.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))

        def run(x):
            y = compiled(x)
            y.register_hook(lambda gradient: gradient * 0.5)
            return y

        compiled = module
        wanted = gradients_of(module, x, run)
        compiled = self.compiled(module)
        self.assert_near(gradients_of(module, x, run), wanted)
        self.assert_near(seen[1], seen[0])

        def inner(x):
            y = module(x) * 2
            if y.requires_grad:
                y.register_hook(lambda gradient: gradient.clamp(-0.1, 0.1))
            return y * 3

        self.assert_near(
            torch.autograd.grad(self.free(inner)(x).sum(), x), torch.autograd.grad(inner(x).sum(), x)
        )

    def test_state_is_untouched(self):
        module = Counted()
        before = {name: (x.data_ptr(), x.shape, x.stride()) for name, x in module.state_dict().items()}
        compiled = self.compiled(module)
        compiled(torch.randn(3, 4)).sum().backward()
        after = module.state_dict()
        self.assertEqual({name: (x.data_ptr(), x.shape, x.stride()) for name, x in after.items()}, before)
        self.assertEqual(list(compiled.state_dict()), [f"_orig_mod.{name}" for name in before])
        compiled.load_state_dict({f"_orig_mod.{name}": torch.ones_like(x) for name, x in after.items()})
        with torch.no_grad():
            self.assertEqual(int(module.calls), 1)
            fresh = Counted()
            fresh.load_state_dict(module.state_dict())
            x = torch.randn(3, 4)
            self.assert_near(compiled(x), fresh(x))

    def test_copies(self):
        module, x = Perceptron(), torch.randn(5, 6)
        compiled = self.free(module)
        wanted = compiled(x)
        other = copy.deepcopy(compiled)
        with torch.no_grad():
            next(other.parameters()).zero_()
        self.assert_near(compiled(x), wanted)
        self.assert_near(other(x), other._orig_mod(x))

    def test_pickles(self):
        module, x = Perceptron(), torch.randn(5, 6)
        module.compile(backend="ridge", dynamic=False)
        wanted = module(x)
        self.assert_near(pickle.loads(pickle.dumps(module))(x), wanted)
        file = io.BytesIO()
        torch.save(self.free(Perceptron()).state_dict(), file)
        file.seek(0)
        self.free(module).load_state_dict(torch.load(file))

    def test_tied_weights(self):
        self.assert_trains_alike(Tied(), torch.randint(0, 7, (3, 4)))

    def test_buffers_are_written(self):
        for grad in (True, False):
            module, x = Counted(), torch.randn(3, 4)
            other = copy.deepcopy(module)
            torch._dynamo.reset()
            compiled = self.compiled(module)
            with torch.set_grad_enabled(grad):
                for _ in range(3):
                    version = module.mean._version
                    self.assert_near(compiled(x), other(x))
                    self.assertGreater(module.mean._version, version)
            self.assert_near(list(module.buffers()), list(other.buffers()))
            self.assertEqual(int(module.calls), 3)

    def test_views_and_aliases(self):
        def f(x, w):
            y = x * w
            z = y.t()
            return y, z, y[0], x.view(-1), w.expand(2, *w.shape), z.contiguous()

        x, w = torch.randn(3, 4, requires_grad=True), torch.randn(3, 4, requires_grad=True)
        results = [run(x, w) for run in (f, self.compiled(f))]
        for got, wanted in zip(results[1], results[0]):
            self.assert_near(got, wanted)
            self.assertEqual(got.stride(), wanted.stride())
        y, z, row, flat = results[1][:4]
        self.assertEqual({y.data_ptr(), z.data_ptr()}, {row.data_ptr()})
        self.assertEqual(flat.data_ptr(), x.data_ptr())
        found = [torch.autograd.grad(sum((o * o).sum() for o in each), (x, w)) for each in results]
        self.assert_near(found[1], found[0])

    def test_views_are_written(self):
        def f(x, y):
            x[0].mul_(2)
            y.t()[1:].add_(x.sum())
            y[:, 0] = 7
            return x + y

        given = torch.randn(3, 3), torch.randn(3, 3)
        for at in (lambda x: x, lambda x: x.t().contiguous().t(), lambda x: x.repeat(2, 2)[::2, ::2]):
            mine, other = [at(x.clone()) for x in given], [at(x.clone()) for x in given]
            torch._dynamo.reset()
            with torch.no_grad():
                self.assert_near(self.compiled(f)(*mine), f(*other))
            self.assert_near(mine, other)

    def test_overlapping_inputs_are_written(self):
        def f(x, y):
            x.add_(1)
            y.mul_(2)
            return x + y

        mine = torch.randn(4, 4)
        other = mine.clone()
        with torch.no_grad():
            for at in (lambda x: (x[:3], x[:3]), lambda x: (x[:3], x[1:])):
                torch._dynamo.reset()  # AOT autograd compiles for one way of overlapping, and does not ask again
                self.assert_near(self.free(f)(*at(mine)), f(*at(other)))
                self.assert_near(mine, other)

    def test_integers_and_bools(self):
        def f(i, b, u):
            return i * 2 + 1, (i > 3) & b, i.sum(), torch.where(b, i, -i), u + 1, b.any(), (i // 2), i.float().mean()

        i, b = torch.arange(12).view(3, 4), torch.tensor([True, False, True, False])
        for dtype in (torch.int64, torch.int32):
            torch._dynamo.reset()
            args = i.to(dtype), b, torch.arange(5, dtype=torch.uint8)
            for got, wanted in zip(self.compiled(f)(*args), f(*args)):
                self.assertTrue(torch.equal(got, wanted))
                self.assertEqual(got.dtype, wanted.dtype)

    def test_modes_of_one_module(self):
        module = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 3))
        other, x = copy.deepcopy(module), torch.randn(16, 6)
        compiled = self.free(module)

        def loss(run):
            return run(x).square().mean()

        for _ in range(2):
            for each, run in ((module, compiled), (other, other)):
                each.train()
                loss(run).backward()  # dropout differs: only what does not follow it is compared
                each.eval()
                each.zero_grad()
                loss(run).backward()
            self.assert_near([p.grad for p in module.parameters()], [p.grad for p in other.parameters()])
            with torch.no_grad():
                self.assert_near(loss(compiled), loss(other))
            with torch.inference_mode():
                self.assert_near(loss(compiled), loss(other))
        self.assert_near(list(module.buffers()), list(other.buffers()))
        torch.optim.SGD(module.parameters(), lr=0.1).step()  # weights of inference are read again
        with torch.no_grad():
            self.assert_near(loss(compiled), loss(module))

    def test_outputs_of_inference_mode(self):
        with torch.inference_mode():
            y = self.free(Perceptron())(torch.randn(2, 6))
        self.assertTrue(y.is_inference())
        with torch.no_grad():
            y = self.free(Perceptron())(torch.randn(2, 6))
        self.assertFalse(y.is_inference() or y.requires_grad)

    def test_training_in_autocast(self):
        module, x = Perceptron(), torch.randn(32, 6)
        wide = copy.deepcopy(module).double()
        truth = gradients_of(wide, x.double())
        with torch.autocast("cpu", torch.bfloat16):
            wanted = gradients_of(module, x)
            got = gradients_of(module, x, self.compiled(module))
        for mine, own, true in zip(got, wanted, truth):
            self.assertEqual(mine.dtype, own.dtype)
            scale = true.abs().max()
            self.assertLessEqual((mine - true).abs().max() / scale, 2 * (own - true).abs().max() / scale + 0.01)

    @torch.no_grad()
    def test_sparse_tensors(self):
        def f(s, x):
            return torch.sparse.mm(s, x * 2) + 1

        s, x = torch.eye(4).to_sparse(), torch.randn(4, 3)
        self.assert_near(self.free(f)(s, x), f(s, x))

    def test_complex_tensors(self):
        def f(x, c):
            y = torch.fft.fft(x * 2)
            return (y * c).abs() + 1, y

        x, c = torch.randn(4, 8, requires_grad=True), torch.randn(4, 8, dtype=torch.complex64)
        got, wanted = self.free(f)(x, c), f(x, c)
        self.assert_near(got, wanted)
        self.assert_near(*(torch.autograd.grad(each[0].sum(), x) for each in (got, wanted)))

    @torch.no_grad()
    def test_subclasses(self):
        def f(x, y):
            return (x * 2 + y).relu()

        x, y, z = torch.randn(3, 4), torch.randn(3, 4), torch.randn(3, 4)
        got = self.free(f)(TwoTensor(x, y), TwoTensor(y, z))
        self.assertEqual(type(got), TwoTensor)
        self.assert_near((got.a, got.b), (f(x, y), f(y, z)))
        self.assert_near(self.free(f)(nn.Parameter(x), y), f(x, y))

    @torch.no_grad()
    def test_other_tensors(self):
        quantized = torch.quantize_per_tensor(torch.randn(3, 4), 0.1, 0, torch.qint8)
        self.assert_near(self.free(lambda q: q.dequantize() + 1)(quantized), quantized.dequantize() + 1)
        empty = torch.randn(0, 4)
        self.assert_near(self.free(lambda x: (x * 2).sum(0))(empty), torch.zeros(4))
        scalar = torch.tensor(2.0)
        self.assert_near(self.free(lambda x: x.exp() * 2)(scalar), scalar.exp() * 2)

    def test_same_random(self):
        module, x = Perceptron(dropout=0.5), torch.randn(16, 6)
        torch.manual_seed(5)
        wanted = gradients_of(module, x)
        torch.manual_seed(5)
        with self.assertLogs("ridge.torch", "INFO") as logs:
            got = gradients_of(module, x, self.compiled(module, same_random=True))
        self.assert_near(got, wanted)
        for line in logs.output:
            self.assertTrue(line.endswith("left to ATen: nothing"), line)

    def test_same_random_numbers_of_dropout(self):
        def f(x, p):
            y = nn.functional.dropout(x, p)
            return y, torch.native_dropout(y.exp(), p, True), torch.bernoulli(x, 0.25)

        orders = {3: (0,), 7 * 313: (1, 0), 0: (0, 1), 2 * 3 * 4 * 5: (0, 3, 1, 2)}
        for dtype, shape, p in itertools.product(
            (torch.float32, torch.bfloat16, torch.float64), ((3,), (7, 313), (0, 4), (2, 4, 5, 3)), (0.0, 0.1, 0.5)
        ):
            with self.subTest(dtype=dtype, shape=shape, p=p):
                torch._dynamo.reset()
                count = math.prod(shape)
                x = torch.linspace(-1, 1, count, dtype=dtype).reshape(shape).permute(orders[count])
                torch.manual_seed(5)
                torch.rand(int(p > 0.1))  # an odd number of words before
                wanted, state = f(x, p), torch.get_rng_state()
                torch.manual_seed(5)
                torch.rand(int(p > 0.1))
                got = self.compiled(f, same_random=True)(x, p)
                # Eager's mask of native_dropout has the input's dtype, that of every compiler is bool.
                for each, other in zip(pytree.tree_leaves(got), pytree.tree_leaves(wanted)):
                    self.assertTrue(torch.equal(each == 0, other == 0))
                    self.assert_near(each.to(other.dtype), other)
                self.assertTrue(torch.equal(torch.get_rng_state(), state))

    def test_a_generator_that_the_engine_does_not_know_is_left_to_aten(self):
        module, x = Perceptron(dropout=0.5), torch.randn(16, 6)
        torch.manual_seed(5)
        wanted = gradients_of(module, x)
        torch.manual_seed(5)
        with mock.patch.object(_operators._ridge, "draw_bernoulli", return_value=False):
            for each in (_operators.knows_generator, _operators.decompositions, _backend._compiler):
                each.cache_clear()
                self.addCleanup(each.cache_clear)
            with self.assertLogs("ridge.torch", "INFO") as logs:
                got = gradients_of(module, x, self.compiled(module, same_random=True))
        self.assert_near(got, wanted)
        self.assertIn("left to ATen: 1 aten.", logs.output[0])

    def test_same_random_numbers(self):
        def f(x):
            return torch.rand_like(x) + torch.randn(3, 4) + torch.bernoulli(torch.sigmoid(x)) + torch.randint(9, (3, 4))

        x = torch.randn(3, 4)
        for each in (lambda x: nn.functional.dropout(x, 0.3), lambda x: x.bernoulli_(0.3), f):
            torch._dynamo.reset()
            torch.manual_seed(5)
            wanted = each(x.clone())
            torch.manual_seed(5)
            self.assert_near(self.compiled(each, same_random=True)(x.clone()), wanted)

    def test_devices(self):
        from torch._subclasses.fake_tensor import FakeTensorMode

        with FakeTensorMode(allow_non_fake_inputs=True):
            x = torch.empty(3, device="cuda")
        inductor = mock.Mock(return_value="compiled")
        with mock.patch.object(torch._dynamo, "lookup_backend", return_value=inductor) as look:
            with mock.patch.object(_compile, "_told", set()):
                with self.assertWarnsRegex(UserWarning, "a graph on cuda goes to Inductor"):
                    self.assertEqual(ridge.torch.backend("module", [x]), "compiled")
        look.assert_called_with("inductor")
        inductor.assert_called_with("module", [x])


if __name__ == "__main__":
    unittest.main()
