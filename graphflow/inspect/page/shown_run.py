"""The measured steps of a run, each with the node of the program whose work it does.

In: a profile and the nodes of the program.  Out: a `ShownRun`.  What always holds: times are those
of the profile.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence

from graphflow.base.run_profile import RunProfile
from graphflow.inspect.page.page_data import ShownNode, ShownRun


def shown_run(profile: RunProfile, nodes: Sequence[ShownNode]) -> ShownRun:
    """The run, with the place of a node for each step.

    Several copies of a tensor have the same name, and follow each other as their nodes do; a fill
    is one node for the steps of all regions of the padding.
    """
    by_name: dict[str, list[int]] = defaultdict(list)
    for place, node in enumerate(nodes):
        if node.seconds is not None or node.kernel is not None:
            by_name[node.name].append(place)
    waiting = {
        (name, kernel): deque(place for place in places if nodes[place].kernel == kernel)
        for name, places in by_name.items()
        for kernel in {nodes[place].kernel for place in places}
    }
    return ShownRun(
        profile=profile,
        nodes=tuple(
            _place(by_name.get(step.name, []), waiting.get((step.name, step.kernel)))
            for step in profile.steps
        ),
        step_seconds=profile.step_seconds,
        operators=profile.operators(),
    )


def _place(places: Sequence[int], exact: deque[int] | None) -> int | None:
    """The next node with this name and kernel, else the first one with this name."""
    if exact:
        return exact.popleft()
    return places[0] if places else None
