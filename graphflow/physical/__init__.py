"""The graph that `convert` makes and `lower` takes: storages, and the calls that fill them."""

from graphflow.physical.physical_graph import Call, PhysicalGraph, Placement, StorageSpec

__all__ = ["Call", "PhysicalGraph", "Placement", "StorageSpec"]
