"""Tests of sizes that are known when a run reaches a call: kernels behind a count end at it."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import graphflow as gf
from graphflow.base.fields import replace
from graphflow.lower import arena_parts
from graphflow.lower.held_sizes import held_sizes
from graphflow.physical import PhysicalCall
from graphflow.program import ProgramStep
from support.models.sized_runs import difference, parsed_model, peer_of
from support.single import noise
from support.targets import in_turn

F32 = np.float32
ROOM = 75
"""No number of whole vectors."""

ROWS = """
rows (bool[75] keep, float[75, 20] x) => (float y, float s) {
    n = NonZero(keep) t = Transpose(n) r = GatherND(x, t) e = Exp(r) y = Neg(e)
    axis = Constant <value = int64[1] {1}> () s = ReduceSum <keepdims = 0> (e, axis)
}
"""
PRODUCT = """
product (bool[75] keep, float[75, 20] x, float[20, 40] w, float[40, 8] v) => (float y, float m) {
    k = Compress <axis = 0> (x, keep) p = MatMul(k, w) r = Relu(p) y = MatMul(r, v)
    m = Softmax <axis = 1> (y)
}
"""
ALONG = """
along (bool[75] keep, float[75, 20] x, float[75, 20] z) => (float y, float s, float g) {
    k = Compress <axis = 0> (x, keep) l = Compress <axis = 0> (z, keep)
    t = Transpose(k) y = Softmax(t) s = MatMul(y, k)
    axis = Constant <value = int64[1] {0}> () g = ReduceSum <keepdims = 0> (l, axis)
}
"""
ATTENTION = """
attention (bool[75] keep, float[75, 20] x) => (float y) {
    k = Compress <axis = 0> (x, keep) t = Transpose(k) d = MatMul(k, t) p = Softmax(d)
    y = MatMul(p, k)
}
"""
JOINED = """
joined (bool[75] keep, float[75, 20] x) => (float y, float z) {
    k = Compress <axis = 0> (x, keep) n = Not(keep) l = Compress <axis = 0> (x, n)
    a = Abs(l) j = Concat <axis = 0> (k, a) y = Sigmoid(j) z = Sigmoid(a)
}
"""
WINDOWS = """
windows (bool[75] keep, float[75, 6, 9, 9] x, float[10, 6, 3, 3] w, float[90, 16] v) => (float y) {
    k = Compress <axis = 0> (x, keep) c = Conv <pads = [1, 1, 1, 1]> (k, w) r = Relu(c)
    m = MaxPool <kernel_shape = [3, 3], strides = [3, 3]> (r) f = Flatten(m) y = MatMul(f, v)
}
"""
SIDES = """
sides (bool[75] keep, float[1, 16, 9, 75] x, float[1, 16, 9, 3] b, float[16, 16, 3, 3] w)
    => (float y) {
    k = Compress <axis = 3> (x, keep) j = Concat <axis = 3> (b, k) r = Tanh(j)
    y = Conv <pads = [1, 1, 1, 1]> (r, w)
}
"""
BRANCH = """
branch (bool[75] keep, float[75, 20] x, bool on) => (float y) {
    k = Compress <axis = 0> (x, keep)
    e = If (on) <
        then_branch = one () => (float[r, 20] a) { f = Exp(k) a = Neg(f) },
        else_branch = two () => (float[r, 20] b) { g = Tanh(k) b = Abs(g) }>
    y = Relu(e)
}
"""
TEXTS = {
    "rows": ROWS,
    "product": PRODUCT,
    "along": ALONG,
    "attention": ATTENTION,
    "joined": JOINED,
    "windows": WINDOWS,
    "sides": SIDES,
    "branch": BRANCH,
}
DETECTOR = """
detector (bool[75] keep, float[1, 75, 4] boxes, float[1, 8, 12, 12] f, float[8, 8, 3, 3] w,
          float[128, 16] v) => (float y, float cut)
