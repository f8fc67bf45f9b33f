"""Object code has the instructions of features that its target states, and of no others, and whole
jumps where the target asks for these."""

from graphflow.base.fields import replace
from graphflow.base.processors import AVX2, PROCESSORS
from graphflow.codegen import host_target
from graphflow.codegen.target_machine import assembly, object_code, stated_alone

REVERSED = """
define void @reversed(ptr %x) {
  %v = load <32 x i8>, ptr %x
  %r = call <32 x i8> @llvm.bitreverse.v32i8(<32 x i8> %v)
  store <32 x i8> %r, ptr %x
  ret void
}
declare <32 x i8> @llvm.bitreverse.v32i8(<32 x i8>)
"""


def test_a_name_implies_no_feature_where_some_are_stated() -> None:
    """An Ice Lake reverses the bits of a byte by one instruction of GFNI, which AVX2 has not."""
    named = replace(PROCESSORS["icelake-server"], features="")
    stated = replace(named, features=",".join(f"+{name}" for name in AVX2))
    further = replace(stated, features=f"{stated.features},+gfni")
    assert "gf2p8affineqb" in assembly(REVERSED, named)
    text = assembly(REVERSED, stated)
    assert "gf2p8affineqb" not in text and "ymm" in text
    assert "gf2p8affineqb" in assembly(REVERSED, further)


def test_a_complete_list_is_left_as_it_is() -> None:
    complete = host_target().features
    assert stated_alone(complete) == complete
    assert stated_alone("") == ""
    assert stated_alone("+avx2").endswith(",+avx2")


COUNTED = """
define i64 @counted(ptr %x, i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %end ]
  %sum = phi i64 [ 0, %entry ], [ %more, %end ]
  %p = getelementptr i64, ptr %x, i64 %i
  %v = load i64, ptr %p
  %c = icmp sgt i64 %v, 1000000
  br i1 %c, label %then, label %end
then:
  store i64 0, ptr %p
  br label %end
end:
  %more = add i64 %sum, %v
  %next = add i64 %i, 1
  %d = icmp slt i64 %next, %n
  br i1 %d, label %loop, label %out
out:
  ret i64 %more
}
"""
"""A loop with three jumps."""


def text_alignment(code: bytes) -> int:
    """The largest alignment of the sections with instructions in an ELF object."""
    start, size, count = (
        int.from_bytes(code[at : at + n], "little") for at, n in ((40, 8), (58, 2), (60, 2))
    )
    headers = (code[start + k * size : start + (k + 1) * size] for k in range(count))
    executable = 4
    return max(
        int.from_bytes(header[48:56], "little")
        for header in headers
        if int.from_bytes(header[8:16], "little") & executable
    )


def test_jumps_are_whole_where_the_target_asks_for_it() -> None:
    """Only while its code is emitted."""
    plain = replace(PROCESSORS["cascadelake-server"], whole_jumps=False)
    before = object_code(COUNTED, plain)
    padded = object_code(COUNTED, PROCESSORS["cascadelake-server"])
    assert text_alignment(before) < 32 <= text_alignment(padded)
    assert object_code(COUNTED, plain) == before
