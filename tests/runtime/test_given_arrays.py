"""Tests of the arrays that callers give to runs: DLPack in, and outputs in arrays of theirs."""

from typing import Any

import numpy as np
import pytest

import graphflow as gf
from graphflow.base.errors import InvalidModel
from graphflow.models import ModelBuilder
from graphflow.program import BufferRef, ProgramStep
from graphflow.runtime import Program
from graphflow.runtime.aligned_memory import data_address
from support.exporters import Exporter, OnDevice
from support.programs import X, inc, increments, rotations, spec, vector

RAMP = np.arange(24, dtype=np.float32)


def two_outputs() -> Program:
    steps = [ProgramStep("inc", (X, BufferRef("output", k)), 24) for k in range(2)]
    return Program(spec([inc()], steps, [vector("x", 24)], [vector("y", 24), vector("z", 24)]), 1)


def written_addresses(program: Program, out: np.ndarray, monkeypatch: Any) -> list[int]:
    """The addresses of outputs that native code of a run gets."""
    return addresses(program, {"x": RAMP}, {"y": out}, monkeypatch)


def addresses(program: Program, inputs: Any, out: Any, monkeypatch: Any) -> list[int]:
    """The same of a run with these inputs and arrays for outputs."""
    found: list[int] = []
    execute = Program.execute

    def noted(self: Program, arena: Any, *others: Any) -> None:
        found.extend(arena.addresses[len(self.spec.inputs) :])
        execute(self, arena, *others)

    monkeypatch.setattr(Program, "execute", noted)
    program.run(inputs, out)
    monkeypatch.undo()
    return found


def test_kernels_write_into_the_array_of_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    program = two_outputs()
    y = np.zeros(24, np.float32)
    results = program.run({"x": RAMP}, {"y": y})
    assert list(results) == ["y", "z"] and results["y"] is y
    assert np.array_equal(y, RAMP + 1) and np.array_equal(results["z"], RAMP + 1)
    assert written_addresses(program, y, monkeypatch)[0] == data_address(y)
    y[:] = 0
    assert np.array_equal(program.run({"x": RAMP})["y"], RAMP + 1) and not y.any()


def unaligned() -> np.ndarray:
    return np.zeros(24 * 4 + 1, np.uint8)[1:].view(np.float32)


