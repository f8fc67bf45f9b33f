"""Loops of products that execute all their iterations."""

from graphflow import tir
from graphflow.arith import Var, const
from graphflow.codegen import instruction
from graphflow.codegen.emit_index import Indices
from graphflow.codegen.statements.whole_products import (
    WholeProducts,
    count_products,
    product_loops,
)
from graphflow.llvm import IrBuilder, IrValue

PRODUCT = instruction("u8_product8")
ROWS = 12


def windows(begin: str, end: str) -> tir.PrimFunc:
    """Sums over three rows, of which a position has those from `begin` to `end`."""
    definition = tir.to_text(PRODUCT).replace("@primfunc", "@instruction")
    return tir.parse(f"""{definition}
@primfunc
def k(x: u8[{ROWS}, 8], w: i16[3, 8], y: out[i32[{ROWS}, 8]]):
    for r in serial(0, {ROWS}):
        for tile in serial(0, 2):
            total = alloc(i32[2, 8], register)
            for kh in serial({begin}, {end}):
                for o in unrolled(0, 2):
                    u8_product8(total[o, 0:8], x[r + kh - 1, 0:8], w[kh, 0:8])
""")


def loops(func: tir.PrimFunc) -> dict[str, tir.For]:
    return {str(loop.var): loop for loop in tir.loops_of(func.body)}


def row(indices: Indices, found: dict[str, tir.For]):
    """The context in which the loop over rows is open."""
    return indices.running(found["r"].var, IrValue("%r", "i64"), (0, ROWS - 1))


def test_ends_that_follow_from_the_row_are_tested_there() -> None:
    found = loops(windows("max(1 - r, 0)", f"min({ROWS + 1} - r, 3)"))
    indices = Indices(IrBuilder())
    wholes = WholeProducts((PRODUCT,), indices)
    with row(indices, found):
        limits = wholes.limits(found["r"], found["r"].body)
        assert sorted(limits.values()) == [0, 3]
        assert not wholes.limits(found["tile"], found["tile"].body)
        assert wholes.unrolled(found["kh"]) is None
        with wholes.assuming(limits):
            whole = wholes.unrolled(found["kh"])
            assert whole is not None and (whole.start, whole.stop) == (const(0), const(3))
            assert not wholes.limits(found["r"], found["r"].body)
        assert wholes.unrolled(found["kh"]) is None


def test_constant_ends_need_no_test() -> None:
    found = loops(windows("0", "3"))
    wholes = WholeProducts((PRODUCT,), Indices(IrBuilder()))
    assert wholes.unrolled(found["kh"]) == found["kh"]
    assert wholes.unrolled(found["tile"]) is None


def test_ends_of_loops_inside_are_not_known_outside() -> None:
    found = loops(windows("max(1 - tile, 0)", "3"))
    indices = Indices(IrBuilder())
    wholes = WholeProducts((PRODUCT,), indices)
    with row(indices, found):
        assert not wholes.limits(found["r"], found["r"].body)
        with indices.running(found["tile"].var, IrValue("%t", "i64"), (0, 1)):
            assert [*wholes.limits(found["tile"], found["tile"].body).values()] == [0]


def test_other_products_are_not_unrolled() -> None:
    found = loops(windows("max(1 - r, 0)", "3"))
    indices = Indices(IrBuilder())
    wholes = WholeProducts((instruction("i16_product8"),), indices)
    with row(indices, found):
        assert not wholes.limits(found["r"], found["r"].body)
    assert not [*product_loops((found["r"],), ())]


def test_products_are_counted() -> None:
    found = loops(windows("0", "3"))
    assert count_products(found["kh"].body, range(3)) == 6
    assert isinstance(found["kh"].var, Var)
