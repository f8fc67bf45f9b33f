"""Translation validation: each native kernel is run beside the interpreter of its definition."""

from graphflow.validation.check import Check, check_kernel
from graphflow.validation.elements import Elements, Evaluation, OverBudget, Unsolved
from graphflow.validation.error_bounds import with_errors
from graphflow.validation.stage import KernelChecks, Validation, validate

__all__ = [
    "Check",
    "Elements",
    "Evaluation",
    "KernelChecks",
    "OverBudget",
    "Unsolved",
    "Validation",
    "check_kernel",
    "validate",
    "with_errors",
]
