"""Programs of one model share what they pack alike, constant by constant."""

from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from graphflow.api.borrowing import borrowed
from graphflow.api.compiled_model import Loaded, loaded
from graphflow.base.errors import VerifyError
from graphflow.base.fields import replace
from graphflow.base.options import Options
from graphflow.frontends import ReadModel, open_model
from graphflow.layout import channels_last, row_major
from graphflow.models import ModelBuilder
from graphflow.pipeline.compiler import Compiled, compile_graph
from graphflow.pipeline.request import CompileRequest
from graphflow.program import BufferRef, ProgramStep
from graphflow.runtime import Borrowed, Program
from support.programs import X, Y, add, inc, spec, vector

_PINNED = "weight_1"


def _convolutions(seed: int = 1, channels: int = 40) -> ReadModel:
    """Two convolutions, the second one of them with weights of more than 64 KB."""
    build = ModelBuilder(seed=seed, name="two")
    x = build.input("x", (1, 5, 6, 6))
    y = build.relu(build.conv(x, channels, 3, pads=[1, 1, 1, 1]))
    build.output(build.conv(y, 64, 3, pads=[1, 1, 1, 1]))
    return open_model(build.model().SerializeToString())


def _compiled(model: ReadModel, layout: Any, **options: Any) -> Compiled:
    return compile_graph(
        CompileRequest(model, layouts={_PINNED: layout}, options=Options(threads=1, **options))
    )


def _two_layouts(model: ReadModel) -> tuple[Compiled, Compiled]:
    shape = tuple(model.proto.graph.initializer[0].dims)
    assert model.proto.graph.initializer[0].name == _PINNED
    return _compiled(model, row_major(shape)), _compiled(model, channels_last(shape))


def _result(one: Loaded, x: NDArray[Any]) -> NDArray[Any]:
    (result,) = one.program.run({"x": x}).values()
    return result


def test_what_is_packed_alike_is_borrowed_and_the_rest_is_prepared() -> None:
    first, second = _two_layouts(_convolutions())
    lender, alone = loaded(first), loaded(second)
    both = loaded(second, [lender])
    found = borrowed(second, [(first, lender.program)])
    assert 0 < len(found.steps) < len(second.spec.prepare)
    assert max(part.nbytes for part in found.parts.values()) > 1 << 16, "the second convolution"
    assert all(np.shares_memory(part, lender.program.prepared) for part in found.parts.values())
    assert both.program.prepared.tobytes() == alone.program.prepared.tobytes()
    x = np.random.default_rng(1).standard_normal((1, 5, 6, 6)).astype(np.float32)
    assert (_result(both, x) == _result(alone, x)).all()


def test_a_borrower_lends_what_it_has_borrowed() -> None:
    first, second = _two_layouts(_convolutions())
    alone, lender = loaded(second), loaded(first)
    middle = loaded(second, [lender])
    del lender
    found = borrowed(first, [(second, middle.program)])
    last = Program(first.spec, 1, borrowed=found)
    assert found.steps
    assert last.prepared.tobytes() == loaded(first).program.prepared.tobytes()
    again = Program(second.spec, 1, alike=middle.program)
    assert again.prepared.tobytes() == alone.program.prepared.tobytes()


def test_other_weights_are_not_borrowed() -> None:
    (first, _), (_, second) = (_two_layouts(_convolutions(seed)) for seed in (1, 2))
    parts = borrowed(second, [(first, loaded(first).program)]).parts
    weights = [p for p in parts.values() if np.frombuffer(p.tobytes(), np.float32).any()]
    assert not weights, "zeros that a model adds are the same in all of them"


def test_constants_of_another_floating_point_mode_are_not_borrowed() -> None:
    model = _convolutions()
    first, second = _two_layouts(model)
    flushed = replace(first, options=replace(first.options, flush_denormals=True))
    assert not borrowed(second, [(flushed, loaded(first).program)]).parts


def test_what_is_written_twice_is_not_borrowed() -> None:
    first, second = _two_layouts(_convolutions())
    twice = replace(first.spec, prepare=first.spec.prepare * 2)
    lender = (replace(first, spec=twice), loaded(first).program)
    assert not borrowed(second, [lender]).steps


def test_a_program_reads_a_borrowed_constant_and_skips_its_step() -> None:
    packed, other = BufferRef("constant", 0), BufferRef("constant", 4096)
    made = spec(
        [inc(), add()],
        [ProgramStep("add", (X, packed, Y), 1000)],
        [vector("x", 1000)],
        [vector("y", 1000)],
        prepare=(ProgramStep("inc", (other, packed), 1000),),
        constants=((4096, np.ones(1000, np.float32)),),
        constant_bytes=8192,
    )
    seven = np.full(1000, 7, np.float32).view(np.uint8)
    program = Program(made, 1, borrowed=Borrowed({0: seven}, frozenset((0,))))
    x = np.arange(1000, dtype=np.float32)
    assert (program.run({"x": x})["y"] == x + 7).all()
    assert (program.prepared[:4000] == seven).all()
    assert program.constants.part(0, 4000) is seven


def test_sections_borrow_nothing() -> None:
    build = ModelBuilder(seed=1, name="section")
    x = build.input("x", (1, 5, 6, 6))
    build.output(build.conv(x, 7, 3))
    model = build.model()
    strange = onnx.helper.make_node("Multinomial", ["flat"], ["drawn"], seed=1.0)
    flat = onnx.helper.make_node("Flatten", [model.graph.output[0].name], ["flat"])
    model.graph.node.extend((flat, strange))
    model.graph.output.append(
        onnx.helper.make_tensor_value_info("drawn", onnx.TensorProto.INT32, [1, 1])
    )
    compiled = compile_graph(CompileRequest(model, options=Options(threads=1)))
    assert compiled.spec.sections
    program = Program(compiled.spec, 1)
    assert not borrowed(compiled, [(compiled, program)]).parts
    with pytest.raises(VerifyError, match="borrow nothing"):
        Program(compiled.spec, 1, borrowed=Borrowed({0: program.constants.part(0, 64)}))
