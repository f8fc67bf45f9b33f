"""Decoding token after token with a growing cache of keys and values, beside onnxruntime.

    python benchmarks/decoding.py [--tokens 200] [--threads 2] [--size LAYERSxWIDTH …] [--bits 4]
        [--fused [--shared ROWS]] [--accuracy-level 4]

For each size of a decoder: tokens in a second of graphflow's `exe.bind()`, of onnxruntime with io
binding, whose outputs are the next inputs, and of onnxruntime's `run`; medians of whole sequences,
which alternate.  All choose the same tokens.  Beside that, the programs that graphflow compiled,
and the most bytes of keys and values that a step behind the first one copied.  With `--bits`,
products have weights of 2, 4 or 8 bits.  With `--fused` the model is a llama of onnxruntime's own
operators, as its model builder for generation writes it; else a GPT as optimum exports it.  With
`--shared`, past and present are one memory with room for so many rows; onnxruntime has that with io
binding alone.  With `--accuracy-level 4` its products may round rows to bytes; by default they are
of float32.  A number that a runtime rounds up and another one down may decide between tokens that
are about as likely: then the logits up to there have to agree.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnxruntime

import graphflow as gf
from graphflow.models.zoo.building.few_bits import with_few_bits
from graphflow.models.zoo.sequences.fused_llama import fused_llama
from graphflow.models.zoo.sequences.gpt import gpt

HEAD = 64
IDLE = 0.1
"""Seconds before each sequence: threads of another runtime spin on after its runs."""

ROUNDED, NEAR = 4, 0.1
"""The accuracy level with which rows are rounded to bytes, and how near logits are then: one number
that is rounded to the other side changes them by 0.05, and rounding at all by 0.06."""

Step: TypeAlias = Callable[[Mapping[str, Any]], tuple[Any, list[Any]]]
"""One run: the inputs by name, to the logits and the keys and values, which stay as they are."""


@dataclass(frozen=True)
class Sequence:
    """The tokens that a runtime chooses, the logits by which it does, and the seconds of each of
    its runs."""

    tokens: list[int]
    logits: list[Any]
    seconds: list[float]

    def agrees(self, other: Sequence, level: int) -> bool:
        """Whether another sequence has the same tokens, or near logits up to the first other one,
        where rows are rounded."""
        if self.tokens == other.tokens or level != ROUNDED:
            return self.tokens == other.tokens
        pairs = zip(self.tokens[1:], other.tokens[1:], strict=True)
        common = next(k for k, (mine, its) in enumerate(pairs) if mine != its)
        return np.allclose(self.logits[: common + 1], other.logits[: common + 1], atol=NEAR)


class Decoder:
    """A model, and the names of its keys and values as inputs and as outputs."""

    def __init__(
        self,
        layers: int,
        width: int,
        tokens: int,
        bits: int | None,
        is_fused: bool,
        room: int | None,
        level: int,
    ) -> None:
        heads, self.room = max(width // HEAD, 1), room
        self.groups, self.head = heads, width // heads
        positions = tokens + 1 if room is None else room
        shape = {"layers": layers, "width": width, "heads": heads, "positions": positions}
        if is_fused:
            self.groups = max(heads // 2, 1)
            self.model: onnx.ModelProto = fused_llama(
                0, groups=self.groups, bits=bits, accuracy_level=level, **shape
            )
        else:
            self.model = gpt(0, **shape)
            self.model = self.model if bits is None else with_few_bits(self.model, bits)
        self.given = [i.name for i in self.model.graph.input if i.name.startswith("past")]
        self.made = [o.name for o in self.model.graph.output if o.name != "logits"]

    def sequence(self, step: Step, count: int) -> Sequence:
        """Choose that many tokens, each the likeliest one."""
        shape = (1, self.groups, self.room or 0, self.head)
        state: dict[str, Any] = {name: np.zeros(shape, np.float32) for name in self.given}
        found, new = Sequence([3], [], []), np.array([[3]])
        for _ in range(count):
            mask = np.ones((1, len(found.tokens)), np.int64)
            begin = time.perf_counter()
            logits, made = step({"input_ids": new, "attention_mask": mask, **state})
            found.seconds.append(time.perf_counter() - begin)
            state = dict(zip(self.given, made, strict=True))
            found.logits.append(np.array(logits[0, -1]))
            new = logits[:, -1:].argmax(-1)
            found.tokens.append(int(new[0, 0]))
        return found

    def graphflow(self, tokens: int, threads: int) -> tuple[gf.Executable, gf.Binding, Step]:
        """A program for all lengths, its binding, and a step of that."""
        past = (0, tokens) if self.room is None else (self.room, self.room)
        sizes = {"batch": (1, 1), "sequence": (1, 1), "past": past, "total": (1, tokens)}
        exe = gf.compile(self.model, sizes=sizes, options=gf.Options(threads=threads))
        bound = exe.bind()

        def step(feeds: Mapping[str, Any]) -> tuple[Any, list[Any]]:
            found = bound.run(feeds)
            return found["logits"], [found[name] for name in self.made]

        return exe, bound, step

    def peers(self, threads: int) -> dict[str, Step]:
        """Steps of onnxruntime: with io binding, and by `run`."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(self.model.SerializeToString(), options)

        def bound(feeds: Mapping[str, Any]) -> tuple[Any, list[Any]]:
            binding = session.io_binding()
            if self.room is not None:
                shared = {name: _value(feeds[name]) for name in self.given}
                feeds = {**feeds, **shared}
            for name, value in feeds.items():
                if isinstance(value, onnxruntime.OrtValue):
                    binding.bind_ortvalue_input(name, value)
                else:
                    binding.bind_cpu_input(name, value)
            binding.bind_output("logits")
            for given, name in zip(self.given, self.made, strict=True):
                if self.room is None:
                    binding.bind_output(name)
                else:
                    binding.bind_ortvalue_output(name, feeds[given])
            session.run_with_iobinding(binding)
            logits, *made = binding.get_outputs()
            if self.room is not None:  # these keep their memory, which others only refer to
                made = [feeds[name] for name in self.given]
            return logits.numpy(), made

        def plain(feeds: Mapping[str, Any]) -> tuple[Any, list[Any]]:
            logits, *made = session.run(["logits", *self.made], dict(feeds))
            return logits, made

        return {"onnxruntime, io binding": bound} | (
            {"onnxruntime": plain} if not self.room else {}
        )


