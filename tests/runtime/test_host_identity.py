"""Tests of what tells one processor from another."""

from pathlib import Path

from graphflow.llvm import host_features
from graphflow.runtime import host_identity

CPUINFO = """processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: {model}
model name\t: Some Processor
stepping\t: 1
cpu MHz\t\t: {clock}
flags\t\t: fpu avx2

processor\t: 1
model\t\t: 9
cpu MHz\t\t: 1.0
"""


def described(folder: Path, model: int = 1, clock: float = 1000.0, size: str = "48K") -> set[str]:
    shown = folder / "cpuinfo"
    shown.write_text(CPUINFO.format(model=model, clock=clock))
    index = folder / "index0"
    index.mkdir(exist_ok=True)
    (index / "size").write_text(f"{size}\n")
    return set(host_identity(shown, folder))


def test_clocks_do_not_count_and_models_and_caches_do(tmp_path: Path) -> None:
    one = described(tmp_path)
    assert one == described(tmp_path, clock=2000.0)
    assert one != described(tmp_path, model=2)
    assert one != described(tmp_path, size="64K")


def test_features_that_this_process_may_use_count(tmp_path: Path) -> None:
    assert host_features() <= described(tmp_path)


def test_what_the_system_does_not_show_is_left_out(tmp_path: Path) -> None:
    assert set(host_identity(tmp_path / "none", tmp_path / "none")) == host_features()


def test_it_is_the_same_at_each_call() -> None:
    assert host_identity() == host_identity()
