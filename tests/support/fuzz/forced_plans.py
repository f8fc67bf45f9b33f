"""Plans with kinds of variants that a cost model would not choose for small shapes.

In: a seed.  Out: a context in which whatever is compiled is planned with prices by the kinds of
variants, so that some kind is preferred wherever it is legal, and for a target whose prices are
others, so that tiles, bands and runs are cut otherwise.  A plan has to be correct at any price, and
code for any target with these instructions, so every fuzz test may run in such a context.

The kinds are those of recipes and tiles, hence also those that are yet to come.
"""

import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import fields
from random import Random
from typing import Any
from unittest import mock

import graphflow as gf
from graphflow.base.fields import replace
from graphflow.base.target import Target
from graphflow.codegen import avx2_target, host_target
from graphflow.cost import Price
from graphflow.flow.candidates import candidates
from graphflow.flow.candidates.pricing import VariantPrices
from graphflow.kernels.recipes import KernelVariant, SharedLoops, Tiled
from graphflow.lower import reductions_in_producers

TARGETS = (host_target(), avx2_target())

OF_KINDS, OF_VARIANTS = 1e6, 10.0
"""By how much prices of kinds, and of the variants of a kind, may differ."""

SHARES = (
    "narrowest_share",
    "transformed_awaited",
    "l2_awaited",
    "tiles_beside",
    "long_tiles_beside",
    "lines_awaited",
)

FEWER = ("l1_bytes", "l1_ways", "l2_bytes", "l3_bytes", "stack_bytes", "vector_registers")
"""What a target may have less of, with the least of it."""


def kind_of(variant: KernelVariant) -> str:
    """The kind of a variant: of its recipe, its tile, or the lanes of its stages."""
    match variant.recipe:
        case Tiled(kind=kind):
            return type(kind).__name__
        case SharedLoops(tile=tile, transposed=transposed, lane_loop=lane_loop):
            if tile:
                return "row bands"
            lines = "transposed lines" if transposed else "lines"
            return f"{lines}, lanes {'across' if lane_loop is not None else 'along'}"
        case recipe:
            return type(recipe).__name__


@contextmanager
def forced_plans(seed: int, favourite: str = "") -> Iterator[Counter[str]]:
    """While it lasts, plans are those of a seed; counts the variants that are in them by kind.

    In three of four seeds the `favourite` kind is the cheapest.
    """
    found: Counter[str] = Counter()
    with ExitStack() as stack:
        stack.enter_context(
            mock.patch.object(
                candidates, "VariantPrices", _by_kind(seed, favourite if seed // 2 % 4 < 3 else "")
            )
        )
        stack.enter_context(mock.patch.object(gf, "compile", _compiling(gf.compile, seed, found)))
        if seed % 4:  # stored reductions, however few loads they save
            stack.enter_context(
                mock.patch.object(reductions_in_producers, "saves_loads", lambda *_: True)
            )
        yield found


def _factor(text: str, most: float) -> float:
    return float(most ** (zlib.crc32(text.encode()) / 2**32))


def _by_kind(seed: int, favourite: str) -> type[VariantPrices]:
    class PricesByKind(VariantPrices):
        def price(self, variant: KernelVariant, pad: float | None) -> Price:
            found, kind = super().price(variant, pad), kind_of(variant)
            times = _factor(f"{seed} {kind}", OF_KINDS) if kind != favourite else 1 / OF_KINDS
            times *= _factor(f"{seed} {variant.name} {pad}", OF_VARIANTS)
            return replace(found, seconds=times * found.seconds)

    return PricesByKind


def _compiling(
    compiling: Callable[..., gf.Executable], seed: int, found: Counter[str]
) -> Callable[..., gf.Executable]:
    def run(*given: Any, target: Target | None = None, **more: Any) -> gf.Executable:
        made = compiling(*given, target=drawn_target(target or TARGETS[seed % 2], seed), **more)
        with suppress(gf.GraphflowError):  # nothing is compiled before shapes are known
            program = made.compiled
            found.update(kind_of(c.variant) for c in program.plan.choices.values())
            parts = sum(len(c.definition.outputs) - 1 for c, _ in program.lowered.calls)
            found["stored reductions"] += parts
        return made

    return run


def drawn_target(target: Target, seed: int) -> Target:
    """The target with other prices and less memory, in two of three seeds."""
    rng = Random(f"target {seed}")
    if rng.random() < 1 / 3:
        return target
    drawn: dict[str, Any] = {}
    for each in fields(Target):
        value = getattr(target, each.name)
        if rng.random() < 0.5:
            continue
        if each.name in FEWER:
            drawn[each.name] = max(8, int(value // 2 ** rng.uniform(0, 4)))
        elif each.name in SHARES:
            drawn[each.name] = rng.random()
        elif isinstance(value, float):
            drawn[each.name] = (value or 1.0) * 8 ** rng.uniform(-1, 1)
    return replace(target, **drawn)
