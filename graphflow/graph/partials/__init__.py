"""Reductions of a whole tensor in parts: the partial results of its rows, which threads share, and
one result of these.

In: a graph.  Out: the same with two reductions in place of one, or with none where the result is
known, and the expansions that compute both at once where that takes less time.
"""

from graphflow.graph.partials.known_ends import know_least_elements
from graphflow.graph.partials.partial_reductions import split_reductions
from graphflow.graph.partials.whole_reductions import reducing_at_once

__all__ = ["know_least_elements", "reducing_at_once", "split_reductions"]
