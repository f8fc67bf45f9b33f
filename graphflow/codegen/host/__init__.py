"""The processor that this process runs on, as a target: its instructions, its caches, and the rates
that are known or were measured of it.

In: what LLVM, the system, the environment and a file of the user's tell.  Out: a `Target`.
"""

from graphflow.codegen.host.host_rates import kept_rates, kind_of
from graphflow.codegen.host.targets import (
    avx2_target,
    chosen_target,
    executed_as,
    host_target,
    named_target,
    uncalibrated_host,
)

__all__ = [
    "avx2_target",
    "chosen_target",
    "executed_as",
    "host_target",
    "kept_rates",
    "kind_of",
    "named_target",
    "uncalibrated_host",
]
