"""Tuning: measure kernels and copies, so that plans are chosen by measured prices.

In: a model and a timing table.  Out: the table with the timings on which the choice of the model's
plan depends.
"""

from graphflow.tuning.harness import BATCH, Harness, Kernels
from graphflow.tuning.subjects import Subject
from graphflow.tuning.timing_site import ThisMachine
from graphflow.tuning.tuner import Tuned, tune

__all__ = ["BATCH", "Harness", "Kernels", "Subject", "ThisMachine", "Tuned", "tune"]
