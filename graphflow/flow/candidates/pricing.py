"""Prices of the variants of one kernel, and of the copies of one tensor.

In: kernels, layouts, the cost model.  Out: a `Price` each: the measured one where the timing table
has the key, else the estimate, scaled by how far the estimates of measured variants of the same
kernel (or copies of the same tensor) were off; see `graphflow.cost.cost_model`.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphflow.cost import CostModel, Price
from graphflow.kernels.recipes import (
    Foreign,
    KernelVariant,
    View,
    conversion_key,
    conversion_work,
    definition_key,
    fill_key,
    variant_key,
)
from graphflow.layout import Layout
from graphflow.tir import DTYPES, Literal, PrimFunc


class VariantPrices:
    """The prices of one kernel's variants, with each constant that they may write to padding."""

    def __init__(
        self,
        definition: PrimFunc,
        variants: Sequence[KernelVariant],
        pads: Sequence[float],
        cost: CostModel,
    ) -> None:
        self._cost = cost
        self._key = definition_key(definition) if cost.timings else ""
        self._scale = 1.0
        if cost.timings.known:
            known = (
                (self._known(variant, pad), variant, pad)
                for variant in variants
                for pad in (None, *pads)
            )
            self._scale = cost.scale_of(
                (price.seconds, self._estimate(variant, pad))
                for price, variant, pad in known
                if price
            )

    def price(self, variant: KernelVariant, pad: float | None) -> Price:
        """The price of a variant that writes `pad` to its output's padding (None: leaves it
        undefined).
        """
        known = self._known(variant, pad)
        if known is not None:
            return known
        plain = None if pad is None else self._known(variant, None)
        if plain is not None:
            # Not divided by `Timings.optimism`: it does the measured work and writes padding too.
            return Price(self._cost.with_padding(plain.seconds))
        return self._cost.estimated(self._estimate(variant, pad), self._scale)

    def _known(self, variant: KernelVariant, pad: float | None) -> Price | None:
        if not self._cost.timings.known or isinstance(variant.recipe, View | Foreign):
            return None
        return self._cost.measured(variant_key(self._key, variant, pad))

    def _estimate(self, variant: KernelVariant, pad: float | None) -> float:
        return self._cost.kernel_seconds(variant.work, writes_padding=pad is not None)


class CopyPrices:
    """The prices of copies of one tensor, from any of the layouts `sources`.

    A target is a layout with the constant that its padding gets, None if it gets none.
    """

    def __init__(
        self,
        dtype: str,
        sources: Sequence[Layout],
        targets: Sequence[tuple[Layout, Literal | None]],
        cost: CostModel,
    ) -> None:
        self._dtype, self._cost = dtype, cost
        self._scale = 1.0
        # Copies that differ only in the constant that they write to padding have one estimate.
        self._estimates: dict[tuple[Layout, Layout], float] = {}
        if cost.timings.known:
            made = ((source, layout, fill) for source in sources for layout, fill in targets)
            known = ((self._known(*copy), copy[:2]) for copy in made)
            self._scale = cost.scale_of(
                (price.seconds, self._estimate(*layouts)) for price, layouts in known if price
            )

    def conversion(self, source: Layout, layout: Layout, fill: Literal | None) -> Price:
        """The price of converting from `source` to `layout`."""
        known = self._known(source, layout, fill)
        if known is not None:
            return known
        return self._cost.estimated(self._estimate(source, layout), self._scale)

    def fill(self, layout: Layout, value: Literal) -> Price:
        """The price of writing a constant to the padding of `layout`."""
        known = None
        if self._cost.timings.known:
            known = self._cost.measured(fill_key(layout, self._dtype, value))
        if known is not None:
            return known
        written = layout.padding_elements * DTYPES[self._dtype].itemsize
        return self._cost.estimated(self._cost.fill_seconds(written))

    def _known(self, source: Layout, layout: Layout, fill: Literal | None) -> Price | None:
        if not self._cost.timings.known:
            return None
        return self._cost.measured(conversion_key(source, layout, self._dtype, fill))

    def _estimate(self, source: Layout, layout: Layout) -> float:
        found = self._estimates.get((source, layout))
        if found is None:
            found = self._cost.conversion_seconds(conversion_work(source, layout, self._dtype))
            self._estimates[source, layout] = found
        return found
