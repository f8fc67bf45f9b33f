"""Tests of the features of the host, beside those that LLVM finds itself."""

from pathlib import Path

import pytest
from llvmlite import binding as llvm

from graphflow.base.errors import CodegenError
from graphflow.base.processors import PROCESSORS
from graphflow.llvm import host_features

NOT_SHOWN = {"shstk", "ptwrite", "uintr", "usermsr", "hreset", "kl", "widekl", "prefetchi", "sgx"}
"""Features that Linux shows nobody, or not under all versions; none computes numbers."""


FLAGS = """
fpu lm pni pclmulqdq ssse3 fma cx16 sse4_1 sse4_2 movbe popcnt aes xsave avx f16c rdrand lahf_lm
abm 3dnowprefetch bmi1 avx2 bmi2 avx512f avx512dq rdseed adx avx512ifma avx512cd sha_ni avx512bw
avx512vl avx_vnni avx512_bf16 avx512vbmi avx512_vbmi2 gfni vaes vpclmulqdq avx512_vnni
avx512_bitalg avx512_vpopcntdq avx512_fp16
""".replace("\n", " ")
"""Of a Sapphire Rapids, as Linux 6.1 shows them."""


def test_the_system_shows_the_features_that_llvm_finds() -> None:
    known = llvm.get_host_cpu_features()
    found = {name for name, has in known.items() if has and not name.startswith(("amx-", "avx10"))}
    assert found - host_features() <= NOT_SHOWN
    assert not {name for name, has in known.items() if not has} & host_features()


def test_flags_have_the_names_of_llvm(tmp_path: Path) -> None:
    """They have all that targets for this kind of processor state."""
    shown = tmp_path / "cpuinfo"
    shown.write_text(f"processor\t: 0\nflags\t\t: {FLAGS}\n", encoding="ascii")
    found = host_features.__wrapped__(shown)
    for name in ("sapphirerapids", "icelake-server", "skylake-server", "x86-64-v3", "x86-64-v4"):
        stated = {f[1:] for f in PROCESSORS[name].features.split(",") if f[0] == "+"}
        assert stated
        assert {feature for feature in stated if not feature.startswith("amx-")} <= found
    assert {"sse3", "pclmul", "lzcnt", "bmi", "prfchw", "sahf", "crc32", "sse4.1"} <= found


def test_a_system_that_shows_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CodegenError, match="mount /proc"):
        host_features.__wrapped__(tmp_path / "cpuinfo")
