"""Networks and probes with seeded weights, by name."""

from graphflow.models.zoo.catalog import ZOO, Entry, build

__all__ = ["ZOO", "Entry", "build"]
