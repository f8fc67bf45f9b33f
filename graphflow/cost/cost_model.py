"""The cost model: seconds of kernels and copies, measured where the timing table has them.

In: work as data, and the key under which it may have been timed.  Out: a `Price` in seconds of one
run with all threads.  What always holds: the same work has the same price, and prices that were
measured are comparable with those that are estimated.

They are comparable because estimates are scaled.  The roofline is wrong by a factor that depends
more on the kernel than on its variant, so the estimate of a variant is multiplied by the median of
measured over estimated seconds of the same kernel's timed variants (of the same tensor's timed
copies).

That factor is biased.  Variants are timed because their estimates are low, more often too low than
too high, so those that were not timed seem slower than they are.  `graphflow tune` guards against
it with `Timings.optimism`, by which all estimates are divided: a plan that is the cheapest even so,
and that consists of measured prices only, is the cheapest unless an estimate is too high by more
than that factor.  Measurements are biased too, for the shortest of many noisy times is too short;
so while the table is filled, what was measured only a few times counts as `doubtful`.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from graphflow.base.target import Target
from graphflow.cost.roofline import (
    conversion_seconds,
    exchange_seconds,
    fill_seconds,
    handed_on_seconds,
    kernel_seconds,
    step_meeting_seconds,
)
from graphflow.cost.work import ConversionWork, Work

WRITE_PAD = 1.01
"""The factor on a kernel that selects a constant for the padding with each last store."""


class Price(Struct, frozen=True):
    """Seconds of one run, and whether they were measured."""

    seconds: float
    measured: bool = False


class Timings(Struct, frozen=True):
    """Measured seconds by key, for one target and number of threads.

    Work whose key is missing is estimated, and the estimate divided by `optimism`.  Prices of keys
    in `doubtful` are used, but do not count as measured.
    """

    known: Mapping[str, float] = field(default_factory=dict)
    optimism: float = 1.0
    doubtful: frozenset[str] = frozenset()

    def price(self, key: str) -> Price | None:
        """The measured price of a key; None where it was not timed."""
        seconds = self.known.get(key)
        return None if seconds is None else Price(seconds, key not in self.doubtful)

    def __bool__(self) -> bool:
        return bool(self.known) or self.optimism != 1.0


NO_TIMINGS = Timings()


class CostModel(Struct, frozen=True):
    """The prices of kernels, conversions and fills on `threads` cores of a target.

    Seconds are of one run with all threads.  Estimates follow from work, target and the bytes of
    the `constants` of the network alone: they rise with the work, and do not rise with the number
    of threads but for data that these have from each other.
    """

    target: Target
    threads: int = 1
    timings: Timings = NO_TIMINGS
    constants: int = 0

    def kernel_seconds(self, work: Work, writes_padding: bool = False) -> float:
        """The estimate for a kernel, which `writes_padding` if it writes a constant there."""
        seconds = kernel_seconds(work, self.target, self.threads, self.constants)
        return self.with_padding(seconds) if writes_padding else seconds

    def with_padding(self, seconds: float) -> float:
        """The seconds of a kernel that writes a constant to its padding, from those without."""
        return seconds * WRITE_PAD

    def conversion_seconds(self, rewriting: ConversionWork) -> float:
        """The estimate for rewriting a tensor in another layout."""
        return conversion_seconds(rewriting, self.target, self.threads)

    def fill_seconds(self, written: int) -> float:
        """The estimate for writing `written` bytes of padding."""
        return fill_seconds(written, self.target, self.threads)

    def step_meeting_seconds(self) -> float:
        """The seconds of a meeting of all threads between two kernels."""
        return step_meeting_seconds(self.target, self.threads)

    def exchange_seconds(self, size: int) -> float:
        """The seconds in which threads wait for lines of a tensor of `size` bytes that others
        wrote."""
        return exchange_seconds(size, self.target, self.threads)

    def prices_exchange(self, work: Work) -> bool:
        """Whether the estimate for a kernel that threads share has what they wait for data that
        others wrote."""
        return self.target.exchange_awaited > 0 and work.exchanged > 0

    def handed_on_seconds(self, size: int) -> float:
        """The seconds that a tensor of `size` bytes between two kernels takes beyond their prices.

        It is what a kernel saves that keeps such a tensor to itself.
        """
        return handed_on_seconds(size, self.target, self.threads)

    def measured(self, key: str) -> Price | None:
        """The measured price of the kernel or copy with this key; None where it was not timed."""
        return self.timings.price(key)

    def estimated(self, seconds: float, scale: float = 1.0) -> Price:
        """The price by an estimate in seconds, with the `scale` that `scale_of` gives."""
        return Price(seconds * scale / self.timings.optimism)

    def scale_of(self, timed: Iterable[tuple[float, float]]) -> float:
        """The median of measured over estimated seconds of such pairs; 1 where there is none."""
        ratios = [measured / estimated for measured, estimated in timed if estimated > 0]
        return statistics.median(ratios) if ratios else 1.0
