"""Layouts, storage, regions, and the facts and demands about what regions hold."""

from graphflow.layout.binary_spans import MIRRORED
from graphflow.layout.constant_folding import fold_binary, fold_cast, fold_unary
from graphflow.layout.evaluator import value_fact
from graphflow.layout.facts import (
    SERVES,
    Constant,
    Demand,
    Equal,
    Fact,
    NoAccess,
    Number,
    Range,
    Readable,
    Undefined,
    Unused,
    at_least_as_strong,
    dtype_limits,
    fact_of,
    join,
    order_key,
    reduction_demand,
    serves,
)
from graphflow.layout.families import Construction, Family, families
from graphflow.layout.index_map import IndexMap, logical_vars, physical_vars, smallest_box
from graphflow.layout.inversion import solve_indices
from graphflow.layout.kernel_facts import RegionFacts, output_facts, packed_facts
from graphflow.layout.layout import Layout, blocked, channels_last, channels_last_padded, row_major
from graphflow.layout.spans import Span, full_span, step
from graphflow.layout.storage import LOGICAL, Region, StorageWindow, pad_region_name

__all__ = [
    "LOGICAL",
    "MIRRORED",
    "SERVES",
    "Constant",
    "Construction",
    "Demand",
    "Equal",
    "Fact",
    "Family",
    "IndexMap",
    "Layout",
    "NoAccess",
    "Number",
    "Range",
    "Readable",
    "Region",
    "RegionFacts",
    "Span",
    "StorageWindow",
    "Undefined",
    "Unused",
    "at_least_as_strong",
    "blocked",
    "channels_last",
    "channels_last_padded",
    "dtype_limits",
    "fact_of",
    "families",
    "fold_binary",
    "fold_cast",
    "fold_unary",
    "full_span",
    "join",
    "logical_vars",
    "order_key",
    "output_facts",
    "packed_facts",
    "pad_region_name",
    "physical_vars",
    "reduction_demand",
    "row_major",
    "serves",
    "smallest_box",
    "solve_indices",
    "step",
    "value_fact",
]