<int64[1] most = {75}, float[1] iou = {0.5}, float[1] least = {0.25}, int64 box = {2},
 int64 image = {0}, int64[1] first = {0}, int64[2] ends = {0, 1}> {
    c = Cast <to = 1> (keep) s = Unsqueeze(c, ends)
    sel = NonMaxSuppression(boxes, s, most, iou, least)
    at = Gather <axis = 1> (sel, box) bi = Gather <axis = 1> (sel, image)
    pb = Gather <axis = 1> (boxes, at) b = Squeeze(pb, first)
    r = RoiAlign <output_height = 4, output_width = 4, sampling_ratio = 2,
                  spatial_scale = 12.0> (f, b, bi)
    d = Conv <pads = [1, 1, 1, 1]> (r, w) e = Relu(d) g = Flatten(e) y = MatMul(g, v)
    cut = Concat <axis = 1> (b, b)
}
"""


def apart() -> np.ndarray[Any, Any]:
    """Boxes that do not overlap, so that suppression keeps all that have a score."""
    corner = np.stack(np.divmod(np.arange(ROOM), 9), -1) / 9
    return np.concatenate([corner, corner + 0.1], -1).astype(F32)[None]


def feeds_of(exe: gf.Executable, count: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    feeds = {
        tensor.name: rng.standard_normal(tensor.shape).astype(tensor.dtype) for tensor in exe.inputs
    }
    feeds["keep"] = np.zeros(ROOM, bool)
    feeds["keep"][rng.permutation(ROOM)[:count]] = True
    return feeds | dict(given(exe, seed))


def given(exe: gf.Executable, seed: int) -> Iterator[tuple[str, Any]]:
    names = {tensor.name for tensor in exe.inputs}
    if "boxes" in names:
        yield "boxes", apart()
    if "on" in names:
        yield "on", np.array(seed % 2 == 0)


def behind(feeds: dict[str, Any]) -> dict[str, Any]:
    """Inputs of which a run gives all rows, of NaN: what another run finds behind its own."""
    given = {name: array for name, array in feeds.items() if name not in ("keep", "boxes")}
    nan = {n: np.full_like(a, np.nan) for n, a in given.items() if ROOM in a.shape or n == "f"}
    return feeds | nan | {"keep": np.ones(ROOM, bool)}


def late(exe: gf.Executable) -> list[ProgramStep]:
    """The steps that end at a count: of which a run executes as many iterations as it says, or
    whose kernels read it."""
    kernels = exe.compiled.lowered.kernels
    return [
        step
        for step in exe.program.spec.run
        if (step.portion is not None and step.portion.places)
        or (step.symbol in kernels and kernels[step.symbol].sizes)
    ]


@in_turn("threads text", (1, 2), [*TEXTS, "detector"])
def test_runs_of_any_count_are_as_in_onnxruntime(threads: int, text: str, target: Any) -> None:
    """A run of all rows, of NaN, comes before each."""
    model = parsed_model(TEXTS.get(text, DETECTOR))
    options = gf.Options(cache="off", threads=threads, workers=0, fallback=None)
    exe = gf.compile(model, options=options, target=target)
    assert late(exe)
    peer = peer_of(model)
    names = [output.name for output in peer.get_outputs()]
    for seed, count in enumerate((0, 1, ROOM, 2, 31, 32, 33, 64, ROOM - 1, 0)):
        feeds = feeds_of(exe, count, seed)
        exe.run(behind(feeds))
        found = exe.run(feeds)
        wanted = dict(zip(names, peer.run(None, feeds), strict=True))
        assert not difference(found, wanted, 1e-4), count


def test_a_saved_program_ends_at_its_counts(tmp_path: Any) -> None:
    options = gf.Options(cache="off", threads=2, workers=0, fallback=None)
    exe = gf.compile(parsed_model(PRODUCT), options=options)
    exe.save(tmp_path / "counted.gfx")
    loaded = gf.load(tmp_path / "counted.gfx")
    portions = [[step.portion for step in one.program.spec.run] for one in (exe, loaded)]
    assert portions[0] == portions[1] and any(p and p.places for p in portions[0])
    for seed, count in enumerate((3, ROOM, 0, 40)):
        feeds = feeds_of(exe, count, seed)
        loaded.run(behind(feeds))
        for name, array in exe.run(feeds).items():
            np.testing.assert_array_equal(loaded.run(feeds)[name], array)


def calls_of(text: str) -> tuple[Any, list[PhysicalCall]]:
    exe = gf.compile(parsed_model(text), options=gf.Options(cache="off", threads=1, workers=0))
    physical = exe.compiled.lowered.physical
    return physical, [call for call in physical.calls if not call.prepare]


def counts_in(physical: Any) -> dict[str, set[str]]:
    """By call, the counts that are known before it."""
    known = zip(physical.calls, held_sizes(physical), strict=True)
    return {call.name: {*held} for call, held in known}


def test_a_count_is_known_behind_the_call_that_writes_it() -> None:
    physical, _ = calls_of(PRODUCT)
    known = counts_in(physical)
    writer = next(call for call in physical.calls if call.name.endswith(".count"))
    assert not known[writer.name]
    readers = [name for name, counts in known.items() if counts]
    assert len(readers) >= 3
    turned = replace(physical, calls=physical.calls[::-1])
    assert not any(counts_in(turned)[name] for name in readers)


def test_a_count_that_two_calls_write_is_none() -> None:
    physical, _ = calls_of(PRODUCT)
    writer = next(call for call in physical.calls if call.name.endswith(".count"))
    again = replace(writer, name="again")
    twice = replace(physical, calls=(*physical.calls, again))
    assert not any(counts_in(twice).values())


def test_the_memory_of_a_count_stays_as_it_is_until_all_that_end_there_are_done() -> None:
    options = gf.Options(cache="off", threads=1, workers=0)
    exe = gf.compile(parsed_model(PRODUCT), options=options)
    steps = [step for step in late(exe) if step.portion is not None]
    (place,) = {place for step in steps for place in step.portion.places}
    lowered = exe.compiled.lowered
    (name,) = {name for held in held_sizes(lowered.physical) for name in held}
    storage = lowered.physical.values[name].storage
    assert lowered.places[storage] == place
    if place.space == "arena":
        (part,) = (part for part in arena_parts(lowered) if part.storage == storage)
        ends = [k for k, step in enumerate(exe.program.spec.run) if step in late(exe)]
        assert part.last >= max(ends)


IN_A_LOOP = """
loop (float[75, 20] x, float[4, 75] limits, int64 trips) => (float y)
<bool yes = {1}, int64[1] axis = {0}> {
    y = Loop (trips, yes, x) <body = b (int64 k, bool on, float[75, 20] h) =>
        (bool go, float[75, 20] h2) {
        go = Identity(on) limit = Gather <axis = 0> (limits, k) m = Cast <to = 9> (limit)
        r = Compress <axis = 0> (h, m) e = Tanh(r) a = Abs(e) s = ReduceSum(a, axis)
        h2 = Add(h, s) }>
}
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_kernels_of_a_body_end_at_its_own_counts(threads: int) -> None:
    options = gf.Options(cache="off", threads=threads, workers=0, fallback=None)
    exe = gf.compile(parsed_model(IN_A_LOOP), options=options)
    x, limits = noise(ROOM, 20), np.zeros((4, ROOM), F32)
    for row, count in zip(limits, (ROOM, 0, 1, 40), strict=True):
        row[:count] = 1
    for trips in (4, 0, 3):
        wanted = x.copy()
        for row in limits[:trips]:
            wanted += np.abs(np.tanh(wanted[row > 0])).sum(0, keepdims=True)
        feeds = {"x": x, "limits": limits, "trips": np.array(trips)}
        np.testing.assert_allclose(exe.run(feeds)["y"], wanted, 1e-4, 1e-4)
    assert late(exe)
