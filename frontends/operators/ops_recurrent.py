"""LSTM, GRU and RNN: one matrix product over the inputs of all time steps, then a kernel that loops
over the sequences, and for each over the steps.

Each direction is a kernel of its own.  Weights that are constants are rearranged at import, other
weights by kernels that transpose and pad.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import numpy as np
from msgspec import Struct

from graphflow.base.dtypes import FLOATING
from graphflow.base.errors import InvalidModel
from graphflow.frontends.nodes.call import Emitters, NodeCall
from graphflow.frontends.nodes.counted import count_also
from graphflow.frontends.tensors.data_extents import Counts
from graphflow.graph import Array
from graphflow.kernels.definitions import elementwise, recurrent, recurrent_kernel
from graphflow.kernels.definitions.linear_algebra import linear
from graphflow.kernels.definitions.movements import movement, selection
from graphflow.tir import PrimFunc

BIAS, LENGTHS, INITIAL_H, INITIAL_C, PEEPHOLES = 3, 4, 5, 6, 7
"""Positions of the optional inputs."""

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
DEFAULTS = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}


class RecurrentLayer(Struct, frozen=True):
    """A recurrent node: its extents, and the tensors that both directions use."""

    call: NodeCall
    gates: int
    steps: int
    batch: int
    features: int
    hidden: int
    flipped: bool
    """Whether the batch axis comes before the time axis (layout=1)."""
    x: str
    """The name of the input as (steps · batch, features), as (steps, batch, features) if a run
    gives a part of it."""
    counts: Counts
    """The extents of the time axis, 0, and of the batch axis, 1, that a run decides."""

    @property
    def rows_shape(self) -> tuple[int, ...]:
        """The axes of `x` before that of the features."""
        steps = (self.steps, self.batch)
        return steps if self.counts else (self.steps * self.batch,)


class ByteProducts(Protocol):
    """The products of a layer whose input and weights are bytes; W and R are (directions, inputs,
    gates · hidden) then."""

    @property
    def x(self) -> str:
        """The quantized input."""

    @property
    def has_zeros(self) -> bool:
        """Whether recurrent weights have zero points."""

    def projected(self, layer: RecurrentLayer, d: int) -> str:
        """`X · W` as float32 of (*rows of x, gates · hidden)."""

    def panels(self, layer: RecurrentLayer, d: int) -> str:
        """R as `Recurrence.byte_weights_shape` says."""

    def further(self, layer: RecurrentLayer, d: int) -> list[str]:
        """What the kernel of a quantized layer reads before the lengths."""


def emit_recurrent(op: str, call: NodeCall, products: ByteProducts | None = None) -> None:
    """Add the kernels of a recurrent layer, whose outputs are the node's.

    `products` are those of a quantized LSTM.
    """
    direction = call.attribute("direction", "forward")
    reverses = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
    if direction not in reverses:
        raise call.invalid(f"direction {direction} does not exist")
    reverse = reverses[direction]
    activations = _activations(call, DEFAULTS[op], len(reverse))
    layer = _layer(call, GATES[op], len(reverse), products)
    clip = call.attribute("clip")
    make: Callable[[recurrent_kernel.Recurrence], PrimFunc]
    if op == "LSTM":
        coupled = call.flag("input_forget")
        make = partial(
            recurrent.lstm,
            peepholes=call.has(PEEPHOLES),
            coupled=coupled,
            quantized=products is not None,
            zeros=products is not None and products.has_zeros,
        )
    elif op == "GRU":
        before = call.flag("linear_before_reset")
        make = partial(recurrent.gru, linear_before_reset=before)
    else:
        before, make = False, recurrent.rnn
    lengths = call.has(LENGTHS)
    kernels: list[tuple[PrimFunc, list[str]]] = []
    for d, backward in enumerate(reverse):
        r = recurrent_kernel.Recurrence(
            layer.steps,
            layer.batch,
            layer.hidden,
            activations[d],
            reverse=backward,
            clip=float(clip) if clip else None,
            lengths=lengths,
            counted=0 in layer.counts,
            dtype=call.dtype(),
        )
        apart = op == "GRU" and before
        inputs = _projected(layer, d, apart, products)
        panels = _panels(layer, d) if products is None else products.panels(layer, d)
        weights = [inputs, panels, _state(layer, INITIAL_H, d)]
        if op == "LSTM":
            weights.append(_state(layer, INITIAL_C, d))
        if op == "LSTM" and call.has(PEEPHOLES):
            held = direction_part(call, PEEPHOLES, d, (3 * layer.hidden,))
            weights.append(_reshaped(call, held, (3, layer.hidden)))
        if apart:
            weights.append(_recurrent_bias(layer, d))
        if products is not None:
            weights += products.further(layer, d)
        if lengths:
            weights.append(call.inputs[LENGTHS])
        if 0 in layer.counts:
            weights.append(layer.counts[0])
        kernels.append((make(r), weights))
    found: list[tuple[str, ...]] = []
    # Behind what all directions read, so that one may run beside the other.
    for d, (func, weights) in enumerate(kernels):
        names = tuple(call.part_name(f"{b.name}{d}", call.name) for b in func.outputs)
        # The kernel has no steps behind those of a run.
        call.emit_all(func, weights, names, f"direction{d}", given={0: (0,)})
        if 0 in layer.counts:
            count_also(call, names[0], {0: layer.counts[0]})
        found.append(names)
    _emit_outputs(layer, found)


def _layer(
    call: NodeCall, gates: int, directions: int, products: ByteProducts | None
) -> RecurrentLayer:
    """The extents of a node, checked, and its input with the time axis first."""
    flipped = call.flag("layout")
    if len(call.shape(0)) != 3 or len(call.shape(1)) != 3 or len(call.shape(2)) != 3:
        raise call.invalid("X, W and R must have three axes")
    x = call.inputs[0] if products is None else products.x
    shape = call.shape(0)
    hidden, features = call.shape(2)[2 if products is None else 1], shape[2]
    stated = call.attribute("hidden_size", hidden)
    width = gates * hidden
    wanted = {
        1: (directions, *((width, features) if products is None else (features, width))),
        2: (directions, *((width, hidden) if products is None else (hidden, width))),
        BIAS: (directions, 2 * gates * hidden),
        LENGTHS: (shape[0] if flipped else shape[1],),
        PEEPHOLES: (directions, 3 * hidden),
    }
    state = (wanted[LENGTHS][0], directions) if flipped else (directions, wanted[LENGTHS][0])
    wanted[INITIAL_H] = wanted[INITIAL_C] = (*state, hidden)
    for position, expected in wanted.items():
        if call.has(position) and call.shape(position) != expected:
            raise call.invalid(
                f"input {call.inputs[position]} has shape "
                f"{call.shape(position)}, not {expected} as {directions} directions of {hidden} "
                f"units and an input of shape {shape} ask for"
            )
    if stated != hidden:
        raise call.invalid(f"hidden_size is {stated}, R has {hidden} units")
    steps, batch = (shape[1], shape[0]) if flipped else (shape[0], shape[1])
    if flipped:
        x = call.transposed(x, (1, 0, 2), "steps_first", _computed(call, x))
    counts = call.context.counted.get(x, {})
    if not counts:
        x = _reshaped(call, x, (steps * batch, features))
    return RecurrentLayer(call, gates, steps, batch, features, hidden, flipped, x, counts)


def _activations(
    call: NodeCall, defaults: tuple[str, ...], directions: int
) -> list[tuple[recurrent_kernel.Activation, ...]]:
    """The activation functions of each direction.

    alpha and beta list the parameters in order, for those functions only that have one.
    """
    given = call.attribute("activations")
    names = [n.decode() if isinstance(n, bytes) else str(n) for n in given or ()]
    names = names or [*defaults] * directions
    if len(names) == len(defaults) < len(defaults) * directions:
        names *= directions
    if len(names) != len(defaults) * directions:
        raise call.invalid(
            f"{len(names)} activations are named, it needs {len(defaults) * directions}"
        )
    values = {key: iter(call.attribute(f"activation_{key}", ()) or ()) for key in ("alpha", "beta")}
    found: list[recurrent_kernel.Activation] = []
    for name in names:
        if name.lower() not in recurrent.ACTIVATIONS:
            raise call.invalid(
                f"activation {name} does not exist; there are {', '.join(recurrent.ACTIVATIONS)}"
            )
        parameters, make = recurrent.ACTIVATIONS[name.lower()]
        chosen = {key: float(next(values[key], n)) for key, n in parameters.items()}
        found.append(partial(make, **chosen))
    width = len(defaults)
    return [tuple(found[d * width : (d + 1) * width]) for d in range(directions)]


def _projected(layer: RecurrentLayer, d: int, apart: bool, products: ByteProducts | None) -> str:
    """`X · Wᵀ + bias` as (steps, batch, gates · hidden).

    The bias is the sum of input and recurrent bias; with `apart` the recurrent bias of the last
    gate is left out.
    """
    call, width = layer.call, layer.gates * layer.hidden
    bias = () if not call.has(BIAS) else (_input_bias(layer, d, apart),)
    if products is not None:
        name = _shifted(layer, products.projected(layer, d), bias)
    elif layer.counts:
        weights = direction_part(call, 1, d, (width, layer.features))
        columns = call.transposed(weights, (1, 0), f"columns{d}", call.dtype())
        rows = (*layer.rows_shape, layer.features)
        func = linear.matmul(rows, (layer.features, width), call.dtype())
        name = _shifted(layer, call.emit_part(func, (layer.x, columns), "product"), bias)
    else:
        func = linear.gemm(
            (*layer.rows_shape, layer.features),
            (width, layer.features),
            (width,) if bias else None,
            transpose_b=True,
            dtype=call.dtype(),
        )
        weights = direction_part(call, 1, d, (width, layer.features))
        name = call.emit_part(func, (layer.x, weights, *bias), "inputs")
    return _reshaped(call, name, (layer.steps, layer.batch, width))


def _shifted(layer: RecurrentLayer, name: str, bias: tuple[str, ...]) -> str:
    """A product of the layer, and the bias where there is one."""
    shape = (*layer.rows_shape, layer.gates * layer.hidden)
    for operand in bias:
        func = elementwise.binary("add", shape, shape[-1:], layer.call.dtype())
        name = layer.call.emit_part(func, (name, operand), "shifted")
    return name


def _input_bias(layer: RecurrentLayer, d: int, apart: bool) -> str:
    call, width = layer.call, layer.gates * layer.hidden
    split = width - layer.hidden if apart else width
    known = call.known(BIAS)
    if known is not None:
        recurrent = np.zeros(width, known.dtype)
        recurrent[:split] = known[d, width : width + split]
        return call.add_part(np.add(known[d, :width], recurrent), f"bias{d}")
    both = direction_part(call, BIAS, d, (2 * width,))
    of_input = call.sliced(both, 0, range(width), "slice", call.dtype())
    summand = call.sliced(both, 0, range(width, width + split), "slice", call.dtype())
    if split < width:
        func = selection.pad((split,), (0,), (width - split,), "constant", 0.0, call.dtype())
        summand = call.emit_part(func, (summand,), "bias")
    func = elementwise.binary("add", (width,), (width,), call.dtype())
    return call.emit_part(func, (of_input, summand), "bias")


def _recurrent_bias(layer: RecurrentLayer, d: int) -> str:
    """The recurrent bias of the last gate, as (hidden)."""
    call, width = layer.call, layer.gates * layer.hidden
    if not call.has(BIAS):
        return call.add_part(np.zeros(layer.hidden, call.dtype()), f"bias{d}")
    both = direction_part(call, BIAS, d, (2 * width,))
    return call.sliced(both, 0, range(2 * width)[-layer.hidden :], "slice", call.dtype())


def _panels(layer: RecurrentLayer, d: int) -> str:
    """R as (panels, hidden, gates, lanes); units that the last panel lacks have zeros."""
    call, gates, hidden = layer.call, layer.gates, layer.hidden
    panels = -(-hidden // recurrent_kernel.LANES)
    more = panels * recurrent_kernel.LANES - hidden
    known = call.known(2)
    if known is not None:
        array: Array = known[d].reshape(gates, hidden, hidden)
        array = np.pad(array, ((0, 0), (0, more), (0, 0)))
        array = array.reshape(gates, panels, recurrent_kernel.LANES, hidden).transpose(1, 3, 0, 2)
        return call.add_part(np.ascontiguousarray(array), f"weights{d}")
    name = direction_part(call, 2, d, (gates * hidden, hidden))
    shape = (gates, hidden, hidden)
    name = _reshaped(call, name, shape)
    if more:
        func = selection.pad(shape, (0, 0, 0), (0, more, 0), "constant", 0.0, call.dtype())
        name = call.emit_part(func, (name,), f"weights{d}")
    name = _reshaped(call, name, (gates, panels, recurrent_kernel.LANES, hidden))
    return call.transposed(name, (1, 3, 0, 2), f"weights{d}", call.dtype())


def _state(layer: RecurrentLayer, position: int, d: int) -> str:
    """The initial state of direction `d` as (batch, hidden); zeros if it is not given."""
    call, shape = layer.call, (layer.batch, layer.hidden)
    if not call.has(position):
        if 1 not in layer.counts:
            return call.add_part(np.zeros(shape, call.dtype()), "start")
        start = call.emit_part(movement.fill(shape, 0.0, call.dtype()), (), "start")
        count_also(call, start, {0: layer.counts[1]})
        return start
    axis = 1 if layer.flipped else 0
    own = call.sliced(call.inputs[position], axis, range(d, d + 1), "start", call.dtype())
    return _reshaped(call, own, shape)


def direction_part(call: NodeCall, position: int, d: int, shape: tuple[int, ...]) -> str:
    """Direction `d` of an input whose first axis is the direction, reshaped to `shape`."""
    known = call.known(position)
    if known is not None:
        return call.add_part(np.ascontiguousarray(known[d].reshape(shape)), f"part{d}")
    name = call.inputs[position]
    if call.shape(position)[0] != 1:
        name = call.sliced(name, 0, range(d, d + 1), f"part{d}", _computed(call, name))
    return _reshaped(call, name, shape)


def _reshaped(call: NodeCall, name: str, shape: tuple[int, ...]) -> str:
    return call.reshaped(name, shape, "reshape", _computed(call, name))


def _computed(call: NodeCall, name: str) -> str:
    """The dtype in which kernels of the layer read a tensor: floats in that of the layer."""
    stored = call.context.graph.values[name].dtype
    return call.dtype() if stored in FLOATING else stored


def _emit_outputs(layer: RecurrentLayer, found: Sequence[tuple[str, ...]]) -> None:
    """Y and the final states, made of those of each direction."""
    call, state = layer.call, (layer.batch, layer.hidden)
    for position, name in enumerate(call.outputs):
        if not name:
            continue
        if position >= len(found[0]):
            raise InvalidModel(f"{call.title} has no output {position}")
        split: tuple[int, ...] = (1, *state)
        axis, order = 0, [1, 0, 2]
        if position == 0:
            axis, split, order = 1, (layer.steps, 1, *state), [2, 0, 1, 3]
        parts = [_reshaped(call, names[position], split) for names in found]
        whole = parts[0]
        if len(parts) > 1:
            func = movement.concat([split] * len(parts), axis, call.dtype())
            split = func.outputs[0].shape
            whole = call.emit_part(func, parts, f"joined{position}")
        if layer.flipped:
            func = movement.transpose(split, order, call.dtype())
        else:
            func = movement.copy(split, call.dtype())
        call.emit(func, (whole,), name, f"output{position}")


OPERATORS: Emitters = {op: partial(emit_recurrent, op) for op in ("LSTM", "GRU", "RNN")}
