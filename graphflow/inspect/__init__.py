"""Looking at what the compiler decided: per tensor, as a report, in words, in rows; and at what
differs between two reports.
"""

from graphflow.inspect.diff import Change, changes, read_report
from graphflow.inspect.edges import CONSTANT, REMOVED, EdgeType, Reading, RegionFact, edge_types
from graphflow.inspect.explain import explain, explanations
from graphflow.inspect.movement import Movement, movement, movement_kind
from graphflow.inspect.report import report
from graphflow.inspect.table import decisions, summary_line

__all__ = [
    "CONSTANT",
    "REMOVED",
    "Change",
    "EdgeType",
    "Movement",
    "Reading",
    "RegionFact",
    "changes",
    "decisions",
    "edge_types",
    "explain",
    "explanations",
    "movement",
    "movement_kind",
    "read_report",
    "report",
    "summary_line",
]
