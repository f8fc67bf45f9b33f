"""Layouts, storage, regions, and the facts and demands about what regions hold."""

from graphflow.layout.evaluator import evaluate, required_fact, undecided
from graphflow.layout.facts import (
    SERVES,
    Constant,
    Demand,
    Equal,
    Fact,
    InRange,
    NoAccess,
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
from graphflow.layout.folding import EXACT_POINTS
from graphflow.layout.index_map import IndexMap, logical_vars, physical_vars
from graphflow.layout.inversion import solve
from graphflow.layout.kernel_facts import RegionFacts, output_facts
from graphflow.layout.layout import (
    Layout,
    blocked,
    channels_last,
    channels_last_padded,
    row_major,
)
from graphflow.layout.reductions import reduction_fact
from graphflow.layout.storage import (
    GAP,
    LOGICAL,
    OUTSIDE,
    Owner,
    Region,
    Storage,
    Window,
    pad_region_name,
)

__all__ = [
    "EXACT_POINTS",
    "GAP",
    "LOGICAL",
    "OUTSIDE",
    "SERVES",
    "Constant",
    "Construction",
    "Demand",
    "Equal",
    "Fact",
    "Family",
    "InRange",
    "IndexMap",
    "Layout",
    "NoAccess",
    "Owner",
    "Range",
    "Readable",
    "Region",
    "RegionFacts",
    "Storage",
    "Undefined",
    "Unused",
    "Window",
    "at_least_as_strong",
    "blocked",
    "channels_last",
    "channels_last_padded",
    "dtype_limits",
    "evaluate",
    "fact_of",
    "families",
    "join",
    "logical_vars",
    "order_key",
    "output_facts",
    "pad_region_name",
    "physical_vars",
    "reduction_demand",
    "reduction_fact",
    "required_fact",
    "row_major",
    "serves",
    "solve",
    "undecided",
]
