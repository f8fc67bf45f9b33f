"""What is made of a report alone, so that a saved model has it too: the table of decisions.

In: a report as plain values, of this process or of a saved model.  Out: rows of texts and numbers.
What always holds: neither the compiler nor onnx is imported.
"""

from graphflow.reports.decision_rows import (
    DecisionRow,
    Decisions,
    reported_decisions,
    summary_sentence,
)
from graphflow.reports.row_groups import ROW_FILTERS, RowGroup, row_groups

__all__ = [
    "ROW_FILTERS",
    "DecisionRow",
    "Decisions",
    "RowGroup",
    "reported_decisions",
    "row_groups",
    "summary_sentence",
]
