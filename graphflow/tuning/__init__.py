"""Tuning: kernels and copies timed one by one, so that plans are chosen by measured prices."""

from graphflow.tuning.tuner import Tuned, tune

__all__ = ["Tuned", "tune"]
