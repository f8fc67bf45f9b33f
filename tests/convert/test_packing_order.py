"""`packing_order`: constants are packed in the order that takes the least memory."""

from itertools import pairwise, permutations

import numpy as np
import pytest

from graphflow.convert.packing_order import packing_order
from graphflow.kernels.conversion import conversion
from graphflow.kernels.recipes import Staged
from graphflow.layout import row_major
from graphflow.physical import PhysicalCall, Placement, StorageSpec
from graphflow.tir import Literal


def _packs(read: str, made: str) -> PhysicalCall:
    """A call that reads one storage and writes another one."""
    layout = row_major((1,))
    definition = conversion(layout, layout, "float32", Literal(0.0, "float32"))
    places = {"src": Placement(read, layout), definition.outputs[0].name: Placement(made, layout)}
    return PhysicalCall(f"pack {read}", definition, places, Staged(), prepare=True)


def _storage(name: str, elements: int, is_given: bool = False) -> StorageSpec:
    contents = np.zeros(elements, np.float32) if is_given else None
    return StorageSpec(name, "constant", "float32", elements, contents)


def _peak(calls: list[PhysicalCall], storages: dict[str, StorageSpec], kept: set[str]) -> int:
    """The most elements in memory, where what no run reads is let go of behind its last call."""
    held = {name for name, storage in storages.items() if storage.contents is not None}
    most = 0
    for number, call in enumerate(calls):
        held |= {place.storage for place in call.placements.values()}
        most = max(most, sum(storages[name].elements for name in held))
        later = {p.storage for other in calls[number + 1 :] for p in other.placements.values()}
        read = {place.storage for place in call.placements.values()}
        held -= read - later - kept
    return most


@pytest.mark.parametrize("seed", range(8))
def test_no_other_order_takes_less_memory(seed: int) -> None:
    rng = np.random.default_rng(seed)
    storages: dict[str, StorageSpec] = {}
    prepare, runs = [], []
    for k in range(5):
        given, packed = f"w{k}", f"p{k}"
        storages[given] = _storage(given, int(rng.integers(1, 40)), is_given=True)
        storages[packed] = _storage(packed, int(rng.integers(1, 40)))
        prepare.append(_packs(given, packed))
        runs.append(_packs(packed, "y"))
    storages["y"] = _storage("y", 1)
    kept = {*storages} - {f"w{k}" for k in range(5)}
    found = packing_order(prepare, runs, storages)
    assert sorted(map(id, found)) == sorted(map(id, prepare))
    least = min(_peak([*order], storages, kept) for order in permutations(prepare))
    assert _peak(found, storages, kept) == least


@pytest.mark.parametrize("seed", range(8))
def test_what_is_made_on_the_way_counts(seed: int) -> None:
    """Some constants are transformed before they are packed."""
    rng = np.random.default_rng(seed)
    storages: dict[str, StorageSpec] = {}
    parts: list[list[PhysicalCall]] = []
    for k in range(5):
        way = [f"w{k}", *[f"t{k}"] * int(rng.integers(2)), f"p{k}"]
        storages |= {n: _storage(n, int(rng.integers(1, 40)), n == way[0]) for n in way}
        parts.append([_packs(*pair) for pair in pairwise(way)])
    storages["y"] = _storage("y", 1)
    kept = {name for name in storages if name[0] in "py"}
    runs = [_packs(f"p{k}", "y") for k in range(5)]
    found = packing_order([call for part in parts for call in part], runs, storages)
    orders = ([call for part in order for call in part] for order in permutations(parts))
    assert _peak(found, storages, kept) == min(_peak(o, storages, kept) for o in orders)


def test_calls_of_one_constant_stay_in_order_and_others_do_not_tie_them() -> None:
    """w0 is transformed and then packed; both packings read the scale s."""
    storages = {
        "w0": _storage("w0", 4, is_given=True),
        "t0": _storage("t0", 16),
        "p0": _storage("p0", 16),
        "w1": _storage("w1", 32, is_given=True),
        "p1": _storage("p1", 32),
        "s": _storage("s", 1, is_given=True),
    }
    first, second, third = _packs("w0", "t0"), _packs("t0", "p0"), _packs("w1", "p1")
    for call in (first, third):
        call.placements["scale"] = Placement("s", row_major((1,)))
    runs = [_packs("p0", "y"), _packs("p1", "y")]
    assert packing_order([first, second, third], runs, storages) == [third, first, second]
