"""Random applications of the primitives on index conditions and on what is known of values."""

from typing import cast

from graphflow import arith, tir
from graphflow.base.fields import replace
from graphflow.schedule import (
    lift_conditions,
    merge_conditions,
    partition_loop,
    remove_branching_through_overcompute,
    remove_overcompute_through_branching,
    replace_known_loads,
    restrict_loop,
    simplify,
    split_condition,
    stride_loop,
)
from graphflow.schedule.places.places import loops_around
from support.kernels.random_kernels import Number, random_predicate
from support.primitives.buffer_cases import buffer_kernel
from support.primitives.choices import Arguments, Choices, chosen
from support.primitives.loop_cases import at, edited, kernel_with_conditions, loop_places, one_of
from support.primitives.primitive_cases import PrimitiveCase, effect_kernel
from support.primitives.refused_kernels import PLAIN
from support.primitives.statement_places import places_of
from support.schedule_checks import kernel

# Kernels ------------------------------------------------------------------------------------------


def guarded_kernel(number: Number) -> tir.PrimFunc:
    """A random kernel in which the body of some loop is under a condition on loops."""
    return _guarded(number, number(0, 3) > 0)


def bounded_kernel(number: Number) -> tir.PrimFunc:
    """One in which this condition is a bound of the loop, at times with another condition."""
    return _guarded(number, True)


def _guarded(number: Number, is_bounded: bool) -> tir.PrimFunc:
    func = effect_kernel(number)
    loop = loop_places(func, number)
    if loop is None:
        return func
    around = [each.var for each in (*loops_around(func, loop), at(func, loop))]
    condition = random_predicate(number, around, 1)
    if is_bounded:
        bounded: arith.Predicate = arith.at_least_zero(2 * around[-1] - number(1, 3))
        condition = arith.conjunction((bounded, condition) if number(0, 1) else (bounded,))
    return edited(func, loop, lambda s: (replace(s, body=(tir.If(condition, s.body),)),))


def congruent_kernel(number: Number) -> tir.PrimFunc:
    """A random kernel in which some loop does something in each second or third iteration alone."""
    func = effect_kernel(number)
    loop = loop_places(func, number)
    if loop is None:
        return func
    around = loops_around(func, loop)
    first: arith.IndexExpr = (
        around[-1].var if around and number(0, 1) else arith.const(number(0, 3))
    )
    condition = arith.equal(arith.floor_mod(first - at(func, loop).var, number(2, 3)), 0)
    return edited(func, loop, lambda s: (replace(s, body=(tir.If(condition, s.body),)),))


def conjunction_kernel(number: Number) -> tir.PrimFunc:
    """A nest of two loops under a conjunction: a condition on each loop that some iterations of it
    meet and others do not, and at times one on both."""
    extents = {"i": number(3, 6), "j": number(3, 6)}
    conditions = [
        f"{loop} {one_of(('==', '<', '>='), number)} {number(1, extent - 2)}"
        for loop, extent in extents.items()
    ]
    if number(0, 1):
        conditions.append(f"i + 2*j < {number(2, 12)}")
    return tir.parse(f"""
@primfunc
def kernel(x: i64[6, 6], y: out[i64[6, 6]]):
    for a in serial(0, 6):
        for b in serial(0, 6):
            y[a, b] = x[b, a]
    for i in serial(0, {extents["i"]}):
        for j in serial(0, {extents["j"]}):
            if {" and ".join(conditions)}:
                y[i, j] += x[i, j]
""")


def outer_condition_kernel(number: Number) -> tir.PrimFunc:
    """A random kernel in which an inner loop's body is under a condition on an outer loop."""
    func = effect_kernel(number)
    inner = [loop for loop in places_of(func, tir.For) if loops_around(func, loop)]
    loop = one_of(inner, number)
    if loop is None:
        return func
    condition = random_predicate(number, [each.var for each in loops_around(func, loop)], 1)
    return edited(func, loop, lambda s: (replace(s, body=(tir.If(condition, s.body),)),))


