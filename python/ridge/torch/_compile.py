# mypy: ignore-errors
"""A graph of AOT autograd as a function: programs of the engine, and ATen's operators between them."""

import logging
import operator
import warnings

import torch
from torch._functorch.aot_autograd import make_boxed_func

from . import _capture
from ._describe import copy_with_strides, is_getitem, is_tensor
from ._partition import cut, is_copy_to_input
from ._program import Program, describe
from ._verify import is_on, verified

log = logging.getLogger("ridge.torch")
_MOST_BINDINGS = 16
_told = set()


def tell_once(message):
    if message not in _told:
        _told.add(message)
        warnings.warn(message, stacklevel=2)


_TRACED = "ridge_traced_strides"  # in the meta of a placeholder whose tensors lie otherwise


def take_strides(module, example_inputs):
    """Saved values lie as the forward graph left them: AOT autograd tells it of the examples, not in the graph."""
    memory = (torch.ops.aten.as_strided.default, torch.ops.aten.as_strided_scatter.default)
    placeholders = module.graph.find_nodes(op="placeholder")
    if len(placeholders) != len(example_inputs):
        return
    for node, example in zip(placeholders, example_inputs):
        value = node.meta.get("val")
        if not is_tensor(value) or not is_tensor(example) or value.stride() == example.stride():
            continue
        node.meta[_TRACED] = value.stride()
        if not any(user.target in memory for user in node.users):  # those mean the places as they were traced
            node.meta["val"] = example


def eager(module):
    """The graph as PyTorch runs it."""
    placeholders = module.graph.find_nodes(op="placeholder")
    moved = [(i, node.meta[_TRACED]) for i, node in enumerate(placeholders) if _TRACED in node.meta]

    def call(args):
        for i, strides in moved:
            args[i] = copy_with_strides(args[i], strides)
        return run(args)

    run = make_boxed_func(module.forward)
    return _boxed(call) if moved else run


def _told_cut(cut_graph):
    """One line for the log: programs, and what stays ATen's."""
    counts = {}
    for node in cut_graph.left():
        counts[str(node.target)] = counts.get(str(node.target), 0) + 1
    nodes = sum(len(part.nodes) for part in cut_graph.parts)
    left = ", ".join(f"{count} {name}" for name, count in sorted(counts.items(), key=lambda item: -item[1]))
    return f"{len(cut_graph.parts)} programs of {nodes} nodes; left to ATen: {left or 'nothing'}"


class _Step(torch.nn.Module):
    """A program as a node of a graph."""

    def __init__(self, program):
        super().__init__()
        self.forward = program


def assemble(module, cut_graph, programs):
    """The module with a node for each program, ATen's nodes between them."""
    ours = {node for part in cut_graph.parts for node in part.nodes}
    steps = [(part.level, 0, i) for i, part in enumerate(cut_graph.parts)]
    nodes = list(module.graph.nodes)
    for i, node in enumerate(nodes):
        if node.op == "call_function" and node not in ours and not (is_getitem(node) and node.args[0] in ours):
            if node in cut_graph.written:
                continue
            level = len(nodes) if is_copy_to_input(node) else cut_graph.levels[node]
            steps.append((level, 1, i))  # inputs are written when nobody reads them any more
    graph, values, as_traced = torch.fx.Graph(), {}, {}
    for node in nodes:
        if node.op in ("placeholder", "get_attr"):
            values[node] = graph.node_copy(node)

    def value_for_aten(node):
        if _TRACED not in node.meta:
            return values[node]
        if node not in as_traced:
            as_traced[node] = graph.call_function(copy_with_strides, (values[node], node.meta[_TRACED]))
        return as_traced[node]

    for _, is_node, i in sorted(steps):
        if is_node:
            values[nodes[i]] = graph.node_copy(nodes[i], value_for_aten)
            continue
        part = cut_graph.parts[i]
        name = f"_ridge_{i}"
        module.add_module(name, _Step(programs[i]))
        result = graph.call_module(name, tuple(values[node] for node in part.inputs))
        for k, node in enumerate(part.outputs):
            values[node] = graph.call_function(operator.getitem, (result, k))
    values.update((node, values[to]) for node, to in cut_graph.written.items())
    graph.output(torch.fx.map_arg(nodes[-1].args[0], values.__getitem__))
    graph.lint()
    return torch.fx.GraphModule(module, graph)


def _direct(module, cut_graph, program):
    """The call of a graph that is one program, without a step between; None where outputs are not of it."""
    part = cut_graph.parts[0]
    placeholders = {node: i for i, node in enumerate(module.graph.find_nodes(op="placeholder"))}
    outputs_of = {node: i for i, node in enumerate(part.outputs)}
    if any(node not in placeholders for node in part.inputs):
        return None
    takes = [placeholders[node] for node in part.inputs]
    gives = []
    for node in _returned(module):
        node = cut_graph.written.get(node, node)
        if node is None:
            gives.append((True, None))
        elif node in outputs_of:
            gives.append((True, outputs_of[node]))
        elif node in placeholders:
            gives.append((False, placeholders[node]))
        else:
            return None

    def call(args):
        outputs = program(*[args[i] for i in takes])
        result = [None if i is None else outputs[i] if is_made else args[i] for is_made, i in gives]
        args.clear()
        return result

    return _boxed(call)


def _boxed(call):
    """`call` as AOT autograd wants it: it takes a list of arguments, and empties it."""
    call._boxed_call = True
    return call


