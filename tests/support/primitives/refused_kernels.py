"""Kernels that primitives refuse."""

from graphflow.arith import Var
from graphflow.tir import Config, PrimFunc
from support.schedule_checks import kernel

i, j = Var("i"), Var("j")
ROW = "for i in serial(0, 16):\n    {}"
SQUARE = "for i in {}(0, 4):\n    for j in {}(0, 4):\n        {}"
PLAIN = SQUARE.format("serial", "serial", "y[4*i + j] = x[4*i + j]")
TEMPORARY = "t = alloc(i32[16])\nfor z in serial(0, 16):\n    t[z] = x[z]\n"
READ = TEMPORARY + "for i in serial(0, 16):\n    y[i] = t[i]"
ACT = Config("mode", {"act": "int32"}).field("act")
STAGES = """
t = alloc(i32[16])
with block("first"{note}):
    for i in {kind}(0, 16):
{claim}        t[i] = x[i]
with block("second"):
    for j in serial(0, 16):
        y[j] = t[j]
"""


def stages(note: str = "", kind: str = "serial", claim: str = "") -> PrimFunc:
    return kernel(STAGES.format(note=note, kind=kind, claim=claim and f"        {claim}\n"))
