"""Random operator graphs, and a few candidates of each of their nodes with random prices."""

from collections.abc import Sequence

import numpy as np

from graphflow.base.fields import replace
from graphflow.flow.candidates.candidates import Candidate, Candidates
from graphflow.frontends.tensors.called import called_kernel
from graphflow.graph import OperatorGraph
from graphflow.kernels.definitions.movements import movement, selection
from graphflow.kernels.definitions.windows import pooling
from graphflow.kernels.definitions.windows.window import Window
from graphflow.plan import EdgeType
from support.planning.nets import Net

KINDS = ("unary", "unary", "conv", "sum", "concat", "pool", "reduce")

PLANNED = (*2 * (*KINDS, "slice", "transpose"), "section")
"""The kinds of a graph that is planned and not run: a section is code of another runtime."""


def random_graph(
    rng: np.random.Generator, count: int | None = None, kinds: Sequence[str] = KINDS
) -> OperatorGraph:
    """A graph of `count` kernels, by default two to four."""
    net = Net(x=(1, int(rng.choice([4, 6])), 3, 4))
    values = ["x"]
    read: set[str] = set()
    for k in range(int(rng.integers(2, 5)) if count is None else count):
        kind, x, name = str(rng.choice(kinds)), str(rng.choice(values)), f"v{k}"
        shape = net.shape(x)
        same = [v for v in values if net.shape(v) == shape]
        other = str(rng.choice(same))
        if kind == "unary":
            net.unary(name, str(rng.choice(["relu", "exp", "tanh"])), x)
        elif kind == "conv":
            net.conv(name, x, int(rng.choice([4, 5])), int(rng.choice([1, 3])))
        elif kind == "sum":
            net.sum(name, x, other)
        elif kind == "concat":
            net.concat(name, x, other)
        elif kind == "pool":
            net.add(name, pooling.max_pool(shape, Window.of((2, 2), pads=(1, 1, 0, 0))), x)
        elif kind == "slice":
            half = (range(1), range(-(-shape[1] // 2)), *map(range, shape[2:]))
            net.add(name, selection.take_slice(shape, half), x)
        elif kind == "transpose":
            net.add(name, movement.transpose(shape, (0, 2, 3, 1)), x)
        elif kind == "section":
            value = net.graph.values[x]
            net.add(name, called_kernel(name, [value], [value]), x)
        else:
            net.over_channels(name, str(rng.choice(["sum", "max"])), x)
        read |= {x, other} if kind in {"sum", "concat"} else {x}
        values.append(name)
    ends = [v for v in values[1:] if v not in read]
    inner = [v for v in values[1:] if v in read]
    if inner and rng.random() < 0.3:
        ends.append(str(rng.choice(inner)))
    return net.done(*ends)


def some(candidates: Candidates, rng: np.random.Generator, most: int) -> Candidates:
    """A few candidates of each node, one of them no view, at random prices."""
    kept: dict[str, tuple[Candidate, ...]] = {}
    for node, options in candidates.of_node.items():
        plain = [
            k
            for k, c in enumerate(options)
            if not any(
                n.input_aliasing.inside_output or not n.input_aliasing.by_copy
                for n in c.requirements
            )
        ]
        chosen = {int(rng.choice(plain)), *map(int, rng.permutation(len(options))[: most - 1])}
        kept[node] = tuple(
            replace(options[k], seconds=float(rng.uniform(0.1e-6, 1.5e-6))) for k in sorted(chosen)
        )
    edge_types: dict[str, tuple[EdgeType, ...]] = dict(candidates.edge_types)
    return Candidates(kept, edge_types)
