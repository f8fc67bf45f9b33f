"""Reductions of a whole tensor in parts: the partial results of its rows, which threads share, and
one result of these.

In: a graph.  Out: the same with two reductions in place of one, or with none where the result is
known, nor selections that this decides, nor bounds of a tensor that its range repeats, and the
expansions that compute both at once where that takes less time.
"""

from graphflow.graph.partials.decided_selections import decide_selections
from graphflow.graph.partials.known_ends import know_ends
from graphflow.graph.partials.partial_reductions import split_reductions
from graphflow.graph.partials.repeated_bounds import drop_repeated_bounds
from graphflow.graph.partials.whole_reductions import reducing_at_once

__all__ = [
    "decide_selections",
    "drop_repeated_bounds",
    "know_ends",
    "reducing_at_once",
    "split_reductions",
]
