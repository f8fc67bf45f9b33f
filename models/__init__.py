"""Models for tests, demos and benchmarks."""

from graphflow.models.builder import ModelBuilder
from graphflow.models.light import expose, light, light_names, reseed, with_open_batch
from graphflow.models.names import named
from graphflow.models.zoo import EXPORTED, LONG, ZOO

__all__ = [
    "EXPORTED",
    "LONG",
    "ZOO",
    "ModelBuilder",
    "expose",
    "light",
    "light_names",
    "named",
    "reseed",
    "with_open_batch",
]
