"""Sums of products of narrow numbers, for tests of the tiles that add them up."""

from graphflow import tir


def narrow(func: tir.PrimFunc, types: tuple[str, str]) -> tir.PrimFunc:
    """A product of int32 or float32 whose operands are of narrower types."""
    old = func.inputs[:2]
    new = {b: tir.Buffer(b.name, b.shape, t) for b, t in zip(old, types, strict=True)}

    def change(e: tir.Expr) -> tir.Expr:
        if isinstance(e, tir.Load) and e.buffer in new:
            return tir.Cast(tir.Load(new[e.buffer], e.indices), e.dtype)
        return e

    params = [tir.Param(new.get(p.buffer, p.buffer), p.role) for p in func.params]
    return tir.PrimFunc(func.name, tuple(params), tir.map_expressions(func.body, change))
