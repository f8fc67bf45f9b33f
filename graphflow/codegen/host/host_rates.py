"""The clock and the bandwidths that were measured of processors, as a file keeps them.

In: a file, which `graphflow calibrate` writes.  Out: fields of a `Target`.  What always holds: what
was measured counts for processors of the same name by LLVM with caches of the same sizes only; a
file that is damaged is refused, with its name, and never read in part.
"""

from __future__ import annotations

import json
from math import isfinite
from pathlib import Path
from typing import Any, cast

from graphflow.base.errors import GraphflowError
from graphflow.base.processors import Rates
from graphflow.base.target import Target


def kept_rates(file: str) -> dict[str, Rates]:
    """The rates in a file by the kind of processor; none if this process can read no such file.

    GraphflowError if the file is damaged.
    """
    try:
        content = Path(file).read_bytes()
    except OSError:  # compilations go on where this user has no folder
        return {}
    try:
        return {kind: _checked(rates) for kind, rates in json.loads(content).items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise GraphflowError(
            f"{file}, which keeps the rates that `graphflow calibrate` measured, cannot be used "
            f"({error}); delete it, and run `graphflow calibrate` again"
        ) from error


def kind_of(processor: Target) -> str:
    """What processors of one kind have in common: LLVM's name, and the bytes of their caches."""
    caches = (processor.l1_bytes, processor.l2_bytes, processor.l3_bytes)
    return f"{processor.cpu}, caches of {', '.join(map(str, caches))} bytes"


def _checked(rates: Any) -> Rates:
    for name, number in rates.items():
        if name not in Rates.__annotations__:
            raise ValueError(f"{name!r} is no rate")
        if not isinstance(number, int | float) or not isfinite(number) or number <= 0:
            raise ValueError(f"{name} is {number!r}")
    return cast(Rates, rates)
