"""The statements of a kernel as integer sets and relations of isl.

In: a kernel.  Out: for each access its domain, the relation from its instances to elements, and the
relation from its instances to time stamps; for each buffer the union of these.  What always holds:
all objects of one `Relations` belong to one isl context, which belongs to one thread; each is made
when it is first asked for.

The instances of access n are the tuples `A<n>[v, …]` over the loops around it; the elements of a
buffer are the tuples `B[c, …, i, …]`, first the copies of `StatementAccess`, then the indices.  For
a buffer that leaves the kernel, the tuples `End[i, …]` stand for the reader behind the last
statement.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import islpy as isl

from graphflow import arith, tir
from graphflow.effects.statements import KernelStatements, StatementAccess, statements_of

MOST_ACCESSES = 64
"""Accesses to one buffer beyond which nothing is decided: each pair may cost a millisecond."""

MOST_KERNELS = 64
"""Kernels whose relations one thread keeps."""

END = "End"
"""The name of the tuples that stand for the reader after the kernel."""


class TooLarge(Exception):
    """A buffer with more than `MOST_ACCESSES` accesses."""


class IslFault(Exception):
    """isl gave a result that cannot be right."""


class Relations:
    """The relations of one kernel in the isl context of one thread."""

    def __init__(self, model: KernelStatements) -> None:
        self.model = model
        self.depth = 1 + max((2 * len(s.loops) + 1 for s in model.statements), default=1)
        """The length of every time stamp; shorter ones are filled with zeros."""
        self.parameters = arith.isl_parameters(model.func.scalars)
        self._kept: dict[tuple[str, object], Any] = {}

    def domain(self, context: Any, access: StatementAccess) -> Any:
        """The instances of an access, as a set."""
        tuple_text = instance_tuple(access)
        text = f"{self.parameters}{{ {tuple_text} : {arith.isl_constraints(access.domain)} }}"
        return self.once("domain", access.number, lambda: isl.Set.read_from_str(context, text))

    def elements(self, context: Any, access: StatementAccess) -> Any:
        """The map from the instances of an access to the elements that they access."""
        parts = ", ".join(map(arith.isl_index, access.element))
        where = arith.isl_constraints(access.domain)
        text = f"{self.parameters}{{ {instance_tuple(access)} -> B[{parts}] : {where} }}"
        return self.once("elements", access.number, lambda: isl.Map.read_from_str(context, text))

    def times(self, context: Any, access: StatementAccess, reading: bool = False) -> Any:
        """The map from the instances of an access to their time stamps.

        With `reading`, those at which the statement evaluates what it loads, else those at which it
        writes, or is done.
        """
        write = arith.const(int(not reading))
        parts = ", ".join(map(arith.isl_index, self._stamp(access.statement.time, write)))
        text = f"{self.parameters}{{ {instance_tuple(access)} -> [{parts}] }}"
        key = (access.number, reading)
        return self.once("times", key, lambda: isl.Map.read_from_str(context, text))

    def end(self, context: Any, buffer: tir.Buffer) -> tuple[Any, Any]:
        """The map from `End` to every element of an output, and the map to its time stamp."""
        names = [arith.Var(f"e{axis}") for axis in range(len(buffer.shape))]
        sides = zip(names, buffer.shape, strict=True)
        domain = arith.Domain(
            tuple(arith.Axis(var, arith.const(0), arith.const(extent)) for var, extent in sides)
        )
        tuple_text = ", ".join(map(arith.isl_name, names))
        stamp = self._stamp((arith.const(len(self.model.statements)),), arith.const(0))
        time = ", ".join(map(arith.isl_index, stamp))
        elements = f"{{ {END}[{tuple_text}] -> B[{tuple_text}] : {arith.isl_constraints(domain)} }}"
        times = f"{{ {END}[{tuple_text}] -> [{time}] }}"
        return isl.Map.read_from_str(context, elements), isl.Map.read_from_str(context, times)

    def _stamp(
        self, time: tuple[arith.IndexExpr, ...], last: arith.IndexExpr
    ) -> tuple[arith.IndexExpr, ...]:
        missing = self.depth - 1 - len(time)
        return (*time, *(arith.const(0) for _ in range(missing)), last)

    def once(self, kind: str, key: object, make: Callable[[], Any]) -> Any:
        """What `make` returned when this kind of object was first asked for under this key."""
        if (kind, key) not in self._kept:
            self._kept[kind, key] = make()
        return self._kept[kind, key]

    def limited(self, buffer: tir.Buffer) -> tuple[StatementAccess, ...]:
        """The accesses to a buffer; TooLarge where they are too many to decide anything."""
        accesses = self.model.of(buffer)
        if len(accesses) > MOST_ACCESSES:
            raise TooLarge(
                f"{buffer.name} has {len(accesses)} accesses, and {MOST_ACCESSES} is most"
            )
        return accesses


_threads = threading.local()


def relations_of(func: tir.PrimFunc) -> Relations:
    """The relations of a kernel for the current thread, made once while it is in use."""
    known: OrderedDict[tir.PrimFunc, Relations] | None = getattr(_threads, "known", None)
    if known is None:
        known = _threads.known = OrderedDict()
    relations = known.get(func)
    if relations is None:
        relations = known[func] = Relations(statements_of(func))
        if len(known) > MOST_KERNELS:
            known.popitem(last=False)
    else:
        known.move_to_end(func)
    return relations


def instance_tuple(access: StatementAccess) -> str:
    """The tuple of an instance of an access in isl's grammar."""
    return f"A{access.number}[{', '.join(arith.isl_name(axis.var) for axis in access.domain.axes)}]"


def latest(stamps: Any) -> Any:
    """The lexicographic maximum of a set that is not empty, or of what a map gives for each element
    of its domain.

    IslFault where isl loses elements.  Equations that follow from others are made explicit first:
    without that isl 0.27 found nothing in a map with three remainders by 5, which had one pair.
    """
    explicit = stamps.detect_equalities()
    last = explicit.lexmax()
    whole = not last.is_empty()
    if isinstance(last, isl.Map):
        whole = explicit.domain().is_subset(last.domain())
    if not whole or not last.is_subset(explicit):
        raise IslFault("integer sets lose the last of some writes")
    return last


def answered(claim: str, ask: Callable[[Any], arith.Proof]) -> arith.Proof:
    """The answer of `ask` in the isl context of this thread.

    UNKNOWN where it costs too much, and where isl fails: `lexmax` of some relations with several
    modulos ends in "affine expression involves some of the domain dimensions".
    """
    try:
        with arith.IslBudget() as context:
            return ask(context)
    except TooLarge as error:
        return arith.Proof(arith.Verdict.UNKNOWN, claim, "size limit", str(error))
    except IslFault as error:
        return arith.Proof(arith.Verdict.UNKNOWN, claim, "dataflow", str(error))
    except isl.Error as error:
        if arith.out_of_budget(error):
            reason = "not decided within the operation limit"
        elif "affine expression involves" in str(error):
            reason = "integer sets fail on these modulos"
        else:
            raise
        return arith.Proof(arith.Verdict.UNKNOWN, claim, "dataflow", reason)