def _guarded(function, module):
    """A function that may fail in its first call, when weights are first seen: then the graph runs."""
    run, has_run, written = function, False, written_inputs(module)

    def call(args):
        nonlocal run, has_run
        if has_run:
            return run(args)
        given, before = list(args), [args[i].clone() for i in written]
        try:
            result = run(args)
        except Exception as error:  # whatever it is, the program goes on
            tell_failure(error)
            run = eager(module)
            for i, old in zip(written, before):
                given[i].copy_(old)
            result = run(given)
        has_run = True
        return result

    return _boxed(call)


def written_inputs(module):
    """The numbers of the inputs that the graph writes to."""
    inputs = module.graph.find_nodes(op="placeholder")
    written = {node.args[0] for node in module.graph.nodes if is_copy_to_input(node)}
    return [i for i, node in enumerate(inputs) if node in written]


def _returned(module):
    return next(node for node in module.graph.nodes if node.op == "output").args[0]


def _report_strides(module, programs):
    """Tells AOT autograd how values that are saved for the backward graph lie."""
    context = torch._guards.TracingContext.try_get()
    if context is None or context.output_strides is None or context.output_strides:
        return
    made_by = {node: program for program in programs for node in program.part.outputs if not program.is_frozen}
    for node in _returned(module):
        if node in made_by:
            context.output_strides.append(made_by[node].strides(node))
        else:
            value = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
            context.output_strides.append(value.stride() if isinstance(value, torch.Tensor) else None)


def compile_static(module, constants=frozenset(), fixed_outputs=None, kind="inference"):
    """A boxed function for a graph without symbolic sizes. `constants`: placeholders that seldom change;
    outputs from number `fixed_outputs` on are saved for the backward graph, and may lie as they are made."""
    cut_graph = cut(module.graph)
    log.info("%s", _told_cut(cut_graph))
    if _capture.is_on():
        _capture.keep(kind, cut_graph, [describe(part, constants) for part in cut_graph.parts])
    if not cut_graph.parts:
        return eager(module)
    returned = _returned(module)
    free = frozenset()
    if fixed_outputs is not None:
        free = frozenset(returned[fixed_outputs:]) - frozenset(returned[:fixed_outputs])
    programs = [Program(part, constants, free) for part in cut_graph.parts]
    _report_strides(module, programs)
    ours = {node for part in cut_graph.parts for node in part.nodes}
    is_whole = len(programs) == 1 and not any(
        node.op == "call_function" and not is_getitem(node) and node not in ours and node not in cut_graph.written
        for node in module.graph.nodes
    )
    direct = _direct(module, cut_graph, programs[0]) if is_whole else None
    if direct is None:
        direct = make_boxed_func(assemble(module, cut_graph, programs).forward)
    # A graph that writes to its inputs cannot run twice; those of an optimizer are compiled by now, and too large
    # to be kept.
    is_compiled = not any(program.is_frozen for program in programs)
    function = direct if is_compiled and written_inputs(module) else _guarded(direct, module)
    return _boxed(verified(function, module, cut_graph.parts, written_inputs(module))) if is_on() else function


def _has_symbols(module):
    for node in module.graph.find_nodes(op="placeholder"):
        value = node.meta.get("val")
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return True
        if isinstance(value, torch.Tensor) and not is_static(value):
            return True
    return False


def is_static(value):
    return all(type(size) is int for size in (*value.shape, *value.stride()))


def _traced(module, args, kind):
    """The function of a graph with symbolic sizes for these arguments: one traced for their sizes."""
    from torch.fx.experimental.proxy_tensor import make_fx

    tensors = [i for i, each in enumerate(args) if isinstance(each, torch.Tensor)]

    def of_tensors(*given):
        all_of = list(args)
        for i, tensor in zip(tensors, given):
            all_of[i] = tensor
        return module(*all_of)

    try:
        traced = make_fx(of_tensors, tracing_mode="fake")(*[args[i] for i in tensors])
        traced.graph.eliminate_dead_code()
        function = compile_static(traced, kind=kind)
    except Exception as error:  # whatever it is, the program goes on
        tell_failure(error)
        return eager(module)
    sizes = [None if isinstance(each, torch.Tensor) else each for each in args]

    def call(given):
        some = [each for each, size in zip(given, sizes) if size is None]
        given.clear()
        return function(some)

    return call


def _bound(module, kind):
    """A graph with symbolic sizes: a function for each tuple of sizes, made when it first comes."""
    functions = {}

    def call(args):
        key = tuple((each.shape, each.stride()) if isinstance(each, torch.Tensor) else each for each in args)
        function = functions.pop(key, None)
        if function is None:
            function = _traced(module, list(args), kind)
        functions[key] = function  # the one used last stands last
        while len(functions) > _MOST_BINDINGS:
            del functions[next(iter(functions))]
        return function(args)

    return _boxed(call)


def tell_failure(error):
    log.info("a graph was not compiled", exc_info=error)
    tell_once(f"ridge.torch: a graph stays PyTorch's, for it was not compiled: {type(error).__name__}: {error}")


def compile_graph(module, constants=frozenset(), fixed_outputs=None, kind="inference"):
    """A boxed function; the graph itself where it cannot be compiled, which is told once."""
    devices = {
        node.meta["val"].device.type
        for node in module.graph.nodes
        if isinstance(node.meta.get("val"), torch.Tensor)
    }
    if devices - {"cpu", "meta"}:
        tell_once(f"ridge.torch: a graph on {', '.join(sorted(devices))} stays PyTorch's: Ridge takes the CPU alone")
        return eager(module)
    try:
        if _has_symbols(module):
            return _bound(module, kind)
        return compile_static(module, constants, fixed_outputs, kind)
    except Exception as error:  # whatever it is, the program goes on
        tell_failure(error)
        return eager(module)
