"""Deliberate mistakes in code generation, and a script that finds the seeds which detect them.

`python -m support.mutants.native_mutants NAME SEED…` makes the mistake and runs the seeds in turn.
It exits with `NOTICED` at the first one whose native code differs from the interpreter; a signal is
a notice as well; 0 says that no seed shows the mistake.
"""

import sys
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any
from unittest import mock

from llvmlite import binding as llvm

from graphflow.codegen import emit_expr, emit_mask, host_target
from graphflow.codegen.avx512 import Avx512Builder
from graphflow.codegen.emit_expr import FLOAT_COMPARISONS, Expressions, sign_of
from graphflow.codegen.emit_mask import Mask, lanes_where
from graphflow.codegen.memory import Memory, buffer_places, vector_loads, vector_stores
from graphflow.codegen.statements import emit_reduction
from graphflow.codegen.statements.emit_statements import Statements
from graphflow.llvm import IrBuilder, IrValue, bool_constant, lanes_of
from graphflow.tir import DTYPES, FLOATS
from support.fuzz.native_fuzz import TARGETS, difference
from support.kernels.native_kernels import native_case
from support.mutated import Patches, seen_as

NOTICED = 3


@dataclass(frozen=True)
class Mutant:
    """What is patched, and the first seed to try."""

    patches: Patches
    likely: int


def everywhere(name: str, replacement: Any) -> Patches:
    """A function of `emit_mask`, in all modules that import it."""
    modules = (
        *(emit_mask, emit_reduction, emit_expr),
        *(buffer_places, vector_loads, vector_stores),
    )
    return [(module, name, replacement) for module in modules if hasattr(module, name)]


def mask_by_select(builder: IrBuilder, mask: Mask) -> IrValue:
    if mask.dynamic is None or all(mask.active):
        return mask.dynamic or lanes_of(mask.active, "i1")
    return builder.select(lanes_of(mask.active, "i1"), mask.dynamic, bool_constant(False))


def mask_of_all_lanes(builder: IrBuilder, mask: Mask) -> IrValue:
    return mask.dynamic or lanes_of(mask.active, "i1")


def always_first_side(
    builder: IrBuilder, mask: Mask, truth: Any, holds: bool = True, by_index: bool = False
) -> Mask:
    return lanes_where(builder, mask, truth, by_index=by_index)


def plain_division(self: Expressions, dtype: str, left: IrValue, right: IrValue) -> IrValue:
    return self.builder.binary(f"{sign_of(dtype)}div", left, right)


def no_guard(self: Statements, stmt: Any, mask: Mask | None) -> None:
    self.emit(stmt.then, mask)


def other_signedness(
    self: Expressions, op: str, dtype: str, left: IrValue, right: IrValue
) -> IrValue:
    return COMPARE(self, op, dtype if dtype in FLOATS else "uint8", left, right)


def widened_as_unsigned(self: Expressions, x: IrValue, source: str, target: str) -> IrValue:
    with mock.patch.object(*seen_as(emit_expr, "tir", UNSIGNED=tuple(DTYPES))):
        return CAST(self, x, source, target)


COMPARE, CAST = Expressions.compare, Expressions.cast

MUTANTS: dict[str, Mutant] = {
    "both sides of a condition run in the same lanes": Mutant(
        everywhere("lanes_where", always_first_side), 30
    ),
    "idle lanes run": Mutant(everywhere("mask_value", mask_of_all_lanes), 18),
    "idle lanes take part in reductions": Mutant(
        [seen_as(emit_reduction, "tir", neutral_literal=lambda op, dtype: 1)], 92
    ),
    "a divisor is not made safe": Mutant([(Expressions, "integer_div", plain_division)], 40),
    "a condition is dropped": Mutant([(Statements, "emit_if", no_guard)], 6),
    "integers compare as unsigned": Mutant([(Expressions, "compare", other_signedness)], 11),
    "integers are widened as unsigned": Mutant([(Expressions, "cast", widened_as_unsigned)], 8),
    "NaN is greater": Mutant([(emit_expr, "FLOAT_COMPARISONS", FLOAT_COMPARISONS | {"gt": "ugt",
                              "ge": "uge"})], 320),
    "a vector overwrites what is behind its lanes": Mutant(
        [(Memory, "idle_lanes_in_padding", lambda self, address, mask: True)], 43
    ),
}  # fmt: skip

if host_target().vector_bytes == 64 and llvm.llvm_version_info[0] == 22:
    # The mistake is LLVM's own; what the emitter does is not to provoke it.
    MUTANTS["a mask register is dropped"] = Mutant(
        [(Avx512Builder, "readable", lambda self, truths: truths),
         *everywhere("mask_value", mask_by_select)], 157,
    )  # fmt: skip


def main() -> None:
    name, *seeds = sys.argv[1:]
    with ExitStack() as stack:
        for patch in MUTANTS[name].patches:
            stack.enter_context(mock.patch.object(*patch))
        for seed in map(int, seeds):
            print(f"seed {seed}", flush=True)
            try:
                wrong = bool(difference(native_case(seed), *TARGETS))
            except AssertionError:
                # Bytes beside an output were written.
                wrong = True
            if wrong:
                sys.exit(NOTICED)


if __name__ == "__main__":
    main()
