"""Random nodes of onnxruntime's attention operators, whose extents are sizes.

In: a seed.  Out: a model of one node, the bounds of its sizes, and the inputs of some runs; and
what is wrong with one program for all of them, beside onnxruntime and beside a program of exact
shapes.  Keys and values of earlier runs grow, or lie in shared memory: then rows that are not in
use hold NaN, and a run also writes into the memory that it reads.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

import graphflow as gf
from graphflow.base.fields import replace
from graphflow.models.builder import ModelBuilder
from support.fuzz.fuzz_test import Failure, Result, attempted, result
from support.models.sized_runs import OPTIONS, Feeds, peer_of

ROOM = 20
"""The rows of a shared memory, and of tables of angles."""

RUNS = 5
TOLERANCE = 2e-4
DOMAIN = "com.microsoft"
GROUPED = "GroupQueryAttention"
PASTS = {"past_key": "present_key", "past_value": "present_value"}


@dataclass(frozen=True, slots=True)
class AttentionCase:
    """A model, the bounds of its sizes, and the inputs of runs."""

    model: onnx.ModelProto
    sizes: Mapping[str, tuple[int, int]]
    runs: Sequence[Feeds]


def draw_attention(seed: int) -> AttentionCase:
    """A random node, of one of four operators."""
    drawing = _Drawing(random.Random(seed), ModelBuilder(seed, opset=21))
    op = drawing.rng.choice([GROUPED] * 3 + ["MultiHeadAttention"] * 2 + ["Attention", "Rotary"])
    make = {
        GROUPED: drawing.grouped, "MultiHeadAttention": drawing.of_heads,
        "Attention": drawing.self_attention, "Rotary": drawing.rotary,
    }[op]  # fmt: skip
    make()
    return drawing.case(seed)


@dataclass
class _Drawing:
    """A node under construction: the shapes of its inputs, in names of sizes and numbers."""

    rng: random.Random
    builder: ModelBuilder
    shapes: dict[str, tuple[int | str, ...]] = field(default_factory=dict)
    sizes: dict[str, tuple[int, int]] = field(default_factory=dict)
    ranks: dict[str, int] = field(default_factory=lambda: {"y": 3})
    is_shared: bool = False

    def is_drawn(self, share: float = 0.4) -> bool:
        return self.rng.random() < share

    def input(self, name: str, *shape: int | str, dtype: str = "float32") -> str:
        self.shapes[name] = shape
        return self.builder.input(name, shape, dtype)

    def node(self, op: str, inputs: list[str], outputs: list[str], **attributes: Any) -> None:
        while not inputs[-1]:
            inputs.pop()
        self.builder.node(op, inputs, outputs, domain=DOMAIN, **attributes)
        for name in outputs:
            self.builder.output(name, shape=[f"{name}.{k}" for k in range(self.ranks.get(name, 4))])

    def bounds(self, length: int = 4, past: int = 12) -> None:
        self.sizes = {"batch": (1, self.rng.choice((1, 3))), "length": (1, length)}
        if past:
            self.sizes |= {"past": (0, past), "total": (1, length + past)}

    def tables(self, width: int) -> list[str]:
        return [self.builder.weight(ROOM + 4, width // 2) for _ in range(2)]

    def grouped(self) -> None:
        groups, shared, size = self.rng.choice((1, 2)), self.rng.choice((1, 3)), 16
        heads = groups * shared
        self.is_shared = self.is_drawn(0.6)
        self.bounds()
        if self.is_shared:
            self.sizes |= {"past": (ROOM, ROOM), "total": (1, ROOM)}
        attributes: dict[str, Any] = {"num_heads": heads, "kv_num_heads": groups}
        widths = [heads * size, groups * size, groups * size]
        if self.is_drawn():
            widths = [sum(widths)]
        names = [self.input(f"x{k}", "batch", "length", n) for k, n in enumerate(widths)]
        names += [""] * (3 - len(names))
        names += [self.input(name, "batch", groups, "past", size) for name in PASTS]
        mask = self.input("mask", "batch", "total", dtype="int64")
        total = self.builder.node("Gather", [
            self.builder.node("Shape", [mask]), self.builder.constant(np.int64(1)),
        ])  # fmt: skip
        names += [
            self.input("last", "batch", dtype="int32"), self.builder.node("Cast", [total], to=6),
        ]  # fmt: skip
        positions = ""
        if self.is_drawn(0.5):
            attributes |= {"do_rotary": 1, "rotary_interleaved": self.rng.choice((0, 1))}
            names += self.tables(size)
            if self.is_drawn(0.3):
                positions = self.input("positions", "batch", "length", dtype="int64")
        else:
            names += ["", ""]
        bias = ["batch" if self.is_drawn(0.3) else 1, heads if self.is_drawn() else 1]
        names += [
            positions,
            self.input("bias", *bias, "length", "total") if self.is_drawn(0.3) else "",
            self.input("sink", heads) if self.is_drawn(0.3) else "",
        ]
        options = {
            "local_window_size": self.rng.randint(1, 6), "softcap": 2.0, "scale": 0.3,
            "smooth_softmax": 1,
        }  # fmt: skip
        attributes |= {name: value for name, value in options.items() if self.is_drawn(0.25)}
        self.node(GROUPED, names, ["y", *PASTS.values()], **attributes)

    def of_heads(self) -> None:
        heads, size = self.rng.choice((1, 2, 3)), self.rng.choice((8, 12))
        has_past = self.is_drawn(0.5)
        self.bounds(past=12 if has_past else 0)
        keys: str = "length" if has_past or self.is_drawn() else "keys"
        total = "total" if has_past else keys
        if keys == "keys":
            self.sizes |= {"keys": (1, 9)}
        values = size if has_past or self.is_drawn() else 2 * size
        names = [
            self.input("x", "batch", "length", heads * size),
            self.input("k", "batch", keys, heads * size),
            self.input("v", "batch", keys, heads * values),
            self.builder.weight(heads * (2 * size + values)) if self.is_drawn() else "",
            self.input("mask", "batch", total, dtype="int32") if self.is_drawn() else "",
            self.input("bias", 1, heads, "length", total) if self.is_drawn() else "",
        ]
        outputs = ["y"]
        if has_past:
            names += [self.input(name, "batch", heads, "past", size) for name in PASTS]
            outputs += PASTS.values()
        self.node("MultiHeadAttention", names, outputs, num_heads=heads, **self.causal())

    def self_attention(self) -> None:
        heads, size, width = self.rng.choice((1, 2, 3)), self.rng.choice((4, 8)), 12
        has_past = self.is_drawn(0.5)
        self.bounds(past=12 if has_past else 0)
        names = [
            self.input("x", "batch", "length", width),
            self.builder.weight(width, 3 * heads * size), self.builder.weight(3 * heads * size),
        ]  # fmt: skip
        total = "total" if has_past else "length"
        names += [self.input("mask", "batch", total, dtype="int32") if self.is_drawn() else ""]
        outputs = ["y"]
        if has_past:
            names.append(self.input("past", 2, "batch", heads, "past", size))
            outputs.append("present")
            self.ranks = {"y": 3, "present": 5}
        self.node("Attention", names, outputs, num_heads=heads, **self.causal())

    def causal(self) -> dict[str, Any]:
        return {
            name: value
            for name, value in {"unidirectional": 1, "scale": 0.3}.items()
            if self.is_drawn()
        }

    def rotary(self) -> None:
        heads, width = self.rng.choice((1, 3)), self.rng.choice((8, 16))
        self.bounds(past=0)
        split = self.is_drawn(0.5)
        self.ranks = {"y": 4 if split else 3}
        shape = (heads, "length", width) if split else ("length", heads * width)
        one = self.is_drawn(0.5)
        positions = self.input(
            "position" if one else "positions", *(1,) if one else ("batch", "length"), dtype="int64"
        )
        names = [self.input("x", "batch", *shape), positions, *self.tables(width)]
        self.node("RotaryEmbedding", names, ["y"], interleaved=self.rng.choice((0, 1)))

    # Inputs ---------------------------------------------------------------------------------------

    def case(self, seed: int) -> AttentionCase:
        named = {extent for shape in self.shapes.values() for extent in shape}
        self.sizes = {name: bounds for name, bounds in self.sizes.items() if name in named}
        rng = np.random.default_rng(seed)
        runs = [self.feeds(rng, number) for number in range(RUNS)]
        return AttentionCase(self.builder.model(), self.sizes, runs)

    def feeds(self, rng: np.random.Generator, number: int) -> Feeds:
        """The inputs of a run: the first has the most of each size, as far as they may be so, and
        the second the least."""
        at = {0: 1, 1: 0}.get(number)
        extents = {
            name: int(rng.integers(low, high + 1)) if at is None else (low, high)[at]
            for name, (low, high) in self.sizes.items()
        }
        extents["position"] = 1
        length = extents["length"]
        is_prompt = not extents.get("past", 0)
        if self.is_shared:
            extents["total"] = max(extents["total"], length)
            is_prompt = extents["total"] == length or number == 2
            extents["total"] = length if is_prompt else extents["total"]
        elif "past" in extents:  # also where nothing names it
            extents["total"] = extents["past"] + length
        if "last" in self.shapes and not is_prompt and length > 1:
            extents["batch"] = 1  # onnxruntime has such runs for one sequence alone
        total = extents.get("total", length)
        last = rng.integers(0 if is_prompt else length - 1, total, extents["batch"])
        if not self.is_shared and not is_prompt:
            last[:] = total - 1
        feeds = Feeds()
        for name, shape in self.shapes.items():
            drawn = tuple(extents.get(str(n), n) for n in shape)
            feeds[name] = rng.standard_normal(drawn).astype(np.float32)  # type: ignore[arg-type]
            if name == "mask":
                # Where all keys are masked, sums with -10000 are rounded to thousandths.
                feeds[name] = np.maximum(rng.integers(0, 2, drawn), np.arange(drawn[-1]) == 0)
        starts = np.zeros_like(last) if is_prompt else last + 1 - length
        known = {
            "last": last.astype(np.int32), "position": np.array([2]),
            "positions": 1 + starts[:, None] + np.arange(length),
        }  # fmt: skip
        feeds |= {name: array for name, array in known.items() if name in feeds}
        if "mask" in feeds and "last" not in feeds:
            feeds["mask"] = feeds["mask"].astype(np.int32)
        for name in PASTS if self.is_shared else ():
            for row, start in zip(feeds[name], starts, strict=True):
                row[:, start:] = np.nan
        return feeds


def run_attention(seed: int) -> Result:
    """What is wrong with a case, counted as one that one program serves or not."""
    case = draw_attention(seed)
    served: list[bool] = []
    failure = attempted(lambda: served.append(_check(case)))
    return Result(failure, result("", cases=1, one_program=int(any(served))).counts)


def check_attention(case: AttentionCase) -> Failure | None:
    """What is wrong with a case."""
    return attempted(lambda: _check(case))


def _check(case: AttentionCase) -> bool:
    """Whether one program serves all sizes; a Failure where a run differs from onnxruntime's."""
    exe = gf.compile(case.model, sizes=case.sizes, options=_OPTIONS)
    exact = gf.compile(case.model, options=_OPTIONS)
    session = peer_of(case.model)
    names = [output.name for output in session.get_outputs()]
    for number, feeds in enumerate(case.runs):
        wanted = dict(zip(names, session.run(None, dict(feeds)), strict=True))
        found = {"sizes": exe.run(feeds)}
        if number == RUNS - 1:
            found |= {"exact": exact.run(feeds), "bound": exe.bind().run(feeds)}
        if all(feeds.get(name, np.empty(0)).shape[2:3] == (ROOM,) for name in PASTS):
            own = {name: feeds[name].copy() for name in PASTS}
            out = {made: own[name] for name, made in PASTS.items()}
            found["in place"] = exe.run({**feeds, **own}, out=out)
        for kind, outputs in found.items():
            for name in names:
                one, other = (_in_use(name, np.array(x[name]), feeds) for x in (outputs, wanted))
                text = f"{kind}, run {number}, {name}"
                if one.shape != other.shape:
                    raise Failure("shape", f"{text}: {one.shape}, and not {other.shape}")
                if not np.allclose(one, other, TOLERANCE, TOLERANCE):
                    raise Failure("numbers", f"{text}: {abs(one - other).max()} from onnxruntime")
    (size, *_) = exe.report()["sizes"].values()
    return bool(size["one_program"])


_OPTIONS = replace(OPTIONS, fallback=None)


def _in_use(name: str, array: Any, feeds: Feeds) -> Any:
    """An output with zeros in place of what the operator leaves open: rows behind the last key of a
    sequence, and queries of a prompt behind it."""
    if "last" not in feeds:
        return array
    is_prompt = feeds["mask"].shape[1] == array.shape[1]
    for row, last in zip(array, feeds["last"], strict=True):
        if name in PASTS.values():
            row[:, last + 1 :] = 0
        elif is_prompt:
            row[last + 1 :] = 0
    return array
