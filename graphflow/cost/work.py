"""Work as data: what a kernel or a conversion does, whatever the speed of the processor.

In: from recipes the work of kernels, from `flow` that of copies.  Out: what `CostModel` turns into
seconds.
"""

from __future__ import annotations

from msgspec import Struct


class Work(Struct, frozen=True):
    """What one run of a kernel does.

    `flops` counts logical operations, a multiply-add as two.  `cycles` are those of one core for
    all of it, overcompute included, as the functions of this package give them.  `rows` is the
    number of pieces that threads can share.  `read` and `written` are bytes, each buffer counted
    once; `constants` are those of `read` that are the same in all runs, such as weights.  `awaited`
    are bytes of constants, counted as often as they are read, which arrive with little computing to
    hide their latency.  A kernel that `streams` has few operations for each vector of data, and
    goes on in another part of memory after a few vectors; one with `short_runs` does so too, and
    reduces nothing.  In the `first_share` of its cycles a kernel meets constants, if it has any,
    for the first time: 1 where each serves a single tile.  Threads that share a kernel in phases
    meet in it, so many `meetings`, and spend `repeated` of its cycles each.  `exchanged` are the
    bytes of the operands that each thread reads whole, as panels of columns are shared: other
    threads wrote a part of them, because most kernels are shared by rows.
    """

    flops: float
    cycles: float
    rows: int
    read: int
    written: int
    constants: int = 0
    awaited: int = 0
    streams: bool = False
    short_runs: bool = False
    first_share: float = 0.0
    meetings: int = 0
    repeated: float = 0.0
    exchanged: int = 0


NO_WORK = Work(0.0, 0.0, 1, 0, 0)
"""The work of a view, which is not executed."""


class ConversionWork(Struct, frozen=True):
    """What one conversion of a tensor between two layouts does.

    It moves `elements` of `dtype`, in runs of `count` that are contiguous in the target; `adjacent`
    says that they are in the source too.  `source_run`, if not 0, is the number of elements that
    are contiguous in the source along another axis of the target: then square blocks are transposed
    in registers.  `moved_bytes` are those read plus those written.  With `by_turns` runs are so
    short that several, each from lines of the source, are shuffled into one vector.  Rows of
    a block that is transposed begin at least `apart` elements after each other, in the source and
    in the target; 0 where no blocks are transposed.
    """

    elements: int
    dtype: str
    count: int
    adjacent: bool
    source_run: int
    moved_bytes: int
    by_turns: bool = False
    apart: int = 0
