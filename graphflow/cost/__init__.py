"""What forms and conversions cost in seconds, from the target's data alone."""

from graphflow.cost.roofline import conversion_seconds, fill_seconds, kernel_seconds

__all__ = ["conversion_seconds", "fill_seconds", "kernel_seconds"]
