"""Assumptions about the values of an input, stated in the kernel for later steps to rest on.

In: a kernel, an input of floats, and the reason why its caller knows the fact.  Out: the kernel
with a block that assumes the fact of every logical element.  What always holds: assumptions that
contradict each other are a VerifyError; the caller answers for their truth.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from graphflow import arith, tir
from graphflow.base.errors import ScheduleError
from graphflow.base.fields import replace
from graphflow.schedule.facts import soundness
from graphflow.schedule.facts.padding import is_padding, padding_stages
from graphflow.schedule.places import place_names, places
from graphflow.schedule.steps.frame import Rewrite


def assume_finite(func: tir.PrimFunc, buffer: str, because: str) -> Rewrite:
    """`S` → `for i: assume(abs(b[i]) < inf)`, then `S`: the input holds no NaN and no infinity.

    Of a buffer in a padded layout the padding is not assumed to be finite.  The caller must know
    the fact, and `because` says from what: a constant's values, or what a user states of an input.
    ScheduleError for a buffer that is not an input of floats.

    Makes the block that states it in the role `block`.
    """
    return _stating(
        func,
        buffer,
        "finite",
        _finite,
        arith.Proof(arith.Verdict.PROVEN, f"every element of {buffer} is finite", because),
    )


def assume_reciprocal(func: tir.PrimFunc, buffer: str, because: str) -> Rewrite:
    """`S` → `for i: assume(1/b[i] > -inf)`, then `S`: no element of the input is −0.0.

    It is stated by reciprocals because comparisons do not tell −0.0 from 0.0.  The caller must know
    the fact, and `because` says from what.  ScheduleError for a buffer that is not an input of
    floats.

    Makes the block that states it in the role `block`.
    """
    return _stating(
        func,
        buffer,
        "reciprocal",
        _reciprocal_above,
        arith.Proof(arith.Verdict.PROVEN, f"no element of {buffer} is -0.0", because),
    )


def _finite(x: tir.Expr) -> tir.Expr:
    return tir.Comparison("lt", tir.Unary("abs", x), tir.Literal(inf, x.dtype))


def _reciprocal_above(x: tir.Expr) -> tir.Expr:
    return tir.Comparison(
        "gt", tir.Binary("div", tir.Literal(1.0, x.dtype), x), tir.Literal(-inf, x.dtype)
    )


def is_finite_claim(claim: tir.Expr, load: tir.Load) -> bool:
    """Whether a claim is exactly that the element which `load` reads is finite."""
    return claim == _finite(load)


def is_reciprocal_claim(claim: tir.Expr, load: tir.Load) -> bool:
    """Whether a claim is exactly that the reciprocal of what `load` reads is above −∞."""
    return claim == _reciprocal_above(load)


def _stating(
    func: tir.PrimFunc,
    buffer: str,
    what: str,
    claim: Callable[[tir.Load], tir.Expr],
    proof: arith.Proof,
) -> Rewrite:
    found = places.find_buffer(func, buffer)
    if found not in func.inputs or found.dtype not in tir.FLOATS:
        raise ScheduleError(f"{buffer} is not an input of floats, so there is nothing to state")
    block, *loops = place_names.stage_names(func, f"{buffer}_{what}", len(found.shape))
    names = tuple(map(arith.Var, loops))
    # The fact is one of the tensor: the padding of its buffer is excluded.
    padding = is_padding(padding_stages(func, found), found, names)
    body: tir.Body = (tir.Assume(padding, claim(tir.Load(found, names))),)
    body = tir.nest(tuple(zip(names, found.shape, strict=True)), body)
    stage = tir.Block(block, body, ((tir.BlockNote.STATES, buffer),))
    new = replace(func, body=(stage, *func.body))
    soundness.require_consistent(new)
    return Rewrite(new, (proof,), made={"block": (block,)})
