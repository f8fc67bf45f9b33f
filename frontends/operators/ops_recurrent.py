"""LSTM, GRU and RNN: one matrix product over the inputs of all time steps, then a kernel that loops
over the sequences, and for each over the steps.

Each direction is a kernel of its own.  Weights that are constants are rearranged at import, other
weights by kernels that transpose and pad.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from graphflow.base.errors import InvalidModel
from graphflow.frontends.nodes.call import Emitters, NodeCall
from graphflow.frontends.nodes.counted import count_also
from graphflow.frontends.tensors.data_extents import Counts
from graphflow.graph import Array
from graphflow.kernels.definitions import elementwise, recurrent
from graphflow.kernels.definitions.linear_algebra import linear
from graphflow.kernels.definitions.movements import movement, selection
from graphflow.tir import BinaryOp, PrimFunc

BIAS, LENGTHS, INITIAL_H, INITIAL_C, PEEPHOLES = 3, 4, 5, 6, 7
"""Positions of the optional inputs."""

FACTORS, SCALES = 8, 9
"""Positions of the further inputs of a quantized layer."""

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
DEFAULTS = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}


@dataclass(frozen=True, slots=True)
class _Layer:
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


def emit_recurrent(op: str, call: NodeCall, quantized: bool = False) -> None:
    """Add the kernels of a recurrent layer, whose outputs are the node's.

    If `quantized`, input, weights and recurrent weights are whole numbers, and inputs `FACTORS` and
    `SCALES`, of shape (directions, gates · hidden), say by what the products are multiplied.
    """
    direction = call.attribute("direction", "forward")
    reverses = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
    if direction not in reverses:
        raise call.invalid(f"direction {direction} does not exist")
    reverse = reverses[direction]
    activations = _activations(call, DEFAULTS[op], len(reverse))
    layer = _layer(call, GATES[op], len(reverse))
    clip = call.attribute("clip")
    make: Callable[[recurrent.Recurrence], PrimFunc]
    if op == "LSTM":
        coupled = call.flag("input_forget")
        make = partial(
            recurrent.lstm, peepholes=call.has(PEEPHOLES), coupled=coupled, quantized=quantized
        )
    elif op == "GRU":
        before = call.flag("linear_before_reset")
        make = partial(recurrent.gru, linear_before_reset=before)
    else:
        before, make = False, recurrent.rnn
    lengths = call.has(LENGTHS)
    kernels: list[tuple[PrimFunc, list[str]]] = []
    for d, backward in enumerate(reverse):
        r = recurrent.Recurrence(
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
        inputs = _projected(layer, d, apart, quantized)
        weights = [inputs, _panels(layer, d), _state(layer, INITIAL_H, d)]
        if op == "LSTM":
            weights.append(_state(layer, INITIAL_C, d))
        if op == "LSTM" and call.has(PEEPHOLES):
            held = _part(call, PEEPHOLES, d, (3 * layer.hidden,))
            weights.append(_reshaped(call, held, (3, layer.hidden)))
        if apart:
            weights.append(_recurrent_bias(layer, d))
        if quantized:
            weights.append(_part(call, SCALES, d, (layer.gates * layer.hidden,)))
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


def _layer(call: NodeCall, gates: int, directions: int) -> _Layer:
    """The extents of a node, checked, and its input with the time axis first."""
    flipped = call.flag("layout")
    if len(call.shape(0)) != 3 or len(call.shape(1)) != 3 or len(call.shape(2)) != 3:
        raise call.invalid("X, W and R must have three axes")
    x, shape = call.inputs[0], call.shape(0)
    hidden, features = call.shape(2)[2], shape[2]
    stated = call.attribute("hidden_size", hidden)
    wanted = {
        1: (directions, gates * hidden, features),
        2: (directions, gates * hidden, hidden),
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
        x = call.transposed(x, (1, 0, 2), "steps_first", call.dtype())
    counts = call.context.counted.get(x, {})
    if not counts:
        x = _reshaped(call, x, (steps * batch, features))
    return _Layer(call, gates, steps, batch, features, hidden, flipped, x, counts)


def _activations(
    call: NodeCall, defaults: tuple[str, ...], directions: int
) -> list[tuple[recurrent.Activation, ...]]:
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
    found: list[recurrent.Activation] = []
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


def _projected(layer: _Layer, d: int, apart: bool, scaled: bool) -> str:
    """`X · Wᵀ + bias` as (steps, batch, gates · hidden).

    The bias is the sum of input and recurrent bias; with `apart` the recurrent bias of the last
    gate is left out.  If `scaled`, the product is multiplied by the factors of the layer.
    """
    call, width, rows = layer.call, layer.gates * layer.hidden, layer.steps * layer.batch
    weights = _part(call, 1, d, (width, layer.features))
    bias = () if not call.has(BIAS) else (_input_bias(layer, d, apart),)
    if layer.counts:
        return _counted_projection(layer, d, weights, bias, scaled)
    func = linear.gemm(
        (rows, layer.features),
        (width, layer.features),
        (width,) if bias and not scaled else None,
        transpose_b=True,
        dtype=call.dtype(),
    )
    if not scaled:
        name = call.emit_part(func, (layer.x, weights, *bias), "inputs")
    else:
        product = call.emit_part(func, (layer.x, weights), "product")
        factors = _part(call, FACTORS, d, (width,))
        func = elementwise.binary("mul", (rows, width), (width,))
        name = call.emit_part(func, (product, factors), "inputs")
        if bias:
            func = elementwise.binary("add", (rows, width), (width,))
            name = call.emit_part(func, (name, *bias), "shifted")
    return _reshaped(call, name, (layer.steps, layer.batch, width))


def _counted_projection(
    layer: _Layer, d: int, weights: str, bias: tuple[str, ...], scaled: bool
) -> str:
    """The same with the time and the batch axis apart, as a run gives a part of them."""
    call, width = layer.call, layer.gates * layer.hidden
    shape, dtype = (layer.steps, layer.batch, width), call.dtype()
    columns = call.transposed(weights, (1, 0), f"columns{d}", dtype)
    func = linear.matmul((*shape[:2], layer.features), (layer.features, width), dtype)
    name = call.emit_part(func, (layer.x, columns), "product")
    factors = (_part(call, FACTORS, d, (width,)),) if scaled else ()
    combines: tuple[tuple[tuple[str, ...], BinaryOp], ...] = ((factors, "mul"), (bias, "add"))
    for operands, op in combines:
        for operand in operands:
            func = elementwise.binary(op, shape, (width,), dtype)
            name = call.emit_part(func, (name, operand), op)
    return name


def _input_bias(layer: _Layer, d: int, apart: bool) -> str:
    call, width = layer.call, layer.gates * layer.hidden
    split = width - layer.hidden if apart else width
    known = call.known(BIAS)
    if known is not None:
        recurrent = np.zeros(width, known.dtype)
        recurrent[:split] = known[d, width : width + split]
        return call.add_part(np.add(known[d, :width], recurrent), f"bias{d}")
    both = _part(call, BIAS, d, (2 * width,))
    of_input = call.sliced(both, 0, range(width), "slice", call.dtype())
    summand = call.sliced(both, 0, range(width, width + split), "slice", call.dtype())
    if split < width:
        func = selection.pad((split,), (0,), (width - split,), "constant", 0.0, call.dtype())
        summand = call.emit_part(func, (summand,), "bias")
    func = elementwise.binary("add", (width,), (width,), call.dtype())
    return call.emit_part(func, (of_input, summand), "bias")


def _recurrent_bias(layer: _Layer, d: int) -> str:
    """The recurrent bias of the last gate, as (hidden)."""
    call, width = layer.call, layer.gates * layer.hidden
    if not call.has(BIAS):
        return call.add_part(np.zeros(layer.hidden, call.dtype()), f"bias{d}")
    both = _part(call, BIAS, d, (2 * width,))
    return call.sliced(both, 0, range(2 * width)[-layer.hidden :], "slice", call.dtype())


def _panels(layer: _Layer, d: int) -> str:
    """R as (panels, hidden, gates, lanes); units that the last panel lacks have zeros."""
    call, gates, hidden = layer.call, layer.gates, layer.hidden
    panels = -(-hidden // recurrent.LANES)
    more = panels * recurrent.LANES - hidden
    known = call.known(2)
    if known is not None:
        array: Array = known[d].reshape(gates, hidden, hidden)
        array = np.pad(array, ((0, 0), (0, more), (0, 0)))
        array = array.reshape(gates, panels, recurrent.LANES, hidden).transpose(1, 3, 0, 2)
        return call.add_part(np.ascontiguousarray(array), f"weights{d}")
    name = _part(call, 2, d, (gates * hidden, hidden))
    shape = (gates, hidden, hidden)
    name = _reshaped(call, name, shape)
    if more:
        func = selection.pad(shape, (0, 0, 0), (0, more, 0), "constant", 0.0, call.dtype())
        name = call.emit_part(func, (name,), f"weights{d}")
    name = _reshaped(call, name, (gates, panels, recurrent.LANES, hidden))
    return call.transposed(name, (1, 3, 0, 2), f"weights{d}", call.dtype())


def _state(layer: _Layer, position: int, d: int) -> str:
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


def _part(call: NodeCall, position: int, d: int, shape: tuple[int, ...]) -> str:
    """Direction `d` of an input whose first axis is the direction, reshaped to `shape`."""
    known = call.known(position)
    if known is not None:
        return call.add_part(np.ascontiguousarray(known[d].reshape(shape)), f"part{d}")
    name = call.inputs[position]
    if call.shape(position)[0] != 1:
        name = call.sliced(name, 0, range(d, d + 1), f"part{d}", call.dtype())
    return _reshaped(call, name, shape)


def _reshaped(call: NodeCall, name: str, shape: tuple[int, ...]) -> str:
    return call.reshaped(name, shape, "reshape", call.dtype())


def _emit_outputs(layer: _Layer, found: Sequence[tuple[str, ...]]) -> None:
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
