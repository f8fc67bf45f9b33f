"""Models to test and show graphflow with."""

from graphflow.models.build import Builder
from graphflow.models.light import expose, light, light_names, reseed

__all__ = ["Builder", "expose", "light", "light_names", "reseed"]
