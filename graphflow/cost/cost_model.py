"""`CostModel`: what work takes on one processor, measured where the timing table has it.

In: work as data, and the key under which it may have been timed.  Out: a `Price`.  Measured and
estimated prices are compared with each other, and the roofline is wrong by a factor that depends on
the kernel more than on its variant.  So an estimate is scaled by what the timed variants of the
same kernel (the timed copies of the same tensor) took over what was estimated for them, in the
median.

That factor is biased: variants are timed because their estimates are low, more often too low than
too high, so those that were not timed seem slower than they are.  Whoever fills the table guards
against it with `Timings.optimism`, by which estimates are divided: a plan that is the cheapest
although every estimate is made so much smaller, and that consists of measured prices only, is the
cheapest as long as no estimate is too high by more.  What is measured is biased too: of many noisy
times the shortest is too short.  So for whoever fills the table, what was measured but few times is
`doubtful`.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from graphflow.base.target import Target
from graphflow.cost.roofline import conversion_seconds, fill_seconds, kernel_seconds
from graphflow.cost.work import Rewriting, Work

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


@dataclass(frozen=True)
class CostModel:
    """The prices of kernels, conversions and fills on `threads` cores of a target.

    Seconds are of one run with all threads.  They rise with the work, and fall, or stay, with more
    threads; what is in `timings` was measured, all else follows from the target alone.
    """

    target: Target
    threads: int = 1
    timings: Timings = NO_TIMINGS

    def kernel_seconds(self, work: Work, writes_padding: bool = False) -> float:
        """The estimate for a kernel; one that `writes_padding` also selects what to write there."""
        seconds = kernel_seconds(work, self.target, self.threads)
        return self.with_padding(seconds) if writes_padding else seconds

    def with_padding(self, seconds: float) -> float:
        """What a kernel takes that writes a constant to its padding, and these seconds without."""
        return seconds * WRITE_PAD

    def conversion_seconds(self, rewriting: Rewriting) -> float:
        """The estimate for rewriting a tensor in another layout."""
        return conversion_seconds(rewriting, self.target, self.threads)

    def fill_seconds(self, written: int) -> float:
        """The estimate for writing so many bytes of padding."""
        return fill_seconds(written, self.target, self.threads)

    def measured(self, key: str) -> Price | None:
        """The measured price of what has this key, or None."""
        return self.timings.price(key)

    def estimated(self, seconds: float, scale: float = 1.0) -> Price:
        """The price by an estimate of so many seconds; `scale` is as `scale_of` gives it."""
        return Price(seconds * scale / self.timings.optimism)

    def scale_of(self, timed: Iterable[tuple[float, float]]) -> float:
        """Measured over estimated seconds, in the median; 1 where nothing was timed."""
        ratios = [measured / estimated for measured, estimated in timed if estimated > 0]
        return statistics.median(ratios) if ratios else 1.0
