"""PyTorch's own samples of operators (`op_db`), without Dynamo: traced, imported, run, held against eager.

It needs PyPI's `expecttest`. The short form takes two samples an operator in f32; the full form more, in f64, i64
and bool, too, with gradients.
"""

import os
import unittest
import warnings

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from ridge.torch._compile import compile_static
from ridge.torch._operators import decompositions
from ridge.torch._partition import cut

try:
    from torch.testing._internal.common_methods_invocations import op_db
except ImportError:
    op_db = []

IS_FULL = os.environ.get("RIDGE_TEST_SCALE") == "full"
SAMPLES = 20 if IS_FULL else 2
DTYPES = (torch.float32, torch.float64, torch.int64, torch.bool) if IS_FULL else (torch.float32,)
NAMES = """
abs add addmm amax amin any argmax baddbmm bmm bitwise_and bitwise_not bitwise_or cat ceil clamp clone
constant_pad_nd cos cumsum div eq erf exp expand flatten floor fmod full_like gather ge gt index_select isinf isnan
le log log_softmax logical_and logical_not logical_or lt matmul maximum mean minimum mm mul native_layer_norm
narrow ne neg nn.functional.adaptive_avg_pool2d nn.functional.avg_pool2d nn.functional.batch_norm
nn.functional.conv1d nn.functional.conv2d nn.functional.conv_transpose2d nn.functional.cross_entropy
nn.functional.embedding nn.functional.gelu nn.functional.group_norm nn.functional.hardtanh
nn.functional.layer_norm nn.functional.linear nn.functional.max_pool2d nn.functional.mse_loss nn.functional.pad
nn.functional.relu nn.functional.relu6 nn.functional.rms_norm nn.functional.scaled_dot_product_attention
nn.functional.silu ones_like permute pow reciprocal remainder repeat reshape round rsqrt select sigmoid sign sin
slice softmax split split_with_sizes sqrt squeeze stack sub sum t tan tanh transpose trunc unbind unsqueeze view where
""".split()


def flat(output):
    return [each for each in torch.utils._pytree.tree_leaves(output) if isinstance(each, torch.Tensor)]


def run_compiled(function, tensors):
    """The results of the graph on the engine; None where the engine takes no node of it."""
    traced = make_fx(function, decomposition_table=decompositions(), tracing_mode="fake")(*tensors)
    traced.graph.eliminate_dead_code()
    if not cut(traced.graph).parts:
        return None
    return compile_static(traced)(list(tensors))


class Samples(unittest.TestCase):
    def check(self, function, tensors):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                wanted = function(*tensors)
        except Exception:  # a sample that eager refuses
            return
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message="ridge.torch.*")
            got = run_compiled(function, tensors)
        if got is None:
            return
        for a, b in zip(got, wanted, strict=True):
            if b.is_floating_point() and b.dtype != torch.float64:
                torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5, equal_nan=True)
            else:
                torch.testing.assert_close(a, b, equal_nan=True)

    def check_sample(self, operator, sample):
        arguments, spec = torch.utils._pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
        at = [i for i, each in enumerate(arguments) if isinstance(each, torch.Tensor)]

        def function(*tensors):
            given = list(arguments)
            for i, tensor in zip(at, tensors):
                given[i] = tensor
            first, args, kwargs = torch.utils._pytree.tree_unflatten(given, spec)
            return flat(operator(first, *args, **kwargs))

        tensors = [arguments[i].detach() for i in at]
        if any(not each.numel() for each in tensors):
            return
        self.check(function, tensors)
        floats = [i for i, each in enumerate(tensors) if each.is_floating_point()]
        if not IS_FULL or not operator.supports_autograd or not floats:
            return

        def gradients(*given):
            with torch.enable_grad():
                mine = [each.detach().requires_grad_(i in floats) for i, each in enumerate(given)]
                through = [each for each in function(*mine) if each.requires_grad]
                found = torch.autograd.grad(
                    through, [mine[i] for i in floats], [torch.ones_like(each) for each in through], allow_unused=True
                )
            return [each for each in found if each is not None]

        self.check(gradients, tensors)


def add_test(operator):
    def test(self):
        for dtype in DTYPES:
            if dtype not in operator.supported_dtypes("cpu"):
                continue
            torch.manual_seed(0)
            for number, sample in zip(range(SAMPLES), operator.sample_inputs("cpu", dtype)):
                with self.subTest(dtype=dtype, sample=number):
                    self.check_sample(operator, sample)

    name = f"test_{operator.name.replace('.', '_')}_{operator.variant_test_name}".rstrip("_")
    setattr(Samples, name, test)


@unittest.skipUnless(op_db, "PyTorch's tests need expecttest")
class Names(unittest.TestCase):
    def test_are_those_of_operators(self):
        self.assertEqual(sorted(set(NAMES) - {each.name for each in op_db}), [])


for each in op_db:
    if each.name in NAMES:
        add_test(each)


if __name__ == "__main__":
    unittest.main()
