"""The text of a node of the kernel IR, which `print` shows.

What always holds: `printer` registers the classes that it prints, so that the classes need not
import it.
"""

from __future__ import annotations

from functools import singledispatch


@singledispatch
def node_text(node: object) -> str:
    """A node in the text form of kernels; other objects as Python shows them."""
    return repr(node)


class Printed:
    """A class of nodes whose `str` is their text."""

    __slots__ = ()

    def __str__(self) -> str:
        return node_text(self)
