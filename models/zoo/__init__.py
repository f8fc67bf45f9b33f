"""The zoo: networks and layout probes with seeded weights, by name."""

from graphflow.models.zoo.catalog import ZOO, zoo_model
from graphflow.models.zoo.exported import EXPORTED

__all__ = ["EXPORTED", "ZOO", "zoo_model"]
