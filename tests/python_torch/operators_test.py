"""Operators of ATen, each by itself: results and gradients are those of eager."""

import math
import unittest

import torch
import torch.nn.functional as F
from case import Case


def randn(*shape, dtype=torch.float32):
    return torch.randn(*shape, dtype=dtype)


def whole(*shape, low=-5, high=6, dtype=torch.int64):
    return torch.randint(low, high, shape).to(dtype)


class Elements(Case):
    def test_arithmetic(self):
        x, y, row = randn(3, 4), randn(3, 4), randn(4)
        self.check(lambda x, y, row: (x + y, x - row, x * row, x / (y * y + 1), 2 - x, x * 0.5 + 3, -x), x, y, row)
        self.check(lambda x, y: torch.add(x, y, alpha=3) - torch.sub(x, y, alpha=0.25), x, y)
        self.check(lambda x, y: (torch.maximum(x, y), torch.minimum(x, y), x.clamp(-0.5, 0.5), x.clamp(min=0)), x, y)
        self.check(lambda x: (x.abs() ** 1.5, x**2, x**3, 1 / (x * x + 1)), x)

    def test_functions(self):
        x = randn(3, 5)
        self.check(lambda x: (x.exp(), x.sin(), x.cos(), x.tanh(), x.erf(), x.sigmoid(), x.abs().sqrt()), x)
        self.check(lambda x: ((x * x + 1).rsqrt(), (x * x + 1).log(), x.relu(), F.silu(x), F.hardtanh(x)), x)
        self.check(lambda x: (F.gelu(x), F.gelu(x, approximate="tanh"), F.relu6(3 * x), F.hardswish(x)), x)
        self.check(lambda x: (F.elu(x), F.selu(x), F.celu(x, 1.5), F.leaky_relu(x, 0.3), (x * x).log1p()), x)
        many = torch.cat([10.0 ** torch.arange(-9, 3), -(10.0 ** torch.arange(-9, 3)), torch.tensor([0, math.inf])])
        self.check(lambda x: (x.expm1(), x.abs().log1p()), many, gradients=False)
        self.check(lambda x: (x.floor(), x.ceil(), x.round(), x.trunc(), x.sign()), 3 * x, gradients=False)

    def test_integers_and_promotion(self):
        i, j, b = whole(3, 4), whole(3, 4, low=1), randn(3, 4) > 0
        self.check(lambda i, j: (i + j, i * j, i - 3, i + 0.5, i / j, i.float() * j, i // 2 * 2), i, j, left=None)
        self.check(lambda i, j, b: (i < j, i == 2, i != j, i >= 0.5, b & (i > 0), b | (j > 2), ~b), i, j, b)
        self.check(lambda i, b: (i + b, b.float(), i.to(torch.int32), i.bool(), b * 3), i, b)
        self.check(lambda i, j: (i % j, torch.fmod(i, 3)), i, j, left=None)

    def test_where(self):
        x, y, b = randn(3, 4), randn(4), randn(3, 1) > 0
        self.check(lambda x, y, b: (torch.where(b, x, y), torch.where(b, x, 0.0), x.masked_fill(b, -1e9)), x, y, b)

    def test_dtypes(self):
        for dtype in (torch.float64, torch.bfloat16):
            with self.subTest(dtype=dtype):
                self.check(lambda x, y: (x * y + 1).tanh(), randn(3, 4, dtype=dtype), randn(4, dtype=dtype))
        self.check(lambda x, y: (x + y, x.double().exp(), x > y), randn(3), randn(3, dtype=torch.float64))


class Special(Case):
    """Values at which an operator is easily wrong."""

    def values(self, dtype=torch.float64):
        inf, nan = float("inf"), float("nan")
        return torch.tensor([-inf, -2.5, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 3.0, inf, nan], dtype=dtype)

    def test_powers(self):
        for dtype in (torch.float32, torch.float64):
            x = self.values(dtype)
            self.check(lambda x, y: (x**y, 1 / x**y), x[:, None], x, gradients=False)
            for y in (-3.0, -1.0, -0.5, 0.0, 0.5, 1.5, 2.0, 3.0):
                self.check(lambda x, y=y: (x**y, 1 / x**y), x, gradients=False)

    def test_signs_and_remainders(self):
        x = self.values()
        self.check(lambda x, y: (torch.fmod(x, y), torch.remainder(x, y), x.sign()), x[:, None], x, gradients=False)
        self.check(lambda x, y: (torch.fmod(x, y), torch.remainder(x, y)), x[:1], x, gradients=False)
        self.check(lambda x, y: (torch.maximum(x, y), torch.minimum(x, y), x < y, x.clamp(y)), x[:, None], x,
                   gradients=False, left=None)  # fmt: skip

    def test_signs_of_zeros(self):
        x = torch.cat([self.values(), torch.tensor([-0.3, 0.3, -0.7, 2.5, -1e8], dtype=torch.float64)])
        self.check(lambda x: [1 / y for y in (x.floor(), x.ceil(), x.round(), x.trunc(), x * 0, x.sin(), x.tan())], x,
                   gradients=False)  # fmt: skip

    def test_order(self):
        x = torch.stack([self.values(), self.values().flip(0)])
        self.check(lambda x: (x.amax(1), x.amin(0), x.argmax(1), x.relu(), x.softmax(1), x.sum(1), x.bool()), x,
                   gradients=False)  # fmt: skip

    def test_far_angles(self):
        x = torch.tensor([1e3, -1e5, 1e6, 12345678.9, -3e8], dtype=torch.float64)
        self.check(lambda x: (x.sin(), x.cos()), x)

    def test_integers(self):
        least, most = -(2**63), 2**63 - 1
        x = torch.tensor([least, least + 1, -(2**53) - 1, -7, 7, 2**53 + 1, most])
        y = torch.tensor([2, -3, 7, most, least])
        self.check(lambda x, y: (x // y, torch.div(x, y, rounding_mode="trunc")), x[:, None], y)
        self.check(lambda x, y: (x % y, torch.fmod(x, y)), x[:, None], y)
        self.check(lambda x, y: (x + y, x * y, x - y, x < y, torch.maximum(x, y), -x, x.abs(), ~x), x[:, None], y)
        self.check(lambda x: (x.sum(), x.amax(0), x.double(), x == 2**53, x.int(), x.to(torch.uint8)), x)

    def test_short_integers(self):
        x = torch.tensor([-300.5, -1.0, -0.5, 3.9, 255.0, 256.0])
        self.check(lambda x: (x.to(torch.uint8) + 1, x.to(torch.int8) + 1, x.to(torch.int16) + 1), x, gradients=False)

    def test_scattered_infinities(self):
        x, at = torch.tensor([[float("inf")], [1.0]]), torch.tensor([[1], [0]])
        self.check(lambda x, at: torch.zeros(2, 3).scatter_add(1, at, x), x, at, left=None)

    def test_attention_of_scale_0(self):
        q = randn(1, 2, 3, 4)
        self.check(lambda q: F.scaled_dot_product_attention(q, q, q, scale=0.0), q, left=None)

    def test_indices_out_of_range(self):
        function = self.compiled(lambda x, i, j: x[i, j] * 2)
        x, i = randn(3, 4), torch.tensor([1])
        torch.testing.assert_close(function(x, i, torch.tensor([3])), x[1:2, 3] * 2)
        with self.assertRaises(Exception):
            function(x, i, torch.tensor([4]))

    def test_memory_from_an_offset(self):
        base = randn(12)
        self.check(lambda x: torch.as_strided(x[3:9] * 1, (2, 3), (3, 1)) * 2, base, left=None)
        self.check(lambda x: torch.as_strided(x[3:9], (2, 3), (3, 1), 0) * 2, base, left=None, gradients=False)


class Shapes(Case):
    def test_views(self):
        x = randn(2, 3, 4, 5)
        self.check(lambda x: (x.view(6, 20) * 2, x.permute(3, 1, 0, 2) + 1, x.transpose(1, 2).reshape(2, 4, -1) * 3), x)
        self.check(lambda x: (x[:, 1] + 1, x[..., ::2] * 2, x[:, 1:3, -2:] + 1), x)
        self.check(lambda x: (x.unsqueeze(1) * 2, x.flatten(1) + 1), x)
        self.check(lambda x: (x[:1].expand(4, 3, 4, 5) + 1, x[0, 0].repeat(2, 3) * 2, x[:1].squeeze() + 1), x)

    def test_joined_and_cut(self):
        x, y = randn(2, 3, 4), randn(2, 5, 4)
        self.check(lambda x, y: torch.cat([x, y, x], 1) * 2, x, y)
        self.check(lambda x: [part * 2 for part in x.split([1, 2], 1)], x)
        self.check(lambda y: [part + 1 for part in y.chunk(2, 1)], y)
        self.check(lambda x: (F.pad(x, (1, 2)), F.pad(x, (0, 0, 1, -1), value=3.0), torch.stack([x, x]) * 2), x)

    def test_made(self):
        x = randn(3, 4)
        self.check(lambda x: (x + torch.arange(4), x * torch.ones(3, 1), x + torch.full_like(x, 2.5)), x)
        self.check(lambda x: (x + torch.arange(0.5, 2.5, 0.5), torch.zeros(3) + x[:, 0]), x)

    def test_in_place(self):
        def f(x):
            y = x * 2
            y[:, 1] = 3.0
            y[0] += x[0]
            y.relu_()
            return y

        self.check(f, randn(3, 4))


class Sums(Case):
    def test_reductions(self):
        x = randn(2, 3, 4)
        self.check(lambda x: (x.sum(), x.mean(), x.sum(1), x.mean((0, 2), keepdim=True), x.amax(-1)), x)
        self.check(lambda x: (x.var(1), x.std(), x.norm()), x, left=None)
        self.check(lambda x: (x.cumsum(0), x.cumsum(-1), (x > 0).cumsum(1)), x, left=None)
        self.check(lambda x: ((x > 0).any(1), (x > 1).sum(), (x > 0).all(-1), x.argmax(1)), x, left=None)

    def test_products(self):
        a, b, c = randn(3, 4), randn(4, 5), randn(5)
        self.check(lambda a, b, c: (a @ b, F.linear(a, b.t(), c), torch.addmm(c, a, b, beta=0.5, alpha=2)), a, b, c)
        self.check(lambda a, b: a @ b, randn(2, 3, 4), randn(2, 4, 5))
        self.check(lambda a, b: a @ b, randn(2, 6, 3, 4), randn(6, 4, 2))

    def test_softmax(self):
        x = randn(3, 4, 5)
        self.check(lambda x: (x.softmax(-1), x.softmax(1), x.log_softmax(-1), x.log_softmax(0)), x)

    def test_losses(self):
        x, target = randn(6, 5), whole(6, low=0, high=5)
        target[2] = -100
        self.check(lambda x, t: F.cross_entropy(x, t), x, target)
        self.check(lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1), x, target, left=None)
        self.check(lambda x, y: F.mse_loss(x, y), x, randn(6, 5))
        self.check(lambda x, y: F.binary_cross_entropy_with_logits(x, y), x, torch.rand(6, 5), left=None)


class Layers(Case):
    def test_convolutions_that_see_much_padding(self):
        cases = [  # height, width, kernel, stride, padding, dilation
            (1, 1, (3, 3), 1, 1, 1), (2, 2, (3, 3), 2, 1, 1), (2, 3, (7, 7), 2, 3, 1), (1, 4, (3, 3), 1, 1, 1),
            (3, 3, (3, 3), 1, 2, 2), (2, 3, (3, 3), 3, 2, 2), (1, 1, (4, 2), 1, (2, 1), 1), (2, 2, (2, 2), 5, 3, 1),
        ]  # fmt: skip
        inputs, layers = [], []
        for height, width, kernel, *options in cases:
            inputs += [randn(2, 4, height, width), randn(6, 4, *kernel)]
            layers.append(options)

        def f(*given):
            return [F.conv2d(x, w, None, *options) for x, w, options in zip(given[::2], given[1::2], layers)]

        self.check(f, *inputs)
        self.check(f, *[x.double() for x in inputs])
        with torch.no_grad():  # weights are constants
            model = torch.nn.ModuleList(torch.nn.Conv2d(4, 6, case[2], *case[3:], bias=False) for case in cases).eval()

            def run(*images):
                return [layer(x) for layer, x in zip(model, images)]

            self.assert_near(self.run_whole(run, *inputs[::2]), run(*inputs[::2]))

    def test_convolutions(self):
        x = randn(2, 4, 9, 8)
        for name, weight, options in (
            ("plain", randn(6, 4, 3, 3), {}),
            ("strides", randn(6, 4, 3, 3), {"stride": 2, "padding": 1}),
            ("groups", randn(6, 2, 3, 3), {"groups": 2, "padding": (1, 0)}),
            ("depthwise", randn(4, 1, 3, 3), {"groups": 4, "padding": 1}),
            ("dilated", randn(3, 4, 2, 3), {"dilation": (2, 1)}),
            ("one", randn(5, 4, 1, 1), {}),
        ):
            with self.subTest(name):

                def f(x, w, b=None, options=options):
                    return F.conv2d(x, w, b, **options)

                self.check(f, x, weight)
                self.check(f, x, weight, randn(weight.shape[0]))
        image = x.contiguous(memory_format=torch.channels_last)
        self.check(lambda x, w: F.conv2d(x, w).relu(), image, randn(6, 4, 3, 3))

    def test_lines_and_transposes(self):
        self.check(lambda x, w, b: F.conv1d(x, w, b, padding=1), randn(2, 3, 8), randn(5, 3, 3), randn(5))
        self.check(lambda x, w, b: F.conv_transpose2d(x, w, b, stride=2, padding=1, output_padding=1),
                   randn(2, 3, 5, 4), randn(3, 6, 3, 3), randn(6))  # fmt: skip
        self.check(lambda x, w: F.conv_transpose2d(x, w, stride=2, groups=2), randn(2, 4, 5, 4), randn(4, 3, 2, 2))

    def test_pools(self):
        x = randn(2, 3, 9, 8)
        self.check(lambda x: F.max_pool2d(x, 3, 2, 1), x)
        self.check(lambda x: F.max_pool2d(x, 2, ceil_mode=True), x)
        self.check(lambda x: F.avg_pool2d(x, 3, 2, 1), x)
        self.check(lambda x: F.avg_pool2d(x, 2, count_include_pad=False), x)
        self.check(lambda x: (F.adaptive_avg_pool2d(x, 1), F.adaptive_avg_pool2d(x[..., :8, :], 4)), x)

    def test_norms(self):
        x = randn(4, 6, 3, 5)
        self.check(lambda x, w, b: F.layer_norm(x, (5,), w, b), x, randn(5), randn(5))
        self.check(lambda x, w: F.layer_norm(x, (3, 5), w), x, randn(3, 5))
        self.check(lambda x: F.layer_norm(x, (5,)), x)
        self.check(lambda x, w, b: F.group_norm(x, 3, w, b), x, randn(6), randn(6))
        self.check(lambda x, w: F.rms_norm(x, (5,), w), x, randn(5))

    def test_batch_norm(self):
        for shape in ((4, 6, 3, 5), (7, 6), (4, 6, 5)):
            for training in (True, False):
                with self.subTest(shape=shape, training=training):
                    mean, variance = randn(6), torch.rand(6) + 0.5

                    def f(x, w, b):
                        m, v = mean.clone(), variance.clone()  # noqa: B023
                        y = F.batch_norm(x, m, v, w, b, training, 0.1)  # noqa: B023
                        return y, m, v

                    self.check(f, randn(*shape), randn(6), randn(6))

    def test_attention(self):
        q, k, v = randn(2, 3, 5, 8), randn(2, 3, 7, 8), randn(2, 3, 7, 8)
        self.check(lambda q, k, v: F.scaled_dot_product_attention(q, k, v), q, k, v)
        self.check(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=0.3), q, k, v)
        self.check(lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), q)
        mask = randn(2, 1, 5, 7) > -0.5
        mask[..., 0] = True
        self.check(lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m), q, k, v, mask)

    def test_lookups(self):
        table, ids = randn(10, 4), whole(3, 5, low=0, high=10)
        self.check(lambda t, i: F.embedding(i, t), table, ids)
        self.check(lambda t, i: F.embedding(i, t, padding_idx=2), table, ids)
        self.check(lambda t, i: (t[i], t[i, 1], t.index_select(0, i[0])), table, ids, left=None)
        self.check(lambda t, i: t.gather(1, i), randn(6, 4), whole(6, 1, low=0, high=4))
        self.check(lambda t, i: (t.gather(1, i), t.gather(0, i)), randn(6, 4), whole(5, 3, low=0, high=4), left=None)


if __name__ == "__main__":
    unittest.main()
