"""The zoo: networks and layout probes with seeded weights, by name."""

from graphflow.models.zoo.catalog import ZOO, build
from graphflow.models.zoo.exported import EXPORTED

__all__ = ["EXPORTED", "ZOO", "build"]
