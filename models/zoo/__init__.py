"""The zoo: networks and layout probes with seeded weights, by name."""

from graphflow.models.zoo.catalog import ZOO, zoo_model
from graphflow.models.zoo.exported import EXPORTED, LONG

__all__ = ["EXPORTED", "LONG", "ZOO", "zoo_model"]
