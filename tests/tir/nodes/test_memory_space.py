"""Memories that a user defines, in the text form and for the verifier."""

import pytest

from graphflow.base.errors import ParseError, VerifyError
from graphflow.tir import MemorySpace, memories_of, parse, to_text, verify

TEXT = """
spad = memory(instructions=("load",), loads=True, rank=2, capacity=64, alignment=4)
acc = memory()


@primfunc
def k(x: buffer(i32[4], spad), y: out[i32[4]]):
    t = alloc(i32[4], acc)
"""


def test_memories_are_declared_above_the_kernel_and_parse_back() -> None:
    func = parse(TEXT)
    assert to_text(func) == TEXT[1:]
    spad = MemorySpace("spad", ("load",), loads=True, rank=2, capacity=64, alignment=4)
    assert memories_of(func) == (spad, MemorySpace("acc"))
    verify(func, "scheduled")


def test_where_memories_are_legal() -> None:
    with pytest.raises(VerifyError, match="x needs a plain name and global scope"):
        verify(parse(TEXT), "lowered")
    with pytest.raises(VerifyError, match="t is not allocated in scratch, register"):
        verify(parse(TEXT.replace("buffer(i32[4], spad)", "i32[4]")), "lowered")
    both = TEXT.replace("def k", "def k").replace("acc)", "acc)\n    acc.a = i32(1)")
    with pytest.raises(VerifyError, match="two memories or configurations are called acc"):
        func = parse("acc = config(a=i32)\n@primfunc\ndef k(y: out[i32[4]]):\n    acc.a = i32(1)")
        one = parse(both.replace("    acc.a = i32(1)\n", ""))
        verify(type(one)("k", one.params, (*one.body, *func.body)), "scheduled")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("acc = memory()", "spad = memory()", "spad is declared twice"),
        ("acc = memory()", "acc = memory(size=4)", "a memory has the keywords instructions"),
        ("acc = memory()", "acc = cache()", r"expected config\(field=type, …\) or memory"),
        ("acc = memory()", "acc = memory(alignment=0)", "alignment 0 is not positive"),
        ("acc = memory()", "scratch = memory()", "'scratch' is no name of a memory"),
        ("i32[4], acc", "i32[4], other", "one of global, scratch, register, spad, acc"),
        ('("load",)', "(load,)", "expected a string"),
    ],
)
def test_broken_text(old: str, new: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        parse(TEXT.replace(old, new))
