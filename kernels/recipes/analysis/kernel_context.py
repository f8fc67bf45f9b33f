"""What the graph around a kernel says of its variants.

Out: a `KernelContext`, by which `kernel_variants` chooses.  What always holds: a context is a value
that can be compared and hashed, so variants are kept by it.
"""

from __future__ import annotations

from msgspec import Struct

from graphflow.kernels.recipes.analysis.known_contents import NOTHING, KnownContents
from graphflow.kernels.recipes.analysis.operand_layouts import Offers


class KernelContext(Struct, frozen=True):
    """What is known of the tensors that a kernel reads, and what its variants may do.

    - known: what is proven of the values of inputs.
    - offered: layouts, also of no family, in which inputs can be had.
    - parts: whether there are views of a part of a larger tensor in padded layouts of no family;
      see `reads_offered`.
    - runs: whether a variant may treat all elements as one run, or rows of a product as blocks of
      them; such a kernel cannot leave out those that a run of the program lacks.
    - joins: whether, with `runs`, rows are joined that end within a vector (`along_rows`).
    - sized: the axes of the output of which a run of the program gives the first elements: no run
      through memory goes on behind one.
    - fewest: those of them that are counted by no input of the kernel, with the fewest elements
      that a run gives.
    """

    known: KnownContents = NOTHING
    offered: Offers = ()
    parts: bool = True
    runs: bool = True
    joins: bool = True
    sized: frozenset[int] = frozenset()
    fewest: tuple[tuple[int, int], ...] = ()


ALONE = KernelContext()
"""The context of a kernel of which no graph is known."""
