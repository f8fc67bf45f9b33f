"""Prices of forms and copies: measured where the timing table knows them, else estimated.

In: kernels, layouts, the target, timings.  Out: a `Price` each.  Measured and estimated prices are
compared with each other, and the roofline is wrong by a factor that depends on the kernel more than
on its form.  So an estimate is scaled by what the timed forms of the same kernel (the timed copies
of the same tensor) took over what was estimated for them, in the median.

That factor is biased: forms are timed because their estimates are low, more often too low than too
high, so those that were not timed seem slower than they are.  Whoever fills the table guards
against it with `Timings.optimism`, by which estimates are divided: a plan that is the cheapest
although every estimate is made so much smaller, and that consists of measured prices only, is the
cheapest as long as no estimate is too high by more.  What is measured is biased too: of many noisy
times the shortest is too short.  So for whoever fills the table, what was measured but few times is
`doubtful`.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from graphflow.base.target import Target
from graphflow.cost.keys import conversion_key, definition_key, fill_key, form_key
from graphflow.cost.roofline import conversion_seconds, fill_seconds, kernel_seconds
from graphflow.kernels.recipes import Alternative, Foreign, View
from graphflow.layout import Layout
from graphflow.tir import DTYPES, Literal, PrimFunc

WRITE_PAD = 1.01
"""How much longer a kernel takes whose epilogue also selects the value of the padding."""


@dataclass(frozen=True, slots=True)
class Price:
    """Seconds, and whether they were measured."""

    seconds: float
    measured: bool = False


@dataclass(frozen=True, slots=True)
class Timings:
    """Measured seconds by key, for one target and number of threads.

    What is not among them is estimated, and the estimate divided by `optimism`.  Those of the keys
    in `doubtful` are used, but their prices do not count as measured.
    """

    known: Mapping[str, float] = field(default_factory=dict)
    optimism: float = 1.0
    doubtful: frozenset[str] = frozenset()

    def price(self, key: str) -> Price | None:
        """The measured price, or None."""
        seconds = self.known.get(key)
        return None if seconds is None else Price(seconds, key not in self.doubtful)

    def __bool__(self) -> bool:
        return bool(self.known) or self.optimism != 1.0


NO_TIMINGS = Timings()


class FormPrices:
    """The prices of one kernel's forms, with each constant that may be written to padding."""

    def __init__(
        self,
        definition: PrimFunc,
        forms: Sequence[Alternative],
        pads: Sequence[float],
        target: Target,
        threads: int,
        timings: Timings,
    ) -> None:
        self._target, self._threads, self._timings = target, threads, timings
        self._key = definition_key(definition) if timings else ""
        self._ratio = 1.0
        if timings.known:
            known = ((self._known(form, pad), form, pad) for form in forms for pad in (None, *pads))
            self._ratio = _ratio(
                (price.seconds, self._estimate(form, pad)) for price, form, pad in known if price
            )

    def price(self, form: Alternative, pad: float | None) -> Price:
        """The price of a form that writes `pad` to the padding of its output (None: anything)."""
        known = self._known(form, pad)
        if known is not None:
            return known
        plain = None if pad is None else self._known(form, None)
        if plain is not None:
            # It does the same and more: there is nothing to hope.
            return Price(plain.seconds * WRITE_PAD)
        return Price(self._estimate(form, pad) * self._ratio / self._timings.optimism)

    def _known(self, form: Alternative, pad: float | None) -> Price | None:
        if not self._timings.known or isinstance(form.recipe, View | Foreign):
            return None
        return self._timings.price(form_key(self._key, form, pad))

    def _estimate(self, form: Alternative, pad: float | None) -> float:
        seconds = kernel_seconds(form.work, self._target, self._threads)
        return seconds if pad is None else seconds * WRITE_PAD


class CopyPrices:
    """The prices of copies of one tensor, made of any of the layouts that it is given in.

    A copy is a target layout with the constant that its padding gets, if it gets one.
    """

    def __init__(
        self,
        dtype: str,
        sources: Sequence[Layout],
        targets: Sequence[tuple[Layout, Literal | None]],
        target: Target,
        threads: int,
        timings: Timings,
    ) -> None:
        self._dtype, self._timings = dtype, timings
        self._target, self._threads = target, threads
        self._ratio = 1.0
        # Copies that differ in what they write to padding, or in where they lie, take as long.
        self._estimates: dict[tuple[Layout, Layout], float] = {}
        if timings.known:
            made = ((source, layout, fill) for source in sources for layout, fill in targets)
            known = ((self._known(*copy), copy[:2]) for copy in made)
            self._ratio = _ratio(
                (price.seconds, self._estimate(*layouts)) for price, layouts in known if price
            )

    def conversion(self, source: Layout, layout: Layout, fill: Literal | None) -> Price:
        """The price of converting from `source` to `layout`."""
        known = self._known(source, layout, fill)
        if known is not None:
            return known
        return Price(self._estimate(source, layout) * self._ratio / self._timings.optimism)

    def fill(self, layout: Layout, value: Literal) -> Price:
        """The price of writing a constant to the padding of `layout`."""
        known = None
        if self._timings.known:
            known = self._timings.price(fill_key(layout, self._dtype, value))
        if known is not None:
            return known
        written = layout.padding_elements * DTYPES[self._dtype].itemsize
        estimate = fill_seconds(written, self._target, self._threads)
        return Price(estimate / self._timings.optimism)

    def _known(self, source: Layout, layout: Layout, fill: Literal | None) -> Price | None:
        if not self._timings.known:
            return None
        return self._timings.price(conversion_key(source, layout, self._dtype, fill))

    def _estimate(self, source: Layout, layout: Layout) -> float:
        found = self._estimates.get((source, layout))
        if found is None:
            found = conversion_seconds(source, layout, self._dtype, self._target, self._threads)
            self._estimates[source, layout] = found
        return found


def _ratio(timed: Iterable[tuple[float, float]]) -> float:
    """Measured over estimated, in the median; 1 where nothing was timed."""
    ratios = [measured / estimated for measured, estimated in timed if estimated > 0]
    return statistics.median(ratios) if ratios else 1.0
