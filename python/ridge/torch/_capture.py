# mypy: ignore-errors
"""`ridge capture`: each graph that is compiled, as a file in the folder that RIDGE_TORCH_CAPTURE names."""

import collections
import itertools
import json
import os

import torch

_numbers = itertools.count()


def is_on():
    return bool(os.environ.get("RIDGE_TORCH_CAPTURE"))


def keep(kind, cut_graph, texts):
    """Keeps a graph: the text of each program, and what stays ATen's. A folder that is gone is no trouble of the
    program's."""
    left = collections.Counter((str(node.target), reason) for node, reason in cut_graph.left().items())
    graph = {
        "kind": kind,
        "torch": torch.__version__,
        "left": [[name, count, reason] for (name, reason), count in left.most_common()],
        "programs": [json.loads(text) for text in texts],
    }
    path = os.path.join(os.environ["RIDGE_TORCH_CAPTURE"], f"{os.getpid():08}-{next(_numbers):06}.json")
    try:
        with open(path + ".part", "w", encoding="utf-8") as file:
            json.dump(graph, file, separators=(",", ":"))
        os.replace(path + ".part", path)
    except OSError:
        pass
