"""Models for tests, demos and benchmarks."""

from graphflow.models.build import Builder
from graphflow.models.light import expose, light, light_names, reseed
from graphflow.models.names import LIGHT, ZOO_PREFIX, named
from graphflow.models.zoo import EXPORTED, ZOO, Entry, Exported

__all__ = [
    "EXPORTED",
    "LIGHT",
    "ZOO",
    "ZOO_PREFIX",
    "Builder",
    "Entry",
    "Exported",
    "expose",
    "light",
    "light_names",
    "named",
    "reseed",
]
