"""Arrays put into layouts by numpy, without the compiler's conversions, and lowered kernels run
natively."""

import ctypes
from functools import lru_cache
from typing import Any

import numpy as np

from graphflow.base.target import Target
from graphflow.codegen import compile_object
from graphflow.graph import OperatorGraph
from graphflow.kernels.lowering import LoweredKernel
from graphflow.kernels.recipes import KernelVariant
from graphflow.layout import LOGICAL, IndexMap, Layout, logical_vars
from graphflow.lower.called_kernels import lower_kernels
from graphflow.physical import PhysicalCall, PhysicalGraph, Placement
from graphflow.runtime import link
from graphflow.tir import PrimFunc, Role, interpret
from graphflow.tir.meaning.operators import undefined_value

Array = np.ndarray[Any, Any]

SENTINEL = -77.0
"""What memory holds that a kernel must not write."""

GUARD = 256
"""Bytes around each buffer that a native kernel must leave alone."""


def in_order(shape: tuple[int, ...], order: tuple[int, ...]) -> Layout:
    """The layout with the logical axes in this order in memory."""
    index_map = IndexMap.from_function(len(shape), lambda *i: [i[k] for k in order], shape)
    return Layout.of(index_map, shape, [shape[k] for k in order])


@lru_cache(maxsize=4096)
def positions(layout: Layout) -> Array:
    """For each logical index the flat position in the box, by evaluating the map in numpy."""
    axes = np.indices(layout.logical_shape)
    names = {v.name: axes[k] for k, v in enumerate(logical_vars(len(layout.logical_shape)))}
    physical = [
        np.broadcast_to(eval(str(e), {}, names), layout.logical_shape)
        for e in layout.physical_index(logical_vars(len(layout.logical_shape)))
    ]
    if not physical:
        return np.zeros((), np.int64)
    return np.asarray(np.ravel_multi_index(physical, layout.physical_shape))


def place(layout: Layout, array: Array, fill: float) -> Array:
    """`array` in `layout`, with `fill` in every place that holds no element."""
    value = fill if array.dtype.kind == "f" else (-99 if array.dtype.kind == "i" else True)
    box = np.full(int(np.prod(layout.physical_shape)), value, array.dtype)
    box[positions(layout)] = array
    return box.reshape(layout.physical_shape)


def unplace(layout: Layout, box: Array) -> Array:
    """The logical array out of its box."""
    return np.asarray(box.reshape(-1)[positions(layout)])


def outside(layout: Layout, box: Array) -> Array:
    """What lies in the places that hold no element."""
    kept = np.ones(box.size, bool)
    kept[positions(layout).reshape(-1)] = False
    return np.asarray(box.reshape(-1)[kept])


def region_contents(layout: Layout, box: Array) -> dict[str, Array]:
    """The elements of each region that is not logical."""
    found: dict[str, list[Any]] = {r.name: [] for r in layout.regions() if r.name != LOGICAL}
    if len(found) == 1:
        return {name: outside(layout, box) for name in found}
    for region in layout.regions():
        if region.name != LOGICAL:
            found[region.name] += [p for p in np.ndindex(*box.shape) if region.contains(p)]
    return {name: np.array([box[p] for p in points]) for name, points in found.items()}


def call_of(
    definition: PrimFunc,
    variant: KernelVariant,
    pad: float | str | None = "undef",
    placed: dict[str, Layout] | None = None,
) -> PhysicalCall:
    """One call of a variant, its parameters alone in storages of their own."""
    layouts = {**variant.layouts, **(placed or {})}
    placements = {name: Placement(name, layout) for name, layout in layouts.items()}
    padded = layouts[definition.outputs[0].name].is_padded
    return PhysicalCall(
        "call", definition, placements, variant.recipe, variant, pad if padded else None
    )


