"""Models to test and show graphflow with."""

from graphflow.models.build import Builder
from graphflow.models.light import expose, light, light_names, reseed
from graphflow.models.zoo import ZOO, Entry

__all__ = ["ZOO", "Builder", "Entry", "expose", "light", "light_names", "reseed"]
