"""The places of statements that primitives can be given: those that no call performs."""

from graphflow.effects import statements_of
from graphflow.schedule.places.addresses import statement_address
from graphflow.tir import Allocate, Call, PrimFunc, Stmt


def addressed(func: PrimFunc, *kinds: type) -> list[tuple[str, Stmt]]:
    """The statements of these kinds with their places, in program order; all without kinds."""
    model = statements_of(func)
    calls = [one for one in model.statements if isinstance(one.stmt, Call)]
    return [
        (statement_address(func, one.path), one.stmt)
        for one in model.statements
        if not any(call is not one and call.holds(one) for call in calls)
        and (not kinds or isinstance(one.stmt, kinds))
    ]


def places_of(func: PrimFunc, *kinds: type) -> list[str]:
    """The places of the statements of these kinds; of all but allocations without kinds."""
    return [
        place for place, stmt in addressed(func, *kinds) if kinds or not isinstance(stmt, Allocate)
    ]
