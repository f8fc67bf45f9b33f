"""What forms and conversions cost in seconds: measured where a table has it, else estimated from
the target's data."""

from graphflow.cost.keys import conversion_key, definition_key, fill_key, form_key, plan_key
from graphflow.cost.pricing import (
    NO_TIMINGS,
    CopyPrices,
    FormPrices,
    Price,
    Timings,
)
from graphflow.cost.roofline import (
    conversion_seconds,
    fill_seconds,
    kernel_seconds,
    moved_bytes,
)
from graphflow.cost.table import Timing, TimingTable

__all__ = [
    "NO_TIMINGS",
    "CopyPrices",
    "FormPrices",
    "Price",
    "Timing",
    "TimingTable",
    "Timings",
    "conversion_key",
    "conversion_seconds",
    "definition_key",
    "fill_key",
    "fill_seconds",
    "form_key",
    "kernel_seconds",
    "moved_bytes",
    "plan_key",
]
