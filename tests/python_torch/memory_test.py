"""Memory of compiled steps: it is used again, never while somebody else has it, and it does not grow."""

import gc
import os
import resource
import signal
import traceback
import unittest
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import torch
from case import IS_FULL, Case
from torch import nn

import ridge.torch
from ridge.torch._memory import Layout, Pool, bytes_of, pool
from ridge.torch._recompute import partition, saved_bytes

_SIDE = 512
_BYTES = _SIDE * _SIDE * 4  # of a matrix: tensors from that size on are kept
_MATRIX = (_SIDE, _SIDE), (_SIDE, 1), torch.float32
_STEPS = 1000 if IS_FULL else 100


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def strided(pool, shape, strides, dtype):
    """A tensor in a piece of its own."""
    piece = pool.take(bytes_of(shape, dtype))
    tensor = piece.base(dtype).as_strided(shape, strides)
    pool.keep(piece)
    return tensor


def block(pool, types):
    """Tensors of these types in one piece."""
    layout = Layout(types)
    piece, tensors = pool.take(layout.size), []
    bases = [piece.base(dtype) for _, _, dtype in types]
    for (shape, strides, dtype), base, offset in zip(types, bases, layout.offsets):
        tensors.append(base.as_strided(shape, strides, offset // dtype.itemsize))
    pool.keep(piece)
    return tensors


def address_of(pool):
    """Where a matrix lies that is made, and gone at once."""
    return strided(pool, *_MATRIX).data_ptr()


def layers(count=2, **options):
    return nn.Sequential(*[nn.Sequential(nn.Linear(_SIDE, _SIDE, **options), nn.GELU()) for _ in range(count)])


class Pieces(Case):
    def test_a_piece_is_used_again(self):
        pool = Pool()
        first = address_of(pool)
        self.assertEqual([address_of(pool) for _ in range(3)], [first] * 3)
        tensor = strided(pool, (_SIDE, 2, _SIDE), (1, _SIDE, 2 * _SIDE), torch.float16)
        self.assertEqual((tensor.data_ptr(), tensor.stride()), (first, (1, _SIDE, 2 * _SIDE)))
        self.assertEqual(tensor.untyped_storage().nbytes(), _BYTES)

    def test_nobody_else_has_it(self):
        for hold in (
            lambda tensor: tensor,
            lambda tensor: tensor[3:].t(),
            lambda tensor: tensor.detach(),
            lambda tensor: tensor.untyped_storage(),
            lambda tensor: tensor.numpy(),
            lambda tensor: torch.utils.dlpack.to_dlpack(tensor),
            lambda tensor: (tensor * torch.ones(1, requires_grad=True)).grad_fn,
        ):
            pool = Pool()
            tensor = strided(pool, *_MATRIX)
            first, held = tensor.data_ptr(), hold(tensor)
            del tensor
            self.assertNotEqual(address_of(pool), first)
            del held
            both = [strided(pool, *_MATRIX) for _ in range(2)]
            self.assertIn(first, [tensor.data_ptr() for tensor in both])

    def test_what_became_another_is_left_alone(self):
        for change in (lambda tensor: tensor.untyped_storage().resize_(0), lambda tensor: tensor.share_memory_()):
            pool = Pool()
            change(strided(pool, *_MATRIX))
            tensor = strided(pool, *_MATRIX)
            self.assertEqual((tensor.untyped_storage().nbytes(), tensor.is_shared()), (_BYTES, False))

    def test_it_keeps_no_more_than_was_in_use(self):
        pool = Pool()
        address_of(pool)
        self.assertEqual(pool.idle_bytes(), _BYTES)
        held = strided(pool, (2 * _SIDE, _SIDE), (_SIDE, 1), torch.float32)
        self.assertEqual(pool.idle_bytes(), 0)  # it stands in the place of the first
        del held
        self.assertEqual(pool.idle_bytes(), 2 * _BYTES)
        pool.leave(pool.workspace(3 * _BYTES))
        self.assertEqual(pool.idle_bytes(), 3 * _BYTES)
        pool.leave(pool.workspace(_BYTES))
        self.assertEqual(pool.idle_bytes(), 3 * _BYTES)
        pool.empty()
        self.assertEqual(pool.idle_bytes(), 0)
        held = [strided(pool, *_MATRIX) for _ in range(100)]
        del held
        self.assertLess(pool.idle_bytes(), 20 * _BYTES)

    def test_tensors_of_a_block(self):
        pool, types = Pool(), [((3, 4), (1, 3), torch.float32), ((5,), (1,), torch.bool), _MATRIX]
        first = block(pool, types)
        self.assertEqual([x.shape for x in first], [(3, 4), (5,), (_SIDE, _SIDE)])
        self.assertEqual(first[0].stride(), (1, 3))
        self.assertEqual({x.data_ptr() % 64 for x in first}, {0})
        address, last = first[0].data_ptr(), first[2].t()
        del first
        self.assertNotEqual(block(pool, types)[0].data_ptr(), address)  # one of them is still there
        del last
        self.assertIn(address, [tensors[0].data_ptr() for tensors in [block(pool, types) for _ in range(2)]])

    def test_threads(self):
        pool = Pool()

        def run(number):
            for _ in range(50):
                tensors = [strided(pool, *_MATRIX).fill_(number + i) for i in range(2)]
                if [bool((tensor == number + i).all()) for i, tensor in enumerate(tensors)] != [True, True]:
                    return False
            return True

        with ThreadPoolExecutor(4) as threads:
            self.assertTrue(all(threads.map(run, range(0, 40, 10))))

    def test_out_of_memory(self):
        pool, made = Pool(), torch.UntypedStorage
        address_of(pool)
        large = (2 * _SIDE, _SIDE), (_SIDE, 1), torch.float32
        tries = []

        def make(size):
            tries.append(pool.idle_bytes())
            if len(tries) == 1:
                raise RuntimeError("no room")
            return made(size)

        pool.leave(pool.workspace(8 * _BYTES))
        with mock.patch("torch.UntypedStorage", make):
            strided(pool, *large)
        self.assertEqual((tries[1], pool.idle_bytes()), (0, 2 * _BYTES))  # all that was idle went back
        pool.empty()
        with mock.patch("torch.UntypedStorage", side_effect=RuntimeError("no room")):
            with self.assertRaisesRegex(RuntimeError, "no room"):
                strided(pool, *large)
        self.assertEqual(strided(pool, *large).shape, (2 * _SIDE, _SIDE))


class Steps(Case):
    def setUp(self):
        super().setUp()
        ridge.torch.empty_cache()
        gc.collect()
        self.model = layers()
        self.weights = list(self.model.parameters())
        self.inputs = [torch.randn(_SIDE // 2, _SIDE) for _ in range(2)]

    def loss(self, run, x):
        return run(x).square().mean()

    def gradients(self, run, x, **options):
        return torch.autograd.grad(self.loss(run, x), self.weights, **options)

    def assert_steady(self, step):
        """Memory after many steps is that after 20."""
        for _ in range(20):
            step()
        gc.collect()
        idle, resident = pool.idle_bytes(), resident_bytes()
        for _ in range(_STEPS - 20):
            step()
        gc.collect()
        self.assertEqual(pool.idle_bytes(), idle)
        self.assertLess(resident_bytes() - resident, 4 * _BYTES)

    def test_what_a_user_has_stays(self):
        compiled, x = self.compiled(self.model), self.inputs[0]
        held = []
        for _ in range(4):
            y = compiled(x)
            gradients = torch.autograd.grad(y.square().mean(), self.weights)
            held += [(tensor, tensor.clone()) for tensor in (y.detach(), *gradients)]
            with torch.no_grad():
                for weight, gradient in zip(self.weights, gradients):
                    weight.sub_(gradient, alpha=0.1)
        for tensor, copy in held:
            self.assertTrue(torch.equal(tensor, copy))

    def test_backward_twice_and_out_of_order(self):
        compiled = self.compiled(self.model)
        wanted = [self.gradients(self.model, x) for x in self.inputs]
        for _ in range(2):
            losses = [self.loss(compiled, x) for x in self.inputs]
            for loss, gradients in zip(losses, wanted):
                for _ in range(2):
                    got = torch.autograd.grad(loss, self.weights, retain_graph=True)
                    self.assert_near(got, gradients)
            self.assert_near(torch.autograd.grad(losses[0], self.weights), wanted[0])

    def test_gradients_add_up(self):
        compiled = self.compiled(self.model)
        wanted = [a + b for a, b in zip(*(self.gradients(self.model, x) for x in self.inputs))]

        def step():
            self.model.zero_grad()
            for x in self.inputs:
                self.loss(compiled, x).backward()

        for _ in range(3):
            step()
            self.assert_near([weight.grad for weight in self.weights], wanted)

    def test_saved_tensors_hooks(self):
        compiled, x = self.compiled(self.model), self.inputs[0]
        wanted = self.gradients(self.model, x)
        seen = []

        def pack(tensor):
            seen.append((tensor, tensor.clone()))
            return len(seen) - 1

        for hooks in (
            torch.autograd.graph.saved_tensors_hooks(pack, lambda number: seen[number][0]),
            torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor.numpy().copy(), torch.from_numpy),
            torch.autograd.graph.save_on_cpu(),
        ):
            with hooks:
                loss = self.loss(compiled, x)
            self.assert_near(torch.autograd.grad(loss, self.weights), wanted)
        self.assertTrue(seen)
        for tensor, copy in seen:
            self.assertTrue(torch.equal(tensor, copy))

    def test_exception_in_backward(self):
        first, second = (self.compiled(layer) for layer in self.model)
        wanted = self.gradients(self.model, self.inputs[0])

        def step(fails=True):
            middle = first(self.inputs[0])
            if fails:
                middle.register_hook(mock.Mock(side_effect=ValueError("not today")))
            return torch.autograd.grad(second(middle).square().mean(), self.weights)

        def failing():
            with self.assertRaisesRegex(ValueError, "not today"):
                step()

        self.assert_steady(failing)
        self.assert_near(step(fails=False), wanted)

    def test_forward_without_backward(self):
        compiled = self.compiled(nn.Sequential(nn.Linear(_SIDE, 64), nn.GELU(), nn.Linear(64, 8)))
        x = self.inputs[0]
        for _ in range(20):
            compiled(x)
        idle, resident = pool.idle_bytes(), resident_bytes()
        for _ in range(980):
            compiled(x)
        self.assertEqual(pool.idle_bytes(), idle)
        self.assertLess(resident_bytes() - resident, 4 * _BYTES)

    def test_steps(self):
        model = layers(bias=False)
        compiled, optimizer = self.compiled(model), torch.optim.SGD(model.parameters(), lr=0.1)

        def step():
            optimizer.zero_grad()
            self.loss(compiled, self.inputs[0]).backward()
            optimizer.step()

        self.assert_steady(step)

    def in_a_child(self, body):
        """`body` returns True in a forked process. PyTorch runs no backward pass there, and must not ask for OpenMP's
        threads, which are gone."""
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            try:
                os._exit(0 if body() else 1)
            except BaseException:
                traceback.print_exc()
                os._exit(2)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)

    def test_fork(self):
        compiled, x = self.compiled(self.model), self.inputs[0]
        wanted = self.gradients(compiled, x)
        held = compiled(x)
        output = held.detach().numpy().tobytes()

        def body():
            again = [compiled(x).detach().numpy().tobytes() for _ in range(3)]
            return again == [output] * 3 and held.detach().numpy().tobytes() == output

        self.in_a_child(body)
        self.assert_near(self.gradients(compiled, x), wanted)

    def test_no_memory_is_left(self):
        compiled, x = self.compiled(self.model), self.inputs[0]
        output = compiled(x).detach().numpy().tobytes()

        def body():
            compiled(x)  # it starts threads
            with open("/proc/self/statm") as file:
                size = int(file.read().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (size + 32 * _BYTES, resource.RLIM_INFINITY))
            held = []
            try:
                while True:  # what the process has freed goes first
                    held.append(compiled(x))  # with what it saved
            except (RuntimeError, MemoryError):
                held.clear()
            return compiled(x).detach().numpy().tobytes() == output

        self.in_a_child(body)


class Limits(Case):
    def saved(self, model, x, limit):
        """The bytes that a step saves, and its gradients."""
        torch._dynamo.reset()
        sizes = []

        def noted(*args, **others):
            forward, backward = partition(*args, **others)
            sizes.append(saved_bytes(forward, others["num_fwd_outputs"]))
            return forward, backward

        with mock.patch("ridge.torch._backend.partition", noted):
            torch.manual_seed(5)
            y = self.compiled(model, memory_limit=limit)(x)
        return sum(sizes), torch.autograd.grad(y.square().mean(), list(model.parameters()))

    def test_values_are_computed_again(self):
        model, x = layers(4), torch.randn(64, _SIDE)
        most, wanted = self.saved(model, x, None)
        last = most
        for limit in (most, most // 2, most // 4):
            size, gradients = self.saved(model, x, limit)
            self.assertLessEqual(size, limit)
            self.assertLessEqual(size, last)
            self.assert_near(gradients, wanted)
            last = size
        self.assertGreater(last, 0)  # no more than is asked for

    def test_random_numbers_are_drawn_once(self):
        layer = nn.Sequential(nn.Linear(_SIDE, _SIDE), nn.Dropout(0.5), nn.GELU())
        model, x = nn.Sequential(layer, nn.Linear(_SIDE, _SIDE)), torch.randn(64, _SIDE)
        most, wanted = self.saved(model, x, None)
        size, gradients = self.saved(model, x, most // 2)
        self.assertLessEqual(size, most // 2)
        self.assert_near(gradients, wanted)

    def test_a_limit_that_cannot_be_held_is_told(self):
        layer = nn.Sequential(nn.Linear(_SIDE, _SIDE), nn.Dropout(0.5))
        with self.assertWarnsRegex(UserWarning, "saves [1-9][0-9]* bytes.*more than memory_limit=0"):
            self.saved(layer, torch.randn(64, _SIDE), 0)
        with self.assertRaisesRegex(Exception, "memory_limit is a number of bytes; got '1G'"):
            self.saved(layer, torch.randn(64, _SIDE), "1G")


if __name__ == "__main__":
    unittest.main()
