"""Object code has the instructions of features that its target states, and of no others."""

from dataclasses import replace

from graphflow.base.processors import AVX2, PROCESSORS
from graphflow.codegen import host_target
from graphflow.codegen.target_machine import assembly, stated_alone

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