def overwritten_kernel(number: Number) -> tir.PrimFunc:
    """A loop k that writes some elements of a buffer under a condition, which mostly has no effect:
    they are overwritten unread, hold the value already, or get a zero added."""
    n = number(2, 6)
    condition = _condition(n, number)
    value = one_of(("t[k] = i64(1)", "t[k] = x[k]", "t[k] += i64(0)", "t[k] += x[k]"), number)
    before = ("for z in serial(0, {n}):", "    t[z] = i64(1)") if number(0, 3) else ()
    between = ("for r in serial(0, {n}):", "    y[r] = t[r]") if number(0, 3) == 0 else ()
    behind = ("for w in serial(0, {n}):", "    t[w] = x[w]") if number(0, 3) else ()
    guarded = (f"    if {condition}:", f"        {value}") if number(0, 1) else (f"    {value}",)
    lines = (
        "@primfunc",
        "def kernel(x: i64[{n}], y: out[i64[{n}]]):",
        "t = alloc(i64[{n}])",
        *before,
        "for k in serial(0, {n}):",
        *guarded,
        *between,
        *behind,
        "for o in serial(0, {n}):",
        "    y[o] = t[o]",
    )
    text = "\n".join([*lines[:2], *(f"    {line}" for line in lines[2:])])
    return tir.parse(text.replace("{n}", str(n)) + "\n")


def _condition(n: int, number: Number) -> str:
    low, high = number(0, n), number(1, max(n, 1))
    conditions = (f"k < {high}", f"k >= {low}", f"k % 2 == {low % 2}", f"k < {low} or k >= {high}")
    return str(one_of(conditions, number))


# Arguments ----------------------------------------------------------------------------------------


def _guarded_loop(c: Choices) -> Arguments:
    """A loop whose whole body is under one index condition, one with a condition, or any loop."""
    guarded = c.guarded()
    loops = c.loops()
    found = [loop for loop in loops if _only_condition(loop.body)]
    found = found or [loop for loop in loops if loop.var.name in guarded]
    found = loops if c.dice.chance(0.1) else found
    return (c.dice.among(found).var.name,) if found else None


def _of_the_nest(_func: tir.PrimFunc, number: Number) -> Arguments:
    return (one_of(("i", "j"), number),)


def _with_conditions(c: Choices) -> Arguments:
    loops = {loop.var.name for loop in c.loops()} & set(c.guarded())
    return (c.dice.among(sorted(loops)),) if loops else None


def _to_run_over(c: Choices) -> Arguments:
    """A loop or stage, at times the loop that conditions are about, and what they may become."""
    places, loop = c.guarded(), c.loop()
    if not places or loop is None:
        return None
    about = loop.var.name if c.dice.chance(0.15) else None
    return c.dice.among(places), about, c.dice.chance(0.2), c.dice.chance(0.5)


def _condition_for_loop(func: tir.PrimFunc, number: Number) -> Arguments:
    loop = loop_places(func, number)
    if loop is None:
        return None
    if loop == "k":
        return loop, _condition(at(func, loop).extent, number)
    around = [each.var for each in (*loops_around(func, loop), at(func, loop))]
    return loop, random_predicate(number, around, 1)


def _nothing(_func: tir.PrimFunc, _number: Number) -> Arguments:
    return ()


def _only_condition(body: tir.Body) -> tir.If | None:
    """The index condition without another branch that is the whole body."""
    stmt = body[0] if len(body) == 1 else None
    alone = isinstance(stmt, tir.If) and not stmt.orelse and tir.is_predicate(stmt.condition)
    return cast(tir.If, stmt) if alone else None


# What is refused ----------------------------------------------------------------------------------


def starting_late() -> tir.PrimFunc:
    body = (
        "for i in serial(0, 4):\n    for j in serial(i, i + 4):\n        if j < 3:\n            {}"
    )
    return kernel(body.format("y[j] = x[j]"))


CONDITION_CASES = (
    PrimitiveCase(
        lift_conditions, chosen(_with_conditions), outer_condition_kernel, share=1, least=1 / 4
    ),
    PrimitiveCase(merge_conditions, _nothing, kernel_with_conditions, share=0.5),
    PrimitiveCase(partition_loop, chosen(_guarded_loop), guarded_kernel, share=0.7)
    .on(starting_late, "j")
    .refuses("", "the loop j starts at i; its bounds must be constant"),
    PrimitiveCase(partition_loop, _of_the_nest, conjunction_kernel, "of a nest"),
    PrimitiveCase(
        remove_branching_through_overcompute, chosen(_to_run_over), overwritten_kernel, share=2.5
    ),
    PrimitiveCase(
        remove_overcompute_through_branching, _condition_for_loop, overwritten_kernel, least=1 / 5
    ),
    PrimitiveCase(replace_known_loads, _nothing, buffer_kernel, share=0.5),
    PrimitiveCase(restrict_loop, chosen(_guarded_loop), bounded_kernel, share=1.2),
    PrimitiveCase(simplify, _nothing, share=1),
    PrimitiveCase(split_condition, chosen(_guarded_loop), guarded_kernel, share=0.7)
    .on(PLAIN, "i")
    .refuses("", "the body of i is not a single index condition without else"),
    PrimitiveCase(stride_loop, chosen(_guarded_loop), congruent_kernel, share=0.7),
)
