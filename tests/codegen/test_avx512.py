"""Instructions of AVX-512: values that do not fill a register, or take several."""

import numpy as np
import pytest

from graphflow import tir
from graphflow.arith import Var, const
from graphflow.codegen import host_target
from graphflow.codegen.avx512 import TABLE_ENTRIES, looked_up
from graphflow.codegen.statements.emit_loops import MAX_VECTORS
from graphflow.llvm import IrBuilder, IrValue
from support.native import Native

COUNT = 960


def needs_vectors(lanes: int) -> None:
    """Skip a test whose vectorized loop is longer than a kernel of the host's width may have."""
    target = host_target()
    most = MAX_VECTORS * target.computed_lanes("float32")
    if lanes > most:
        pytest.skip(f"{lanes} lanes are more than the {most} in {MAX_VECTORS} vectors of the host")


def in_lanes(lanes: int) -> tir.PrimFunc:
    """`y = max(exp(x), x)` in vectors of `lanes` elements."""
    x, y = tir.Buffer("x", (COUNT,)), tir.Buffer("y", (COUNT,))
    o, v = Var("o"), Var("v")
    at = (o * lanes + v,)
    value = tir.Binary("max", tir.Unary("exp", tir.Load(x, at)), tir.Load(x, at))
    inner = tir.For(v, const(0), const(lanes), tir.LoopKind.VECTORIZED, (tir.Store(y, at, value),))
    outer = tir.For(o, const(0), const(COUNT // lanes), tir.LoopKind.SERIAL, (inner,))
    return tir.PrimFunc(
        "k",
        (tir.Param(x, tir.Role.INPUT), tir.Param(y, tir.Role.OUTPUT)),
        (tir.Block("b", (outer,)),),
    )


@pytest.mark.parametrize("lanes", [1, 2, 3, 5, 8, 10, 32, 64])
def test_results_do_not_depend_on_the_number_of_lanes(lanes: int) -> None:
    """So that the last elements of a row, in a shorter vector, are as exact as those before."""
    needs_vectors(lanes)
    rng = np.random.default_rng(3)
    x = rng.normal(scale=40, size=COUNT).astype(np.float32)
    x[::17], x[1::19], x[2::23], x[3::29] = np.nan, np.inf, -np.inf, -0.0
    wanted, got = (Native(in_lanes(k), host_target())({"x": x})["y"] for k in (16, lanes))
    np.testing.assert_array_equal(
        got.view(np.uint32)[~np.isnan(got)], wanted.view(np.uint32)[~np.isnan(wanted)]
    )
    assert (np.isnan(got) == np.isnan(x)).all()


def test_a_table_fills_a_register() -> None:
    with pytest.raises(ValueError, match=f"{TABLE_ENTRIES} entries, not 8"):
        looked_up(IrBuilder(), (1.0,) * 8, IrValue("%x", "i32", 16))


def largest(lanes: int, op: tir.ReduceOp) -> tir.PrimFunc:
    """The extremum of `lanes` elements in one vector, and of what `y` holds."""
    x, y = tir.Buffer("x", (lanes,)), tir.Buffer("y", ())
    v = Var("v")
    fold = tir.For(
        v,
        const(0),
        const(lanes),
        tir.LoopKind.VECTORIZED,
        (tir.Reduce(op, y, (), tir.Load(x, (v,))),),
    )
    first = tir.Store(y, (), tir.Load(x, (const(0),)))
    return tir.PrimFunc(
        "k",
        (tir.Param(x, tir.Role.INPUT), tir.Param(y, tir.Role.OUTPUT)),
        (tir.Block("b", (first, fold)),),
    )


@pytest.mark.parametrize("lanes", [4, 7, 16, 29, 58])
@pytest.mark.parametrize("op", [tir.ReduceOp.MAX, tir.ReduceOp.MIN])
def test_an_extremum_of_lanes_orders_zeros_and_keeps_nan(lanes: int, op: tir.ReduceOp) -> None:
    needs_vectors(lanes)
    native = Native(largest(lanes, op), host_target())
    sign = 1 if op is tir.ReduceOp.MAX else -1
    for place in range(lanes):
        x = np.full(lanes, -0.0 * sign, np.float32)
        x[place] = 0.0 * sign
        y = native({"x": x})["y"]
        assert y == 0 and np.signbit(y) == (sign < 0)
        x[:] = -np.inf * sign
        x[(place + 1) % lanes] = np.inf * sign
        assert native({"x": x})["y"] == np.inf * sign
        x[place] = np.nan
        assert np.isnan(native({"x": x})["y"])
        x[:] = -np.inf * sign
        assert native({"x": x})["y"] == -np.inf * sign