def _value(array: Any) -> Any:
    """An array as onnxruntime binds it; what is bound already stays."""
    if isinstance(array, onnxruntime.OrtValue):
        return array
    return onnxruntime.OrtValue.ortvalue_from_numpy(array)


def measured(decoder: Decoder, tokens: int, threads: int, rounds: int, level: int) -> str:
    """What one decoder takes."""
    exe, bound, step = decoder.graphflow(tokens, threads)
    steps = {"graphflow": step, **decoder.peers(threads)}
    rates: dict[str, list[float]] = {name: [] for name in steps}
    chosen: list[Sequence] = []
    for _ in range(rounds):
        for name, one in steps.items():
            time.sleep(IDLE)
            found = decoder.sequence(one, tokens)
            rates[name].append(tokens / sum(found.seconds))
            chosen.append(found)
    assert all(one.agrees(chosen[0], level) for one in chosen), (
        "the runtimes choose different tokens"
    )
    copied: list[int] = []

    def counted(feeds: Mapping[str, Any]) -> tuple[Any, list[Any]]:
        found = step(feeds)
        copied.append(bound.copied)
        return found

    decoder.sequence(counted, tokens)
    medians = {name: statistics.median(found) for name, found in rates.items()}
    peer = medians["onnxruntime, io binding"]
    texts = ", ".join(f"{name} {rate:,.0f}" for name, rate in medians.items())
    programs = (exe.report()["programs"] or {})["compiled"]
    return (
        f"tokens a second: {texts}; {medians['graphflow'] / peer:.2f} of io "
        f"binding; {programs} programs, at most {max(copied[1:])} bytes copied by a step"
    )


def main() -> None:
    """Print a line for each size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--size", nargs="+", default=["2x128", "4x256"])
    parser.add_argument("--bits", type=int, choices=(2, 4, 8))
    parser.add_argument("--fused", action="store_true")
    parser.add_argument("--shared", type=int, metavar="ROWS")
    parser.add_argument("--accuracy-level", type=int, default=1)
    given = parser.parse_args()
    if given.shared is not None and not given.fused:
        parser.error("--shared is for the model of --fused")
    for size in given.size:
        layers, width = map(int, size.split("x"))
        level = given.accuracy_level
        decoder = Decoder(layers, width, given.tokens, given.bits, given.fused, given.shared, level)
        line = measured(decoder, given.tokens, given.threads, given.rounds, level)
        print(f"{size}: {line}", flush=True)


if __name__ == "__main__":
    main()
