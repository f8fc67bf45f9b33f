"""One effect analysis of a kernel: what its statements read, write and leave for others to read."""

from graphflow.effects.relations import Relations, relations_of
from graphflow.effects.statements import (
    KernelStatements,
    Path,
    Statement,
    StatementAccess,
    statements_of,
)

__all__ = [
    "KernelStatements",
    "Path",
    "Relations",
    "Statement",
    "StatementAccess",
    "relations_of",
    "statements_of",
]
