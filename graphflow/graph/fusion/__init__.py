"""Fusion: kernels that follow each other become one node of the graph.

In: a canonical graph.  Out: an equivalent graph whose nodes are fusion groups; and the function
that makes one kernel of several, for other rewrites.
"""

from graphflow.graph.fusion.fuse_kernels import (
    BoundKernel,
    KernelFuser,
    fuse_kernels,
)
from graphflow.graph.fusion.groups import GROUP_LIMIT, fuse_groups

__all__ = [
    "GROUP_LIMIT",
    "BoundKernel",
    "KernelFuser",
    "fuse_groups",
    "fuse_kernels",
]
