"""Sizes that are computed from sizes: `n + m`, `n·m`, `n − 1`, `n // 2`, the lesser of two, and the
greater.

In: an operation on integers of which some are sizes.  Out: an integer where the sizes cancel, or
the tensor that holds the result in a run.  It is a size itself, with bounds, and an input of the
graph that a run computes by a formula; sums, products and lesser ones of counts that data decides
are computed by kernels.  What always holds: equal sums,
products and quotients are one tensor, so that extents which agree are known to agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from math import prod
from typing import TypeAlias

import numpy as np

from graphflow.base.fields import replace
from graphflow.base.sizes import (
    FormulaKind,
    Relation,
    Size,
    SizeFormula,
    SizeRelation,
    SizeStep,
)
from graphflow.frontends.tensors.context import ImportContext
from graphflow.frontends.tensors.data_sizes import count_kernel, is_of_data, size_by_kernels
from graphflow.frontends.tensors.size_sums import (
    Product,
    Quotient,
    SizeSum,
    Term,
    divided,
    divisors_in,
    exact_ratio,
    multiples,
    product,
    quotient,
)
from graphflow.graph import DerivedSize

Element: TypeAlias = "int | str"
"""An integer, or the tensor that holds a size."""

FMOD = "Mod with fmod"
"""ONNX's Mod with `fmod`, whose result has the sign of what is divided."""


def _remainder(left: SizeSum, right: SizeSum, sizes: Mapping[str, Size]) -> SizeSum | None:
    """What is left of a division by a positive number that rounds down, as that of ONNX's Mod."""
    if not right.is_positive_number:
        return None
    return left.plus(quotient(left, right.offset, sizes), -right.offset)


def _truncated(left: SizeSum, right: SizeSum, sizes: Mapping[str, Size]) -> SizeSum | None:
    """What is left of a division that rounds to zero, as that of C's fmod."""
    whole = divided(left, right, sizes)
    return None if whole is None else left.plus(whole, -right.offset)


_COMBINED: dict[str, Callable[[SizeSum, SizeSum, Mapping[str, Size]], SizeSum | None]] = {
    "Add": lambda left, right, _: left.plus(right),
    "Sub": lambda left, right, _: left.plus(right, -1),
    "Mul": lambda left, right, _: product(left, right),
    "Div": divided,
    "Mod": _remainder,
    FMOD: _truncated,
}

COMBINING = frozenset(_COMBINED)
"""The operators whose results are sums and quotients of sizes, where both operands are."""


