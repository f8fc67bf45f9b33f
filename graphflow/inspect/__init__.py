"""Look at what the compiler decided about each tensor: as a report, in words, as table rows, and as
a page with a picture.

In: a `Compiled` model, or two reports.  Out: plain values and text, and the differences between two
reports.  What always holds: everything was recorded by the compiler's stages; nothing is decided or
computed a second time.
"""

from graphflow.inspect.diff import Change, changes, read_report
from graphflow.inspect.explain import explain, explanations
from graphflow.inspect.moved_elements import movement_kind
from graphflow.inspect.page import difference_page, page_of
from graphflow.inspect.program_report import measured_nodes
from graphflow.inspect.report import report
from graphflow.inspect.report_totals import summary_line
from graphflow.inspect.tensor_decisions import TensorDecision, tensor_decisions

__all__ = [
    "Change",
    "TensorDecision",
    "changes",
    "difference_page",
    "explain",
    "explanations",
    "measured_nodes",
    "movement_kind",
    "page_of",
    "read_report",
    "report",
    "summary_line",
    "tensor_decisions",
]
