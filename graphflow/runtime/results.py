"""From the output buffers of a run to the arrays that the caller gets.

In: a spec and one array for each of its outputs, hidden ones included, as the kernels left them.
Out: the model's own outputs by name.  What always holds: guards are checked before anything is
returned, and no element beyond a trimmed extent reaches the caller.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from graphflow.base.errors import RunError, VerifyError, outside_interval
from graphflow.program import ProgramSpec

Buffers = Sequence[NDArray[Any]]


def checked_results(
    spec: ProgramSpec, buffers: Buffers, viewed: Collection[str] = ()
) -> dict[str, NDArray[Any]]:
    """The model's outputs; raises RunError if a guard does not hold.

    An output that is trimmed is a contiguous copy, so that it does not keep the larger buffer
    alive, except for those in `viewed`; all others are the buffers themselves.
    """
    require_guards(spec, buffers)
    results = named_results(spec, buffers)
    for name, view in trimmed_views(spec, buffers).items():
        if view.shape != results[name].shape:
            results[name] = view if name in viewed else view.copy()
    return results


def named_results(spec: ProgramSpec, buffers: Buffers) -> dict[str, NDArray[Any]]:
    """The buffers of the model's own outputs, by name and in order."""
    return {tensor.name: array for tensor, array in zip(spec.results, buffers, strict=False)}


def with_objects(
    spec: ProgramSpec, results: Mapping[str, Any], objects: Mapping[str, Any]
) -> dict[str, Any]:
    """The model's outputs in its order: arrays that kernels wrote, and objects from sections."""
    # In ascending order, so that each place counts the objects that were put in front of it.
    found = list(results.items())
    for known in sorted(spec.objects_out, key=lambda known: known.place):
        found.insert(known.place, (known.name, objects[known.name]))
    return dict(found)


def require_guards(spec: ProgramSpec, buffers: Buffers) -> None:
    """Raise RunError, with the first element outside of its interval, if a guard does not hold."""
    for guard in spec.guards:
        array = buffers[guard.output]
        outside = (array < guard.lo) | (array > guard.hi)
        if outside.any():
            found = array[outside][0]
            raise RunError(outside_interval(guard.subject, found, guard.lo, guard.hi))


def trimmed_views(spec: ProgramSpec, buffers: Buffers) -> dict[str, NDArray[Any]]:
    """The trimmed outputs by name, as views of their buffers.

    Raises VerifyError for an extent below zero or beyond the buffer, which only a wrong kernel
    gives.
    """
    views: dict[str, NDArray[Any]] = {}
    for trim in spec.trimmed:
        name, extent = spec.outputs[trim.output].name, int(buffers[trim.extents].item(trim.element))
        bound = buffers[trim.output].shape[trim.axis]
        if not 0 <= extent <= bound:
            raise VerifyError(
                f"output {name} has extent {extent} on axis {trim.axis}, and room for {bound}"
            )
        view = views.get(name, buffers[trim.output])
        views[name] = view[(slice(None),) * trim.axis + (slice(extent),)]
    return views