def combined(context: ImportContext, op: str, left: Element, right: Element) -> Element | None:
    """`left op right` for one of `COMBINING`; None where that is no sum of sizes and quotients."""
    divisor, limits = _terms(context, right), bounds_of(context, left)
    result = _COMBINED[op](_terms(context, left), divisor, context.sizes)
    if result is None and op == "Div" and divisor.is_positive_number and limits and limits[0] >= 0:
        # What is known of a lesser size shows that more is not negative.
        result = quotient(_terms(context, left), divisor.offset, context.sizes)
    if result is None:
        return None
    element = _element_of(context, result)
    if isinstance(element, str) and limits is not None:
        # The bounds of a sum of quotients are wider: each of them is taken to round by itself.
        if op == "Div":
            narrow(context, element, *(limit // divisor.offset for limit in limits))
        elif op == "Mod":
            narrow(context, element, 0, divisor.offset - 1)
    return element


def rounded_down(context: ImportContext, dividend: Element, summand: int, divisor: int) -> Element:
    """`(dividend + summand) // divisor` of a number or a size, for a positive divisor."""
    shifted = _terms(context, dividend).plus(SizeSum((), summand))
    return _element_of(context, quotient(shifted, divisor, context.sizes))


def total(context: ImportContext, elements: Iterable[Element]) -> Element:
    """The sum of numbers and counts; it is a size if all of these are."""
    result = SizeSum((), 0)
    for element in elements:
        result = result.plus(_terms(context, element))
    return _element_of(context, result)


def product_of(context: ImportContext, elements: Iterable[Element]) -> SizeSum:
    """The product of numbers and sizes, in normal form: equal products are equal."""
    return reduce(product, (_terms(context, element) for element in elements), SizeSum((), 1))


def merged(context: ImportContext, elements: Iterable[Element]) -> Element:
    """The product of numbers and sizes."""
    factors = tuple(elements)
    return _narrowed_ratio(context, product_of(context, factors), factors, ())


def ratio_of(
    context: ImportContext, dividends: Sequence[Element], divisors: Sequence[Element]
) -> Element | None:
    """What gives the product of `dividends`, none of which is negative, if it is multiplied with
    that of `divisors`; None where that is no size."""
    result = exact_ratio(product_of(context, dividends), product_of(context, divisors))
    return None if result is None else _narrowed_ratio(context, result, dividends, divisors)


def _narrowed_ratio(
    context: ImportContext,
    result: SizeSum,
    dividends: Sequence[Element],
    divisors: Sequence[Element],
) -> Element:
    """The element that is a ratio, with bounds by those of what it is made of: a sum of products
    loses what the products have in common."""
    found = _element_of(context, result)
    limits = [bounds_of(context, one) for one in (*dividends, *divisors)]
    if not isinstance(found, str) or any(one is None or one[0] < 0 for one in limits):
        return found
    above, below = (
        [one for one in part if one is not None]
        for part in (limits[: len(dividends)], limits[len(dividends) :])
    )
    (least, most), (low, high) = (
        (prod(one[0] for one in part), prod(one[1] for one in part)) for part in (above, below)
    )
    if low > 0:
        narrow(context, found, -(-least // high), most // low)
    return found


def lesser(context: ImportContext, left: Element, right: Element) -> Element:
    """The lesser of two numbers or counts: the same tensor for all that ask for it, so that what is
    cut to it is known to have equally many elements.  It is a size if the counts are."""
    if left == right or is_at_most(context, left, right):
        return left
    if is_at_most(context, right, left):
        return right
    first, second = sorted((left, right), key=str)
    known = context.lesser_counts.get((first, second))
    if known is None or known not in context.graph.values:
        bounds = [bounds_of(context, one) for one in (first, second)]
        if all(bounds):
            words = (context.sizes[n].name if isinstance(n, str) else n for n in (first, second))
            name = "min({}, {})".format(*words)
            size = Size(name, *map(min, zip(*filter(None, bounds), strict=True)))
            known = _derived(context, size, "lesser", (first, second))
        else:
            known = count_kernel(context, "min", *(held(context, one) for one in (first, second)))
        context.lesser_counts[first, second] = known
    return known


def greater(context: ImportContext, left: Element, right: Element) -> Element:
    """The greater of two numbers or counts: their sum less the lesser of them.

    What is subtracted in one of them is added to both, so that `max(n - m, 0)` is `n - min(n, m)`.
    """
    terms = [_terms(context, one) for one in (left, right)]
    taken = SizeSum((), 0)
    for one in terms:
        for term, factor in one.factors:
            if factor < 0:
                taken = taken.plus(SizeSum(((term, 1),), 0), -factor)
    shifted = [_element_of(context, one.plus(taken)) for one in terms]
    least = _terms(context, lesser(context, *shifted)).plus(taken, -1)
    result = _element_of(context, terms[0].plus(terms[1]).plus(least, -1))
    bounds = [bounds_of(context, one) for one in (left, right)]
    if isinstance(result, str) and all(bounds):
        narrow(context, result, *map(max, zip(*filter(None, bounds), strict=True)))
    return result


class SizesRelated(Exception):
    """Sizes of inputs have to be in relations in each run, which the import did not know."""

    def __init__(self, *relations: Relation) -> None:
        super().__init__(", ".join(map(str, relations)))
        self.relations = relations


def require_equal(context: ImportContext, first: Element, second: Element) -> None:
    """Raise SizesRelated where two counts are equal in all runs that satisfy a relation between
    sizes of inputs; do nothing where no relation of that kind is found."""
    for one, other in ((first, second), (second, first)):
        for pair, known in context.lesser_counts.items():
            if known == one and other in pair:
                (greater,) = (element for element in pair if element != other)
                left = _terms(context, greater).plus(_terms(context, other), -1)
                _raise_related(context, left, is_exact=False)
    difference = _terms(context, first).plus(_terms(context, second), -1)
    _raise_related(context, difference, is_exact=True)
    _raise_step(context, difference)


def require_steps(context: ImportContext, first: Element, second: Element) -> None:
    """Raise SizesRelated where two counts are equal for the multiples of some step of the only size
    that is in them, as `n` and twice `n // 2` are; do nothing for others."""
    _raise_step(context, _terms(context, first).plus(_terms(context, second), -1))


def require_all_equal(context: ImportContext, pairs: Iterable[tuple[Element, Element]]) -> None:
    """`require_equal` of the first pair; the steps of further sizes that other pairs need are
    raised with its step, as each relation that is raised alone takes one more import."""
    found: list[Relation] = []
    for pair in pairs:
        try:
            require_equal(context, *pair)
        except SizesRelated as error:
            (relation,) = error.relations
            steps = all(isinstance(one, SizeStep) for one in (*found, relation))
            if not found or (steps and relation.size not in {one.size for one in found}):
                found.append(relation)
        if not found:
            return
    if found:
        raise SizesRelated(*found)


def add_step(context: ImportContext, tensor: str, step: int) -> None:
    """Record that the size that a tensor holds, one of an input, is a multiple of `step`: it is
    `step` times a size that a run computes."""
    size = context.sizes[tensor]
    least = -(-size.lo // step)
    words = f"{size.name} // {step}"
    unit = _derived(context, Size(words, least, size.hi // step), "quotient", (tensor,), 1, 0, step)
    same = SizeSum(((unit, step),), 0)
    context.sums[same], context.summed[tensor] = tensor, same
    context.sizes[tensor] = replace(size, lo=step * least)
    context.steps[unit] = SizeStep(size.name, step)


def require_at_least(context: ImportContext, count: str, least: int) -> None:
    """Raise SizesRelated where a count is at least so much in all runs whose size of an input has a
    greater least; do nothing where more than one size decides."""
    terms = _terms(context, count)
    name, known = _only_size(context, terms)
    if known is None:
        return
    size = context.sizes[name]
    for value in range(size.lo + 1, size.hi + 1):
        if terms.value({name: value}) >= least:
            raise SizesRelated(SizeRelation(known.size, (), known.step * value, is_exact=False))


def _only_size(context: ImportContext, total: SizeSum) -> tuple[str, SizeStep | None]:
    """The only size in a sum: the tensor that holds it, and of which size of an input it is the
    number of steps; None if there are several, or an equation determines it."""
    names = set(total.names())
    (name,) = names if len(names) == 1 else ("",)
    inputs = {one.tensor: SizeStep(one.size.name, 1) for one in context.graph.sizes}
    known = context.steps.get(name, inputs.get(name))
    return name, None if name in context.summed else known


def _raise_step(context: ImportContext, difference: SizeSum) -> None:
    """Raise SizesRelated if `difference` is zero for the multiples of some step of the only size
    that is in it."""
    name, known = _only_size(context, difference)
    if known is None:
        return
    size = context.sizes[name]
    for step in divisors_in(difference):
        sizes = {**context.sizes, name: replace(size, lo=-(-size.lo // step), hi=size.hi // step)}
        if multiples(difference, name, step, sizes) == SizeSum((), 0):
            raise SizesRelated(SizeStep(known.size, known.step * step))


def _raise_related(context: ImportContext, difference: SizeSum, is_exact: bool) -> None:
    """Raise SizesRelated where a relation between sizes of inputs makes `difference` zero, if
    `is_exact`, or else keeps it from being negative.

    The size that an equation determines is a sum of others, best one whose most is what these give
    at theirs; a lower one limits them, and a higher one is lowered.  Where none is a sum, it is a
    difference that has as its most what the others give.
    """
    inputs = {one.tensor: one.size for one in context.graph.sizes}
    factors = [(name, n) for name, n in difference.factors if isinstance(name, str)]
    if len(factors) < len(difference.factors) or not dict(factors).keys() <= inputs.keys():
        return
    if is_exact:
        pairs = [(n, _alone(n).plus(difference, -k)) for n, k in reversed(factors) if abs(k) == 1]
        equal = [(n, rest) for n, rest in pairs if rest.bounds(inputs)[1] == inputs[n].hi]
        sums = [(n, rest) for n, rest in pairs if all(factor > 0 for _, factor in rest.factors)]
        found = [*(pair for pair in equal if pair in sums), *sums, *equal]
    else:
        found = [(n, _alone(n).plus(difference, -1)) for n, k in reversed(factors) if k == 1]
    for tensor, rest in found:
        if rest.factors or not is_exact:
            others = tuple((inputs[n].name, k) for n, k in rest.factors if isinstance(n, str))
            raise SizesRelated(SizeRelation(inputs[tensor].name, others, rest.offset, is_exact))


def _alone(tensor: str) -> SizeSum:
    return SizeSum(((tensor, 1),), 0)


def held(context: ImportContext, element: Element) -> str:
    """The tensor that holds a number or a count: a constant for a number."""
    if isinstance(element, str):
        return element
    return context.new_constant(f"number.{element}", np.array(element, np.int64))


def is_at_most(context: ImportContext, left: Element, right: Element) -> bool:
    """Whether `left` is at most `right` in every run."""
    for pair, known in context.lesser_counts.items():
        if known == left and any(one == right or is_at_most(context, one, right) for one in pair):
            return True
    bounds = _bounds_of_sum(context, _terms(context, right).plus(_terms(context, left), -1))
    return bounds is not None and bounds[0] >= 0


def narrow(context: ImportContext, tensor: str, lo: int, hi: int) -> None:
    """Record that a computed size is from `lo` to `hi` in every run; nothing for one of an input,
    whose bounds are those that the user states."""
    is_derived = any(one.tensor == tensor for one in context.graph.derived)
    if not is_derived and tensor not in context.data_sizes:
        return
    known = context.sizes[tensor]
    size = replace(known, lo=max(known.lo, lo), hi=min(known.hi, hi))
    context.sizes[tensor] = size
    context.graph.derived = tuple(
        replace(one, size=size) if one.tensor == tensor else one for one in context.graph.derived
    )


def bounds_of(context: ImportContext, element: Element) -> tuple[int, int] | None:
    """The least and the greatest value of a number or a size; None for another count."""
    if isinstance(element, int):
        return element, element
    size = context.sizes.get(element)
    return None if size is None else (size.lo, size.hi)


def _bounds_of_sum(context: ImportContext, one: SizeSum) -> tuple[int, int] | None:
    """The least and the greatest value of a sum; None unless it is one of sizes."""
    if not all(name in context.sizes for name in one.names()):
        return None
    lo, hi = one.bounds(context.sizes)
    above = (one.plus(known, -1).bounds(context.sizes)[0] for known in _nonnegative(context))
    below = (
        one.plus(context.summed[tensor], -1).bounds(context.sizes)[1] + context.sizes[tensor].hi
        for tensor in context.limiting
    )
    return max(lo, *above, lo), min(hi, *below, hi)


def _nonnegative(context: ImportContext) -> Iterator[SizeSum]:
    """Sums of sizes that are not negative in any run: relations, and what each of two sizes has
    more than the lesser one."""
    yield from context.nonnegative
    for pair, known in context.lesser_counts.items():
        for one in pair:
            more = _terms(context, one).plus(_alone(known), -1)
            if all(name in context.sizes for name in more.names()):
                yield more


def _terms(context: ImportContext, element: Element) -> SizeSum:
    if isinstance(element, int):
        return SizeSum((), element)
    return context.summed.get(element, SizeSum(((element, 1),), 0))


def _element_of(context: ImportContext, wanted: SizeSum) -> Element:
    """The number that a sum is, or the tensor that holds it in a run."""
    if not wanted.factors:
        return wanted.offset
    term, _ = wanted.factors[0]
    if isinstance(term, str) and wanted == SizeSum(((term, 1),), 0):
        return term
    known = context.sums.get(wanted)
    if known is None or known not in context.graph.values:
        bounds = _bounds_of_sum(context, wanted)
        if bounds is None:
            known = _computed(context, wanted)
        else:
            known = _by_formula(context, wanted, Size(wanted.text(context.sizes), *bounds))
        context.sums[wanted] = known
        context.summed[known] = wanted
    return known


def _by_formula(context: ImportContext, wanted: SizeSum, size: Size) -> str:
    """Add an input for a sum of sizes; returns that tensor."""
    first, _ = wanted.factors[0]
    if wanted == SizeSum(((first, 1),), 0):
        if isinstance(first, Product):
            return _derived(context, size, "product", _held_terms(context, first.factors))
        assert isinstance(first, Quotient)  # a size alone is held already
        dividend, divisor = first.dividend, first.divisor
    else:
        dividend, divisor = wanted, 1
    terms, factors = zip(*dividend.factors, strict=True)
    numbers = (*factors, dividend.offset, divisor)
    return _derived(context, size, "quotient", _held_terms(context, terms), *numbers)


def _held_terms(context: ImportContext, terms: Iterable[Term]) -> list[Element]:
    """The tensors that hold terms of a sum or a product."""
    return [_element_of(context, SizeSum(((term, 1),), 0)) for term in terms]


def _derived(
    context: ImportContext,
    size: Size,
    kind: FormulaKind,
    elements: Sequence[Element],
    *numbers: int,
) -> str:
    """Add what computes a size from sizes and numbers; returns the tensor that holds it."""
    operands = tuple(element for element in elements if isinstance(element, str))
    given = tuple(element for element in elements if isinstance(element, int))
    return derived_size(context, size, SizeFormula(kind, (*given, *numbers)), operands)


def derived_size(
    context: ImportContext, size: Size, formula: SizeFormula, operands: tuple[str, ...]
) -> str:
    """Add an input that is computed from sizes in front of the graph's first node, or kernels where
    kernels of the graph compute one of these; returns the tensor that holds it."""
    if any(context.graph.producer(one) is not None for one in operands):
        return size_by_kernels(context, size, formula, operands)
    tensor = context.graph.add_input(context.unique_tensor_name("size"), "int64", ())
    context.graph.derived += (DerivedSize(size, tensor, formula, operands),)
    context.sizes[tensor] = size
    if is_of_data(context, operands):  # in a body, which is given them
        context.data_sizes[tensor] = None
    return tensor


def _computed(context: ImportContext, wanted: SizeSum) -> str:
    """Add the kernels that compute a sum of counts in a run; returns the tensor that holds it."""
    first, _ = wanted.factors[0]
    if wanted == SizeSum(((first, 1),), 0):
        assert isinstance(first, Product)  # quotients are of sizes
        parts = [held(context, part) for part in _held_terms(context, first.factors)]
        return reduce(partial(count_kernel, context, "mul"), parts)
    result = ""
    for term, factor in wanted.factors:
        (part,) = (held(context, one) for one in _held_terms(context, (term,)))
        part = part if factor == 1 else count_kernel(context, "mul", part, held(context, factor))
        result = count_kernel(context, "add", result, part) if result else part
    if wanted.offset:
        result = count_kernel(context, "add", result, held(context, wanted.offset))
    return result
