"""The zoo: networks and layout probes with seeded weights, by name."""

from graphflow.models.zoo.catalog import ZOO, Entry, build
from graphflow.models.zoo.exported import EXPORTED, Exported

__all__ = ["EXPORTED", "ZOO", "Entry", "Exported", "build"]
