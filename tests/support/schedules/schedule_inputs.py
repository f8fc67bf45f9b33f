"""Inputs of scheduled kernels, in the layouts that steps give parameters, with poison around them.

In: a kernel, the steps of a schedule, and a `Dice`.  Out: arrays of which everything holds that the
kernel and the steps assume; boxes with them, whose padding holds what was stated of it, else poison
that depends on the run; and from boxes the arrays again, with their padding checked.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphflow import tir
from graphflow.layout import Layout, physical_vars
from graphflow.schedule import (
    PadFunction,
    ScheduleStep,
    assume_finite,
    assume_reciprocal,
    divide_loop,
    transform_layout,
)
from support.fuzz.fuzz_test import Failure
from support.kernels.schedule_kernels import Dice, Kernel
from support.kernels.sized_extents import value_of
from support.placing import positions

Array = np.ndarray[Any, Any]
Chain = tuple[tuple[Layout, Any], ...]
"""Layouts of a parameter with their padding, in the order in which it was given them."""

DRAWN_SCALARS = 3
"""Values of scalars that a case runs for besides the least and the greatest."""
MOST_TILE = 9
SPECIALS = (np.inf, -np.inf, np.nan, -0.0, 0.0)
WILD = (*SPECIALS, 1e38, -1e38, 1e-40, -1e-40, 0.3, -1.7)


def chains(definition: tir.PrimFunc, steps: Sequence[ScheduleStep]) -> dict[str, Chain]:
    """Where the parameters live after the steps."""
    found: dict[str, Chain] = {p.buffer.name: () for p in definition.params}
    for step in steps:
        if step.primitive is transform_layout and step.arguments[0] in found:
            name, layout, pad = step.arguments
            found[name] = (*found[name], (layout, pad))
    return found


def inputs_of(kernel: Kernel, steps: Sequence[ScheduleStep], dice: Dice) -> dict[str, Array]:
    """Random inputs of which everything holds that the kernel and the steps assume."""
    finite = {s.arguments[0] for s in steps if s.primitive is assume_finite}
    positive_zero = {s.arguments[0] for s in steps if s.primitive is assume_reciprocal}
    wrapped = {
        name
        for name, chain in chains(kernel.func, steps).items()
        for _, pad in chain
        if is_wrapped(pad)
    }
    special = dice.chance(0.6) and not kernel.rounded
    arrays = {}
    for buffer in (p.buffer for p in kernel.func.params if p.role is not tir.Role.OUTPUT):
        array = random_array(dice, buffer.dtype, buffer.shape, special, kernel.exact)
        if kernel.minus_zero and buffer.dtype in tir.FLOATS and dice.chance(0.6):
            array = np.full(buffer.shape, -0.0, array.dtype)
        limit = kernel.limits.get(buffer.name, "")
        if buffer.dtype in tir.FLOATS:
            if limit in ("nonnegative", "small") or buffer.name in finite | wrapped:
                array = np.where(np.isfinite(array), array, 1).astype(array.dtype)
            if buffer.name in positive_zero:
                with np.errstate(all="ignore"):
                    array = np.where(1 / array > -np.inf, array, 1).astype(array.dtype)
        if limit == "nonnegative":
            array = np.where(array >= 0, array, 2).astype(array.dtype)
        if limit == "small":
            array = np.where((array <= 5) & (array >= -5), array, -5).astype(array.dtype)
        arrays[buffer.name] = array
    return arrays


def scalars_of(kernel: Kernel, steps: Sequence[ScheduleStep], dice: Dice) -> list[dict[str, int]]:
    """Values of the scalars: all least, all greatest, and some on and beside borders of tiles."""
    if not kernel.sizes:
        return [{}]
    tiles = {s.arguments[1] for s in steps if s.primitive is divide_loop and s.arguments[1] > 1}
    for step in steps:
        if step.primitive is transform_layout and isinstance(step.arguments[1], Layout):
            tiles |= {n for n in step.arguments[1].physical_shape if 1 < n < MOST_TILE}
    found = [{name: end[k] for name, end in kernel.sizes.items()} for k in (0, 1)]
    for _ in range(DRAWN_SCALARS):
        tile = dice.among(sorted(tiles) or [2, 3, 4])
        chosen = {}
        for name, (least, most) in kernel.sizes.items():
            value = tile * dice.between(0, most // tile) + dice.among((0, 0, 1, -1))
            chosen[name] = min(max(value, least), most)
        found.append(chosen)
    return [scalars for k, scalars in enumerate(found) if scalars not in found[:k]]


def inputs_for(
    kernel: Kernel,
    steps: Sequence[ScheduleStep],
    inputs: Mapping[str, Array],
    scalars: Mapping[str, int],
    run: int,
) -> dict[str, Array]:
    """The inputs where the scalars have these values: poison behind their extents, or what the
    kernel assumes of these elements."""
    promised = {s.arguments[0] for s in steps if s.primitive in (assume_finite, assume_reciprocal)}
    wrapped = [
        pad for chain in chains(kernel.func, steps).values() for _, pad in chain if is_wrapped(pad)
    ]
    found = dict(inputs)
    for name, array in inputs.items():
        limit = kernel.limits.get(name, "")
        if limit.startswith("padded"):
            _, n, pad = limit.split()
            found[name] = array.copy()
            found[name].reshape(-1)[value_of(n, scalars) :] = number_of(pad)
        elif name in kernel.extents and not limit:
            kept = tuple(slice(max(value_of(n, scalars), 0)) for n in kernel.extents[name])
            if name in kernel.behind:
                value = number_of(kernel.behind[name].partition("(")[2][:-1])
            else:
                value = poison_of(array.dtype, 1 if name in promised or wrapped else run)
            found[name] = np.full_like(array, value)
            found[name][kept] = array[kept]
    return found


def number_of(text: str) -> Any:
    if text in ("True", "False"):
        return text == "True"
    return np.array(float(text) if "." in text or "inf" in text else int(text))


def random_array(dice: Dice, dtype: str, shape: Sequence[int], special: bool, exact: bool) -> Array:
    kind = tir.DTYPES[dtype]
    if kind.kind == "b":
        return dice.rng.random(shape) < 0.5
    low = 0 if kind.kind == "u" else -3
    with np.errstate(all="ignore"):
        array = dice.rng.integers(low, 4, shape).astype(kind)
        if kind.kind == "f" and not exact and dice.chance(0.5):
            array = (dice.rng.standard_normal(shape) * 3).astype(kind)
        if special:
            odd: Sequence[Any] = SPECIALS if exact else WILD
            if kind.kind != "f":
                odd = (np.iinfo(kind).min, np.iinfo(kind).max)
            where = dice.rng.random(shape) < 0.2
            chosen = np.array(odd).astype(kind)[dice.rng.integers(0, len(odd), shape)]
            array = np.where(where, chosen, array)
    return np.asarray(array, kind)


POISONS = {"f": (np.nan, -42.0), "b": (False, True), "i": (None, 77), "u": (None, 3)}
"""What padding holds that may hold anything, in the two runs; None: the smallest integer."""


def packed(array: Array, chain: Chain, run: int) -> tuple[Array, Array]:
    """The array in its layouts, and where it may not be touched; poison where it holds anything."""
    forbidden = np.zeros(array.shape, bool)
    # What is wrapped around is compared with itself, which NaN is not equal to.
    poison = 1 if any(is_wrapped(pad) for _, pad in chain) else run
    for layout, pad in chain:
        box = padding_of(array, layout, pad, poison)
        place = positions(layout)
        box.reshape(-1)[place] = array
        touch = np.full(layout.physical_shape, pad_kind(pad) == "none")
        touch.reshape(-1)[place] = forbidden
        array, forbidden = with_function(box, layout, pad), touch
    return array, forbidden


def is_wrapped(pad: Any) -> bool:
    """Whether padding repeats elements of the tensor."""
    return isinstance(pad, PadFunction) and isinstance(pad.value, tir.Load)


def pad_kind(pad: Any) -> str:
    if isinstance(pad, PadFunction):
        return (
            "none"
            if pad.value is None
            else "undef"
            if isinstance(pad.value, tir.Undef)
            else "value"
        )
    return "none" if pad is None else "undef" if pad == "undef" else "value"


def unpromised(chain: Chain) -> Chain:
    """The layouts of a parameter with padding that may hold anything, where it may be touched."""
    return tuple((layout, None if pad_kind(pad) == "none" else "undef") for layout, pad in chain)


def poison_of(dtype: Any, run: int) -> Any:
    value = POISONS[dtype.kind][run]
    return np.iinfo(dtype).min if value is None else value


def padding_of(array: Array, layout: Layout, pad: Any, run: int) -> Array:
    """A box full of what the padding holds: poison, or the number, either zero for a zero."""
    kind = array.dtype.kind
    value = poison_of(array.dtype, run)
    if pad_kind(pad) == "value" and not isinstance(pad, PadFunction):
        value = pad
        if kind == "f" and pad == 0 and run:
            value = -pad  # an input's padding compares equal to a zero, and no more is said of it
    with np.errstate(all="ignore"):
        return np.full(layout.physical_shape, value, array.dtype)


def with_function(box: Array, layout: Layout, pad: Any) -> Array:
    """The box with its padding as a function of the place says."""
    if not isinstance(pad, PadFunction) or pad_kind(pad) != "value":
        return box
    names = physical_vars(box.ndim)
    axes = dict(zip((v.name for v in names), np.indices(box.shape), strict=True))

    def at(expr: Any) -> Array:
        return np.broadcast_to(
            eval(str(expr), {"min": np.minimum, "max": np.maximum}, axes), box.shape
        )

    if isinstance(pad.value, tir.Literal):
        values = np.full(box.shape, pad.value.value, box.dtype)
    elif isinstance(pad.value, tir.Load):
        values = box[tuple(at(e) for e in pad.value.indices)]
    else:
        values = at(pad.value).astype(box.dtype)
    inside = np.zeros(box.size, bool)
    inside[positions(layout).reshape(-1)] = True
    return np.where(inside.reshape(box.shape), box, values)


def unpacked(box: Array, chain: Chain, fill: Any, name: str) -> Array:
    """The logical array, after checking the padding that was stated."""
    for layout, pad in reversed(chain):
        logical = box.reshape(-1)[positions(layout)]
        inside = np.zeros(box.size, bool)
        inside[positions(layout).reshape(-1)] = True
        rest = box.reshape(-1)[~inside]
        wanted = None
        if pad_kind(pad) == "none":
            wanted = np.full(rest.shape, fill, box.dtype)
        elif isinstance(pad, PadFunction):
            if pad.value is not None and not isinstance(pad.value, tir.Undef):
                wanted = with_function(box, layout, pad).reshape(-1)[~inside]
        elif pad != "undef":
            wanted = np.full(rest.shape, pad, box.dtype)
        if wanted is not None and not same_bits(rest, wanted).all():
            raise Failure("padding", f"{name}: the padding {pad!r} is {rest}")
        box = logical
    return box


def same_bits(a: Array, b: Array) -> Array:
    """Where two arrays agree to the bit, any NaN for any NaN."""
    with np.errstate(all="ignore"):
        equal = (a == b) & (np.signbit(a) == np.signbit(b)) if a.dtype.kind == "f" else a == b
        return np.asarray(equal | ((a != a) & (b != b)))
