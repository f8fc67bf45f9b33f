"""Models for tests, demos and benchmarks."""

from graphflow.models.builder import ModelBuilder
from graphflow.models.light import expose, light, light_names, reseed
from graphflow.models.names import LIGHT, ZOO_PREFIX, named
from graphflow.models.zoo import EXPORTED, ZOO

__all__ = [
    "EXPORTED",
    "LIGHT",
    "ZOO",
    "ZOO_PREFIX",
    "ModelBuilder",
    "expose",
    "light",
    "light_names",
    "named",
    "reseed",
]
