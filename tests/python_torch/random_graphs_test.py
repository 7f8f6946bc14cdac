"""Random graphs of operators that the engine takes: results and gradients are those of eager.

A graph is a function of a seed: run again, it makes the same choices, for the shapes that it sees are the same.
"""

import random
import unittest
import unittest.mock
import warnings

import torch
import torch.nn.functional as F
from case import IS_FULL
from traced import Compiler, pairs, results

from ridge.torch import _partition

GRAPHS = 500 if IS_FULL else 15
FLOATS = (torch.float64, torch.float64, torch.float32)
WHOLE = (torch.int64, torch.int64, torch.int32, torch.uint8)


class Drawn:
    """A tensor of a graph. Where rounding differs a little, what jumps (floor, a comparison) may differ much: it is
    made of exact tensors alone."""

    def __init__(self, tensor, is_exact):
        self.tensor, self.is_exact = tensor, is_exact


def is_float(x):
    return x.is_floating_point()


def is_whole(x):
    return not is_float(x) and x.dtype != torch.bool


def axis(r, x):
    return r.randrange(-x.ndim, x.ndim)


def axes(r, x):
    return r.sample(range(x.ndim), r.randint(1, x.ndim))


def of_shape(r, x, pool):
    """A tensor that broadcasts with x, or a number."""
    near = [each.tensor for each in pool if fits(x.shape, each.tensor.shape)]
    if near and r.random() < 0.7:
        return r.choice(near)
    return r.choice((2, -3, 0.5, -1.25)) if is_float(x) else r.choice((1, 2, 3, 7))


def not_zero(x):
    """1 for 0, of which a sum has either sign."""
    return x + (x == 0)


def fits(a, b):
    return all(m == n or 1 in (m, n) for m, n in zip(reversed(a), reversed(b)))


# ---- operators: of r, x and the pool; None where x does not suit ----

JUMPS, ROUNDS, MOVES = [], [], []


def listed(where):
    def keep(function):
        where.append(function)
        return function

    return keep


def of_one(where, suits, *functions):
    for function in functions:
        where.append(lambda r, x, pool, function=function: function(x) if suits(x) else None)