class Native:
    """A lowered kernel as machine code; runs between guard bytes, in several slices."""

    def __init__(self, kernel: LoweredKernel, target: Target) -> None:
        self._kernel = kernel
        code = compile_object(kernel.func, kernel.symbol, target)
        self._code = link(((kernel.symbol, code),))
        pointer, number = ctypes.c_void_p, ctypes.c_int64
        kind = ctypes.CFUNCTYPE(None, pointer, number, number, pointer)
        self._call = kind(self._code.addresses[kernel.symbol])

    def __call__(self, arrays: dict[str, Array], undefined: float) -> dict[str, Array]:
        views: dict[str, Array] = {}
        memory: list[Array] = []
        for param in self._kernel.func.params:
            buffer = param.buffer
            raw = np.full(buffer.bytes + 3 * GUARD, 0xA5, np.uint8)
            start = GUARD + -(raw.ctypes.data + GUARD) % 64
            view = raw[start : start + buffer.bytes].view(buffer.dtype).reshape(buffer.shape)
            kind = np.dtype(buffer.dtype).kind
            given = arrays.get(buffer.name)
            # Flat: a recipe may join axes of a parameter that run through memory together.
            view.reshape(-1)[...] = (
                (undefined if kind == "f" else -99) if given is None else given.reshape(-1)
            )
            memory.append(raw)
            views[buffer.name] = view
        before = [raw.copy() for raw in memory]
        bases = [views[p.buffer.name].ctypes.data for p in self._kernel.func.params]
        pointers = (ctypes.c_void_p * len(bases))(*bases)
        # Slices of a kernel in phases are for threads that meet.
        middle = 0 if self._kernel.in_phases else self._kernel.extent // 2
        for low, high in ((middle, self._kernel.extent), (0, middle)):
            if low < high:
                self._call(pointers, low, high, None)
        for param, raw, old in zip(self._kernel.func.params, memory, before, strict=True):
            if param.role is Role.INPUT:
                assert np.array_equal(raw, old), f"{param.buffer.name} was written"
            start = views[param.buffer.name].ctypes.data - raw.ctypes.data
            end = start + param.buffer.bytes
            assert np.array_equal(raw[:start], old[:start]), f"before {param.buffer.name}"
            assert np.array_equal(raw[end:], old[end:]), f"behind {param.buffer.name}"
        return {b.name: views[b.name].copy() for b in self._kernel.func.outputs}


def piece(place: Placement) -> slice:
    """The elements of a storage that the box of a placement takes."""
    return slice(place.offset, place.offset + int(np.prod(place.layout.physical_shape)))


def interpret_boxes(
    func: PrimFunc, boxes: dict[str, Array], undefined: float = np.nan
) -> dict[str, Array]:
    """The outputs of a lowered kernel, flat; a recipe may have joined axes of its parameters."""
    given = {b.name: boxes[b.name].reshape(b.shape) for b in func.inputs}
    found = interpret(func, given, undefined=undefined)
    return {name: box.reshape(-1) for name, box in found.items()}


def interpret_physical(
    graph: OperatorGraph, physical: PhysicalGraph, target: Target, arrays: dict[str, Array]
) -> dict[str, Array]:
    """The graph outputs of a physical graph, its lowered kernels interpreted one by one.

    All memory starts as a number that no kernel computes, and a call changes what it writes alone.
    """
    memory: dict[str, Array] = {}
    for name, spec in physical.storages.items():
        memory[name] = np.full(spec.elements, _unwritten(spec.dtype), spec.dtype)
        if spec.contents is not None:
            memory[name][...] = spec.contents
        if spec.kind == "input":
            memory[name][...] = arrays[name].reshape(-1)
    kernels, symbols = lower_kernels(physical, target)
    for call, symbol in zip(physical.calls, symbols, strict=True):
        func = kernels[symbol].func
        places = {p.buffer.name: call.placements[p.buffer.name] for p in call.definition.params}
        storage = {name: memory[p.storage][piece(p)] for name, p in places.items()}
        given = {b.name: storage[b.name].reshape(b.shape) for b in func.inputs}
        undefined = _unwritten("float32")
        for name, box in interpret(func, given, undefined=undefined).items():
            if name in storage:
                flat = box.reshape(-1)
                written = flat != _unwritten(flat.dtype.name)
                storage[name][written] = flat[written]
    found = {}
    for name in graph.outputs:
        value = graph.values[name]
        found[name] = memory[f"output:{name}"].reshape(value.shape)
    return found


def _unwritten(dtype: str) -> Any:
    return np.array(undefined_value(dtype, float(np.float32(-1.2345e30))), dtype)[()]
