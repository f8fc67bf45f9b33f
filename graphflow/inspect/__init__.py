"""Looking at what the compiler decided: per tensor, as a report, in words, as a table; and at what
differs between two reports.
"""

from graphflow.inspect.diff import Change, change_table, changes, read_report
from graphflow.inspect.edges import EdgeType, edge_types
from graphflow.inspect.explain import explain, explanations
from graphflow.inspect.movement import movement_kind
from graphflow.inspect.report import report
from graphflow.inspect.table import decision_table, decisions, draw_table, summary_line

__all__ = [
    "Change",
    "EdgeType",
    "change_table",
    "changes",
    "decision_table",
    "decisions",
    "draw_table",
    "edge_types",
    "explain",
    "explanations",
    "movement_kind",
    "read_report",
    "report",
    "summary_line",
]