@pytest.mark.parametrize(
    "out",
    [
        np.zeros((24, 3), np.float32)[:, 1],
        np.zeros(24, ">f4"),
        unaligned(),
        RAMP[::-1].copy()[::-1],
    ],
)
def test_results_are_copied_where_kernels_cannot_write(
    out: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Program(increments(24), 1)
    assert program.run({"x": RAMP}, {"y": out})["y"] is out
    assert np.array_equal(out, RAMP + 1)
    assert written_addresses(program, out, monkeypatch)[0] != data_address(out)


@pytest.mark.parametrize("times", (1, 3))
def test_a_run_may_write_over_its_input(times: int) -> None:
    program = Program(rotations(24, times), 1)
    expected = program.run({"x": RAMP})["y"]
    whole = np.concatenate([RAMP, RAMP[:1]])
    x = whole[:24]
    program.run({"x": x}, {"y": x})
    assert np.array_equal(x, expected)
    whole = np.concatenate([RAMP, RAMP[:1]])
    program.run({"x": whole[:24]}, {"y": whole[1:]})
    assert np.array_equal(whole[1:], expected)


@pytest.mark.parametrize(
    "out, message",
    [
        ({"w": RAMP}, "there is no output 'w'.*y: float32.*z: float32"),
        ({"y": [0.0] * 24}, "gives list for the output 'y'"),
        ({"y": np.zeros(24)}, r"gives float64\[24\] for the output 'y', which is float32\[24\]"),
        ({"y": np.zeros(23, np.float32)}, r"float32\[23\]"),
        ({"y": np.broadcast_to(np.float32(0), 24)}, "read-only"),
        ({"y": np.lib.stride_tricks.as_strided(np.zeros(1, "f"), (24,), (0,))}, "one place"),
        ({"y": (both := np.zeros(24, np.float32)), "z": both}, "'y' and 'z' that share memory"),
        ({"y": OnDevice()}, "no array for 'y': the tensor is on cuda:0"),
    ],
)
def test_arrays_that_do_not_fit_are_refused_before_the_run(
    out: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidModel, match=message):
        two_outputs().run({"x": RAMP}, out)


def test_interleaved_arrays_share_no_memory() -> None:
    memory = np.zeros((24, 2), np.float32)
    two_outputs().run({"x": RAMP}, {"y": memory[:, 0], "z": memory[:, 1]})
    assert np.array_equal(memory, np.stack([RAMP + 1] * 2, 1))


def test_tensors_of_other_libraries_are_read_and_written_in_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = Program(increments(24), 1)
    y = Exporter(np.zeros(24, np.float32))
    place = data_address(y.array)
    assert program.run({"x": Exporter(RAMP)}, {"y": y})["y"] is y
    assert np.array_equal(y.array, RAMP + 1)
    assert written_addresses(program, y, monkeypatch)[0] == place  # type: ignore[arg-type]
    copies: list[Any] = []
    monkeypatch.setattr(np, "copyto", lambda *given: copies.append(given))
    assert np.array_equal(program.run({"x": Exporter(RAMP)})["y"], RAMP + 1) and not copies


def test_tensors_on_other_devices_are_refused_with_the_reason() -> None:
    with pytest.raises(InvalidModel, match="'x' is no array: the tensor is on cuda:0"):
        Program(increments(24), 1).run({"x": OnDevice()})  # type: ignore[dict-item]


def test_masked_elements_are_refused_as_a_run_has_no_masks() -> None:
    program = Program(increments(24), 1)
    masked = np.ma.MaskedArray(RAMP, mask=[True] * 2 + [False] * 22)
    with pytest.raises(InvalidModel, match="'x' is a masked array that masks 2 of its 24 elements"):
        program.run({"x": masked})
    assert np.array_equal(program.run({"x": np.ma.MaskedArray(RAMP)})["y"], RAMP + 1)


def test_a_shape_that_values_decide_is_compared_behind_the_run() -> None:
    build = ModelBuilder()
    build.output(build.node("NonZero", [build.input("x", (6,))]))
    exe = gf.compile(build.model(), threads=1)
    (name,) = (tensor.name for tensor in exe.outputs)
    x = np.float32([0, 1, 0, 2, 0, 3])
    found = np.zeros((1, 3), np.int64)
    assert exe.run({"x": x}, out={name: found})[name] is found
    assert found.tolist() == [[1, 3, 5]]
    with pytest.raises(InvalidModel, match=r"gives \[1, 2\] .* computes \[1, 3\]"):
        exe.run({"x": x}, out={name: np.zeros((1, 2), np.int64)})
    with pytest.raises(InvalidModel, match=r"at most int64\[1, 6\]"):
        exe.run({"x": x}, out={name: np.zeros((1, 7), np.int64)})


def test_a_program_for_many_shapes_takes_exporters_and_writes_in_place() -> None:
    build = ModelBuilder()
    build.output(build.relu(build.input("x", ("rows", 4))))
    for sizes in (None, {"rows": (1, 3)}):
        exe = gf.compile(build.model(), threads=1, sizes=sizes)
        for rows in (1, 3):
            x = RAMP[: 4 * rows].reshape(rows, 4) - 2
            y = Exporter(np.zeros((rows, 4), np.float32))
            assert exe.run({"x": Exporter(x)}, out={"relu_1": y})["relu_1"] is y
            assert np.array_equal(y.array, np.maximum(x, 0))


def test_an_assumption_is_checked_of_exporters_too() -> None:
    build = ModelBuilder()
    build.output(build.relu(build.input("x", (3,))))
    options = gf.Options(check_assumes=True, threads=1)
    exe = gf.compile(build.model(), assume={"x": "finite"}, options=options)
    with pytest.raises(InvalidModel, match="assumed to be"):
        exe.run({"x": Exporter(np.float32([1, np.inf, 0]))})
    with pytest.raises(TypeError, match="out is a mapping"):
        exe.run({"x": RAMP[:3]}, out=[RAMP[:3]])  # type: ignore[arg-type]


def test_states_stay_in_an_array_that_is_input_and_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless another input shares its memory, or another state lies elsewhere."""
    b = ModelBuilder(0, opset=24)
    pasts, rows = (
        [b.input(f"{n}{k}", (1, e, 16)) for k in "kv"] for n, e in (("past", 6), ("x", 2))
    )
    starts = b.input("starts", (1,), "int64")
    for past, x, name in zip(pasts, rows, ("k", "v"), strict=True):
        b.node("TensorScatter", [past, x, starts], [name], axis=1)
        b.output(name, shape=(1, 6, 16))
    program = gf.compile(b.model(), options=gf.Options(threads=1)).program
    rng = np.random.default_rng(0)

    def arrays() -> dict[str, Any]:
        drawn = {name: rng.random((1, 6, 16), np.float32) for name in pasts}
        drawn |= {name: rng.random((1, 2, 16), np.float32) for name in rows}
        return {**drawn, "starts": np.array([3])}

    def is_in_place(given: dict[str, Any], out: dict[str, Any]) -> bool:
        wanted = {name: given[f"past{name}"].copy() for name in ("k", "v")}
        for name in wanted:
            wanted[name][:, 3:5] = given[f"x{name}"]
        found = addresses(program, given, out, monkeypatch)
        for name in out:
            np.testing.assert_array_equal(out[name], wanted[name])
        return data_address(out["k"]) in found

    given = arrays()
    assert is_in_place(given, {"k": given["pastk"], "v": given["pastv"]})
    given = arrays()
    assert not is_in_place(given, {"k": given["pastk"]})
    given = arrays()
    assert not is_in_place(given, {"k": given["pastk"], "v": np.empty((1, 6, 16), np.float32)})
    given = arrays()
    given["xv"] = given["pastk"][:, 4:]
    assert not is_in_place(given, {"k": given["pastk"], "v": given["pastv"]})
