"""The physical graph, which `convert` makes and `lower` takes: storages, and the calls that fill
them.
"""

from graphflow.physical.physical_graph import PhysicalCall, PhysicalGraph, Placement, StorageSpec

__all__ = ["PhysicalCall", "PhysicalGraph", "Placement", "StorageSpec"]
