"""The page of `graphflow operators` as text: what becomes of each operator, and how to read it.

In: what `coverage` finds.  Out: markdown, the same on every machine with an onnx that knows opset
`LATEST`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from graphflow.frontends.coverage import LATEST, Coverage, contrib_coverage, operator_coverage
from graphflow.frontends.reading.upgrade import OLDEST_OPSET

_FAMILIES = {
    "floats": ("FLOAT16", "BFLOAT16", "FLOAT", "DOUBLE"),
    "signed": ("INT8", "INT16", "INT32", "INT64"),
    "unsigned": ("UINT8", "UINT16", "UINT32", "UINT64"),
    "float8": ("FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ"),
    "few-bit": ("FLOAT4E2M1", "INT4", "UINT4", "INT2", "UINT2"),
    "complex": ("COMPLEX64", "COMPLEX128"),
}
_NAMES = {"FLOAT": "float32", "DOUBLE": "float64"}

_HEAD = f"""# Operators

Printed by `graphflow operators`; `tests/frontends/test_operator_table.py` compares this file with
what the code makes. To write it anew: `graphflow operators --probe > graphflow/cli/operators.md`.

One row for each operator of ONNX's standard domain up to opset {LATEST}. It says what happens to a
node whose inputs a run gives:

- *kernels*: it becomes kernels of graphflow
- *other operators*: graphflow writes it as other operators, which become kernels
- *the body in its schema*: ONNX defines it by other operators, and those become kernels
- *a constant*: shapes, attributes and inputs that decide shapes determine it; import computes it
- *resolved at import*: it is gone when the model is imported: branches are taken, loops unrolled,
  sequences and optionals known. An `If` that a run decides computes both branches
- *onnxruntime*: no kernel is built; the node runs in onnxruntime, or the model is refused with
  `Options(fallback=None)`. Where all inputs are constants, the result is computed at import, unless
  it is random

**How this was found out.** Each row is an answer of import, not of a list: for each version of the
operator's definition that opset {OLDEST_OPSET} or a later one has, a model of that one node is
imported without a fallback, and so it is for each element type that a type variable of the newest
definition allows (the others have their usual types, or the same one). So a type that is not
listed under *not built* has a kernel for the usual attributes and ranks; an attribute, a rank or a
mixture of types may still be refused, with a message that says so. What an operator on sequences
takes is not asked.

*Opsets* are the versions of the definition that are taken; models of an opset before
{OLDEST_OPSET} are converted first. Element types: *floats* are float16, bfloat16, float32 and
float64 (those of 16 bits are computed in float32 and rounded); *signed* and *unsigned* are integers
of 8 to 64 bits; *float8* are e4m3fn, e4m3fnuz, e5m2 and e5m2fnuz; *few-bit* are float4e2m1 and
integers of 4 and 2 bits; *complex* are complex64 and complex128. A name before a colon is the type
variable of the schema, where there are several.
"""

_CONTRIB_HEAD = """
## com.microsoft

onnxruntime's own operators that have kernels or are written as standard ones, with the floats, or
the integers of a quantized tensor, that they were asked with; all others run in onnxruntime.
"""


def operator_document() -> str:
    """The whole text of the page."""
    return "\n".join(
        [_HEAD, *_table(operator_coverage()), _CONTRIB_HEAD, *_table(contrib_coverage()), ""]
    )


def _table(rows: Iterable[Coverage]) -> list[str]:
    lines = [
        "| operator | opsets | how it runs | element types | not built |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        refused = [f"opset {version}" for version in row.refused_versions]
        several = len({name for name, _ in (*row.types, *row.refused_types)}) > 1
        refused += [_typed(row.refused_types, several)] if row.refused_types else []
        cells = (
            row.operator,
            ", ".join(map(str, row.versions)),
            row.way,
            _typed(row.types, several),
            "; ".join(refused),
        )
        lines.append(f"| {' | '.join(cell or '–' for cell in cells)} |")
    return lines


def _typed(types: Sequence[tuple[str, Sequence[str]]], several: bool) -> str:
    texts = [(variable, _text(names)) for variable, names in types]
    return "; ".join(f"{variable}: {text}" if several else text for variable, text in texts)


def _text(names: Sequence[str]) -> str:
    """Whole families by their names, other types by their own."""
    left, words = list(names), []
    for family, members in _FAMILIES.items():
        if set(members) <= set(left):
            words.append(family)
            left = [name for name in left if name not in members]
    return ", ".join([*words, *(_NAMES.get(name, name.lower()) for name in left)])
