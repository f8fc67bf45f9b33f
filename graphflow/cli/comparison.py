"""One model measured beside other runtimes: the numbers that `graphflow bench` prints.

In: a model, compiled and as it was given.  Out: a dict of plain values.  What always holds: all
programs get the same inputs, and are timed through their public interface, from arrays to new
arrays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import Struct, field
from numpy.typing import NDArray

from graphflow.api.executable import Executable
from graphflow.base.offered_names import PEER_NAMES
from graphflow.bench import (
    BlockTimes,
    PeerFailure,
    Protocol,
    Run,
    floor_seconds,
    gflop,
    hardly_varies,
    largest_error,
    load_peer,
    measure,
    measure_machine,
    peer_outputs,
)
from graphflow.cli.executables import drawn_inputs
from graphflow.frontends import OnnxModel

OURS = "graphflow"
REFERENCE = PEER_NAMES[0]


def compare(
    exe: Executable,
    model: OnnxModel,
    *,
    against: Sequence[str] = (REFERENCE,),
    protocol: Protocol | None = None,
) -> dict[str, Any]:
    """Check and time `exe`, which was compiled from `model`; milliseconds are medians of
    alternating blocks.

    The error is relative to onnxruntime, which is always measured; `check_is_weak` says that the
    outputs hardly vary, so that a small error proves little.  `failures` has the reason of each
    peer that cannot load or run the model; without onnxruntime `speedup`, `max_rel_error` and
    `check_is_weak` are None.  Raises GraphflowError for a peer that does not exist or is not
    installed.
    """
    compiled = exe.compiled
    inputs = drawn_inputs(exe, {}, {})
    peers = _Peers()
    for name in dict.fromkeys((REFERENCE, *against)):
        peers.add(name, model, exe.threads, inputs)
    runs: dict[str, Run] = {OURS: partial(exe.run, inputs), **peers.runs}
    timings = measure(runs, Protocol() if protocol is None else protocol)
    machine = measure_machine(compiled.target, exe.threads)
    result: dict[str, Any] = {"model": compiled.name, "threads": exe.threads}
    for program, timing in timings.items():
        result[f"{program}_ms"] = timing.median_ms
        result[f"{program}_iqr_ms"] = timing.iqr_ms
    result |= _agreement(exe.run(inputs), peers.outputs.get(REFERENCE), timings)
    result["compile_s"] = compiled.seconds
    result |= {f"{peer}_load_s": seconds for peer, seconds in peers.load_seconds.items()}
    return result | {
        "floor_ms": 1e3 * floor_seconds(compiled, machine),
        "gflop": gflop(compiled),
        "failures": peers.failures,
    }


class _Peers(Struct, frozen=True):
    """The peers that can run a model, and the reasons of those that cannot, by name."""

    runs: dict[str, Run] = field(default_factory=dict)
    outputs: dict[str, dict[str, NDArray[Any]]] = field(default_factory=dict)
    load_seconds: dict[str, float] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def add(
        self, name: str, model: OnnxModel, threads: int, inputs: Mapping[str, NDArray[Any]]
    ) -> None:
        """Load a peer and run it once."""
        try:
            peer = load_peer(name, model, threads)
            self.outputs[name] = peer_outputs(name, peer, inputs)
        except PeerFailure as failure:
            self.failures[name] = str(failure)
            return
        self.load_seconds[name] = peer.load_seconds
        self.runs[name] = partial(peer.run, inputs)


def _agreement(
    found: Mapping[str, NDArray[Any]],
    expected: Mapping[str, NDArray[Any]] | None,
    timings: Mapping[str, BlockTimes],
) -> dict[str, Any]:
    """How our outputs and times compare with those of the reference, if it has some."""
    if expected is None:
        return {"speedup": None, "max_rel_error": None, "check_is_weak": None}
    return {
        "speedup": timings[REFERENCE].median_ms / timings[OURS].median_ms,
        "max_rel_error": largest_error(found, expected),
        "check_is_weak": hardly_varies(expected),
    }
