"""The operator graph: its nodes and values, its canonical form, and its fusion groups.

In: nodes and values, as an importer or a user adds them.  Out: an equivalent `OperatorGraph` whose
nodes are fusion groups.  What always holds: a node's PrimFunc alone says what it computes; nothing
is decided by an operator's name, and no layout is involved.
"""

from graphflow.graph.brain_products import with_brain_products
from graphflow.graph.calls import call, graph_of
from graphflow.graph.canonicalize import CONSTANT_LIMIT, canonicalize
from graphflow.graph.channels import moved_channels
from graphflow.graph.contents import (
    assumptions_about,
    constant_inputs,
    contents,
    fact_of_array,
    finite_inputs,
    known_inputs,
    read_by_elements,
)
from graphflow.graph.control_regions import ControlRegion, RegionJump, RegionPart
from graphflow.graph.counted_sums import ENDS_AT_COUNT, ending_at_counts
from graphflow.graph.expansions import Expansion, Expansions
from graphflow.graph.filtered_convolutions import filtering_convolutions
from graphflow.graph.folded_constants import folding_constants
from graphflow.graph.fusion import fuse_groups
from graphflow.graph.hidden import DerivedSize, PackedResult, SizeInput, ValueGuard
from graphflow.graph.inout_copies import output_names
from graphflow.graph.interpret_graph import interpret_graph
from graphflow.graph.known_schedules import offer_found, searchable_nodes
from graphflow.graph.narrow_tensors import with_half_constants, with_narrow_tensors
from graphflow.graph.one_pass import in_one_pass
from graphflow.graph.operator_graph import Node, OperatorGraph, Removed
from graphflow.graph.partials import reducing_at_once
from graphflow.graph.program_kernels import program_kernel, scalar_conditions
from graphflow.graph.quantized import is_finite_dequantized, with_plain_products_of
from graphflow.graph.reading_through import reading_through, shuffled
from graphflow.graph.rounded import with_excess_precision, with_multiplied_quotients
from graphflow.graph.stated import take_assumptions
from graphflow.graph.structure import composed_store, elementwise_store, is_identity, reads_in_place
from graphflow.graph.value import Array, Value, require_rank

__all__ = [
    "CONSTANT_LIMIT",
    "ENDS_AT_COUNT",
    "Array",
    "ControlRegion",
    "DerivedSize",
    "Expansion",
    "Expansions",
    "Node",
    "OperatorGraph",
    "PackedResult",
    "RegionJump",
    "RegionPart",
    "Removed",
    "SizeInput",
    "Value",
    "ValueGuard",
    "assumptions_about",
    "call",
    "canonicalize",
    "composed_store",
    "constant_inputs",
    "contents",
    "elementwise_store",
    "ending_at_counts",
    "fact_of_array",
    "filtering_convolutions",
    "finite_inputs",
    "folding_constants",
    "fuse_groups",
    "graph_of",
    "in_one_pass",
    "interpret_graph",
    "is_finite_dequantized",
    "is_identity",
    "known_inputs",
    "moved_channels",
    "offer_found",
    "output_names",
    "program_kernel",
    "read_by_elements",
    "reading_through",
    "reads_in_place",
    "reducing_at_once",
    "require_rank",
    "scalar_conditions",
    "searchable_nodes",
    "shuffled",
    "take_assumptions",
    "with_brain_products",
    "with_excess_precision",
    "with_half_constants",
    "with_multiplied_quotients",
    "with_narrow_tensors",
    "with_plain_products_of",
]