of_one(
    ROUNDS, is_float, torch.exp, torch.tanh, torch.erf, torch.sigmoid, torch.atan,
    # Of NaN, PyTorch's decompositions of the gradients of hardtanh and hardswish differ from its kernels.
    F.silu, F.gelu, lambda x: F.gelu(x, approximate="tanh"),
    # The sine of a large number is that of its last bits, where others have rounded.
    *(lambda x, f=f: f(x.clamp(-99, 99)) for f in (torch.sin, torch.cos)),
    lambda x: torch.sqrt(x.abs()), lambda x: torch.rsqrt(x.abs() + 0.5), lambda x: torch.log(x.abs() + 0.25),
    lambda x: torch.reciprocal(not_zero(x)), lambda x: x**1.5, lambda x: not_zero(x) ** -1,
    lambda x: F.hardswish(x.nan_to_num()), lambda x: F.softplus(x), lambda x: F.mse_loss(x, x * 0.5),
)  # fmt: skip
of_one(
    JUMPS, is_float, torch.floor, torch.ceil, torch.round, torch.trunc, torch.sign, torch.relu, torch.isnan,
    torch.isinf, torch.isfinite, torch.logical_not, lambda x: F.hardtanh(x.nan_to_num()), lambda x: x.clamp(-1, 2),
    lambda x: x.clamp(min=0.5), lambda x: x.clamp(max=0), lambda x: x.abs(), lambda x: x > 0, lambda x: x.bool(),
    lambda x: F.leaky_relu(x, 0.25), lambda x: F.threshold(x, 0.5, -1.0),
)  # fmt: skip
of_one(MOVES, is_float, torch.neg, lambda x: x * 0.5, lambda x: 2 - x, lambda x: x**2, lambda x: x.clone())
of_one(MOVES, is_whole, torch.abs, torch.sign, torch.relu, torch.neg, torch.bitwise_not, lambda x: x * x,
       lambda x: x / 2, lambda x: x.clamp(0, 5), lambda x: x.float(), lambda x: x.double(), lambda x: x > 1,
       lambda x: x.to(torch.int32), lambda x: x.long(), lambda x: x.floor(), lambda x: x + 0.5,
       lambda x: x // 3, lambda x: x % 4, lambda x: torch.fmod(x, 3), lambda x: x.bool())  # fmt: skip
of_one(MOVES, lambda x: x.dtype == torch.bool, torch.logical_not, torch.bitwise_not, lambda x: x.float(),
       lambda x: x.long(), lambda x: x.sum(), lambda x: x * 2, lambda x: x * 0.5)  # fmt: skip


@listed(MOVES)
def reshaped(r, x, pool):
    return x.reshape(r.choice(((-1,), (1, *x.shape), (*x.shape, 1), (x.shape[0] if x.ndim else 1, -1))))


@listed(MOVES)
def permuted(r, x, pool):
    return x.permute(r.sample(range(x.ndim), x.ndim)) if x.ndim > 1 else None


@listed(MOVES)
def squeezed(r, x, pool):
    return r.choice((lambda: x.squeeze(), lambda: x.unsqueeze(r.randrange(-x.ndim - 1, x.ndim + 1))))()


@listed(MOVES)
def expanded(r, x, pool):
    return x.expand(2, *x.shape) if r.random() < 0.5 else x.repeat(2, *([1] * x.ndim))


@listed(MOVES)
def sliced(r, x, pool):
    if not x.ndim or max(x.shape) < 2:
        return None
    at = r.choice([i for i in range(x.ndim) if x.shape[i] > 1])
    kind = r.randrange(4)
    if kind == 0:
        return x.select(at, r.randrange(-x.shape[at], x.shape[at]))
    if kind == 1:
        return x.split(r.randint(1, x.shape[at] - 1), at)[-1]
    start = r.randrange(-x.shape[at], x.shape[at])
    rows = x.transpose(0, at)[start:] if kind == 2 else x.transpose(0, at)[:: r.randint(1, 3)]
    return rows.transpose(0, at)


@listed(MOVES)
def joined(r, x, pool):
    if not x.ndim:
        return torch.stack([x, x])
    others = [each.tensor for each in pool if each.tensor.shape == x.shape]
    if r.random() < 0.7:
        return torch.cat([x, r.choice(others), x], axis(r, x))
    return torch.stack([x, others[0]], axis(r, x))


@listed(MOVES)
def padded(r, x, pool):
    if not x.ndim or x.dtype == torch.bool:
        return None
    return F.pad(x, (r.randint(1 - x.shape[-1], 2), r.randint(0, 2)), value=r.choice((0, 1, 3)))


@listed(MOVES)
def written(r, x, pool):
    if not x.ndim:
        return None
    y = x.clone()
    y.select(axis(r, x), 0).fill_(1)
    if r.random() < 0.5:
        y[..., :: r.randint(1, 2)] = x[..., :1]
    return y


@listed(JUMPS)
def chosen(r, x, pool):
    conditions = [each.tensor for each in pool if each.tensor.dtype == torch.bool and fits(x.shape, each.tensor.shape)]
    condition = r.choice(conditions) if conditions else x != x.flatten()[0]
    return torch.where(condition, x, of_shape(r, x, pool)) if r.random() < 0.6 else x.masked_fill(condition, 2)


@listed(JUMPS)
def compared(r, x, pool):
    return r.choice((torch.eq, torch.ne, torch.lt, torch.le, torch.gt, torch.ge))(x, of_shape(r, x, pool))


@listed(JUMPS)
def of_logic(r, x, pool):
    y = of_shape(r, x, pool)
    if not isinstance(y, torch.Tensor):
        y = x.flatten()[:1]
    return r.choice((torch.logical_and, torch.logical_or, torch.logical_xor))(x, y)


@listed(MOVES)
def summed_up(r, x, pool):
    y = of_shape(r, x, pool)
    if x.dtype == torch.bool:
        return None
    if isinstance(y, torch.Tensor) and y.dtype == torch.bool:
        return r.choice((torch.add, torch.mul))(x, y)
    return r.choice((torch.add, torch.sub, torch.mul, lambda a, b: torch.add(a, b, alpha=2), lambda a, b: b - a))(x, y)


@listed(JUMPS)
def extreme(r, x, pool):
    y = of_shape(r, x, pool)
    if x.dtype == torch.bool or not isinstance(y, torch.Tensor) or y.dtype == torch.bool:
        return None
    return r.choice((torch.maximum, torch.minimum))(x, y)


@listed(ROUNDS)
def divided(r, x, pool):
    return x / not_zero(of_shape(r, x, pool))


@listed(JUMPS)
def rest(r, x, pool):
    y = of_shape(r, x, pool)
    if x.dtype == torch.bool or not is_float(x) and (isinstance(y, torch.Tensor) and not is_float(y)):
        return None  # by zero, which eager refuses
    return r.choice((torch.fmod, torch.remainder))(x, y)


@listed(MOVES)
def reduced(r, x, pool):
    if not x.ndim:
        return x.sum()
    kind, keeps = r.randrange(4), r.random() < 0.5
    if kind == 0:
        return x.sum(axes(r, x), keepdim=keeps)
    if kind == 1:
        return x.sum()
    return x.cumsum(axis(r, x)) if kind == 2 else x.sum(axis(r, x), keepdim=keeps)


@listed(JUMPS)
def reduced_by_order(r, x, pool):
    if not x.ndim:
        return x.any()
    keeps = r.random() < 0.5
    if x.dtype == torch.bool or r.random() < 0.3:
        return r.choice((torch.any, torch.all))(x, axis(r, x), keeps)
    if r.random() < 0.3:
        return x.argmax(axis(r, x), keeps)
    return r.choice((torch.amax, torch.amin))(x, axes(r, x), keeps)


@listed(ROUNDS)
def averaged(r, x, pool):
    if not is_float(x) or not x.ndim:
        return None
    kind = r.randrange(5)
    if kind < 2:
        return x.mean(axes(r, x), keepdim=kind == 0)
    if kind == 2:
        return F.layer_norm(x, x.shape[r.randrange(x.ndim) :])
    return (F.softmax, F.log_softmax)[kind - 3](x, axis(r, x))


@listed(MOVES)
def looked_up(r, x, pool):
    if not x.ndim:
        return None
    at = axis(r, x)
    size, count = x.shape[at], r.randint(1, 3)
    indices = torch.arange(count) * r.randint(1, 3) % size
    kind = r.randrange(4)
    if kind == 0:
        return x.index_select(at, indices)
    if kind == 1:
        return x[indices % x.shape[0] - (x.shape[0] if r.random() < 0.5 else 0)]
    if kind == 2 and x.ndim > 1:
        return x[indices % x.shape[0], (indices * 2) % x.shape[1]]
    shape = [count if i == at % x.ndim else n for i, n in enumerate(x.shape)]
    return x.gather(at, indices.view([-1 if i == at % x.ndim else 1 for i in range(x.ndim)]).expand(shape))


@listed(MOVES)
def embedded(r, x, pool):
    return F.embedding(torch.arange(5) % x.shape[0], x) if is_float(x) and x.ndim == 2 else None


@listed(ROUNDS)
def multiplied(r, x, pool):
    if not is_float(x) or x.ndim < 2 or x.ndim > 4:
        return None
    if r.random() < 0.5:
        return x @ x.transpose(-1, -2)
    return F.linear(x, x.reshape(-1, x.shape[-1]), None)


@listed(ROUNDS)
def convolved(r, x, pool):
    if not is_float(x) or x.ndim not in (3, 4):
        return None
    kernel = [min(2, n) for n in x.shape[2:]]
    weight = torch.linspace(-1, 1, 3 * x.shape[1] * torch.Size(kernel).numel(), dtype=x.dtype)
    weight = weight.view(3, x.shape[1], *kernel)
    y = (F.conv1d if x.ndim == 3 else F.conv2d)(x, weight, weight[:, 0].flatten(1).sum(1), padding=r.randint(0, 1))
    return y.relu() if r.random() < 0.3 else y


@listed(ROUNDS)
def of_images(r, x, pool):
    if not is_float(x) or x.ndim != 4 or x.numel() == 1:
        return None
    kind = r.randrange(4)
    if kind == 0:
        return F.adaptive_avg_pool2d(x, 1)
    if kind == 1:
        return F.group_norm(x, 1, torch.linspace(0.5, 1, x.shape[1], dtype=x.dtype))
    if min(x.shape[2:]) < 2:
        return None
    return F.avg_pool2d(x, 2, 1) if kind == 2 else F.batch_norm(x, None, None, training=True)


@listed(JUMPS)
def pooled(r, x, pool):
    if not is_float(x) or x.ndim != 4 or min(x.shape[2:]) < 2:
        return None
    return F.max_pool2d(x, 2, r.randint(1, 2), ceil_mode=r.random() < 0.5)


# ---- graphs ----


def drawn(seed):
    """Tensors: small quarters, whole numbers, bools; in some graphs with what is special in their dtype."""
    r = random.Random(seed)
    torch.manual_seed(seed)
    size = r.randint(1, 4)
    shape = [r.choice((1, 2, 3, size)) for _ in range(r.randint(0, 4))]
    is_wild, tensors = r.random() < 0.25, []
    for dtype in (r.choice(FLOATS), r.choice((*FLOATS, *WHOLE, torch.bool))):
        mine = [1 if r.random() < 0.2 else n for n in shape[r.randrange(len(shape) + 1) if r.random() < 0.3 else 0 :]]
        x = torch.randint(-8, 9, mine)
        x = x / 4 if dtype.is_floating_point else x
        x = x.to(dtype)
        if is_wild and x.numel() > 1 and dtype != torch.bool:
            flat = x.view(-1)
            if dtype.is_floating_point:
                flat[0], flat[-1] = r.choice((float("inf"), float("nan"))), r.choice((-0.0, float("-inf"), 1024.0))
            else:
                flat[0], flat[-1] = torch.iinfo(dtype).min, torch.iinfo(dtype).max
        if r.random() < 0.2 and x.ndim > 1:
            x = x.transpose(0, -1)
        tensors.append(x.requires_grad_(dtype.is_floating_point))
    return tensors


def graph(seed, told=None):
    def function(*tensors):
        r = random.Random(seed)
        pool = [Drawn(each, True) for each in tensors]
        steps = r.randint(3, 8)
        while steps:
            # Chains: the newest tensor is the likeliest.
            of = pool[-1] if r.random() < 0.7 else r.choice(pool)
            kinds = (JUMPS, ROUNDS, MOVES) if of.is_exact else (ROUNDS, MOVES)
            kind = r.choice(kinds)
            operator = r.choice(kind)
            exact = [each for each in pool if each.is_exact]
            y = operator(r, of.tensor, exact if of.is_exact else pool)
            if y is None or not y.numel() or y.numel() > 4096 or y.ndim > 6:
                continue
            if told is not None:
                name = f"{('JUMPS', 'ROUNDS', 'MOVES')[kinds.index(kind) - len(kinds)]}[{kind.index(operator)}]"
                told.append(f"{name} of {of.tensor.dtype} {tuple(of.tensor.shape)}")
            pool.append(Drawn(y, of.is_exact and kind is not ROUNDS))
            steps -= 1
        return [each.tensor for each in pool[len(tensors) :]]

    return function


class Graphs(unittest.TestCase):
    def setUp(self):
        patch = unittest.mock.patch.object(_partition, "_IDLE", frozenset())
        patch.start()
        self.addCleanup(patch.stop)

    def near(self, ours, theirs, true):
        """Within 1e-6 (1e-3 in f32) of the largest number, or not much further from f64 than eager."""
        self.assertEqual((ours.dtype, ours.shape), (theirs.dtype, theirs.shape))
        if not is_float(ours):
            return torch.equal(ours, theirs)
        relative = 1e-3 if theirs.dtype == torch.float32 else 1e-6
        ours, theirs, true = (each.double() for each in (ours, theirs, true))
        is_there = theirs.isfinite() & ours.isfinite()
        size = theirs[is_there].abs().max().item() if is_there.any() else 0.0
        limit = relative * size
        own = (theirs - true)[is_there].abs().nan_to_num(0).max().item() if is_there.any() else 0.0
        return torch.allclose(ours, theirs, rtol=0, atol=limit + 8 * own + 1e-30, equal_nan=True)

    def check(self, seed):
        tensors, told = drawn(seed), []
        compiler = Compiler()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.filterwarnings("error", message="ridge.torch.*")
            wanted = results(graph(seed, told), tensors)
            got = results(compiler.compiled(graph(seed)), tensors)
            wide = results(graph(seed), [x.detach().double().requires_grad_() if is_float(x) else x for x in tensors])
        self.assertGreater(compiler.programs, 0)
        true = {(kind, number): each for kind, number, each, _ in pairs(wide, wide)}
        for kind, number, ours, theirs in pairs(got, wanted):
            step = told[number] if kind == "output" else ""
            self.assertTrue(
                self.near(ours, theirs, true.get((kind, number), theirs)),
                f"seed {seed}, {kind} {number} {step}: {ours} is not {theirs}; steps {told}",
            )

    def test_agree_with_eager(self):
        for seed in range(GRAPHS):
            with self.subTest(seed=seed):
                self.check(seed)


if __name__ == "__main__":
    unittest.main()
