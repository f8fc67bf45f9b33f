"""`collection_deferred`: the collector is off inside, and afterwards as it was before."""

import gc
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from graphflow.base.collecting import collection_deferred, imported_module


@pytest.mark.parametrize("on", [True, False])
def test_the_collector_is_left_as_it_was(on: bool) -> None:
    """Of overlapping plans the last one to end switches it on again, if it was on."""
    was = gc.isenabled()
    (gc.enable if on else gc.disable)()
    try:
        with pytest.raises(ZeroDivisionError), collection_deferred():
            with collection_deferred():
                assert not gc.isenabled()
            assert not gc.isenabled(), "the outer plan is not done"
            raise ZeroDivisionError
        assert gc.isenabled() == on
    finally:
        (gc.enable if was else gc.disable)()


@pytest.mark.parametrize("frozen", [True, False])
def test_what_is_left_of_planning_can_be_collected(frozen: bool) -> None:
    """Objects become old without a pass; what somebody else froze stays so.

    In a process without the millions of objects of other tests, which a pass would visit.
    """
    code = textwrap.dedent(f"""
        import gc
        from graphflow.base.collecting import collection_deferred, imported_module

        frozen = {frozen}
        kept = []
        if frozen:
            gc.freeze()
        with collection_deferred():
            cycle = []
            cycle.append(cycle)
            gone = id(cycle)
            del cycle
        assert any(o is kept for o in gc.get_objects()) != frozen, "it lists what is not frozen"
        assert (gc.get_freeze_count() > 0) == frozen
        assert frozen or any(id(o) == gone for o in gc.get_objects(generation=2))
        assert gc.collect() >= 1
    """)
    subprocess.run([sys.executable, "-P", "-c", code], check=True)


def test_modules_are_imported_without_the_collector(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also a module that fails; one that was imported before is returned as it is."""
    (tmp_path / "noting_gc.py").write_text("import gc; on = gc.isenabled()", encoding="utf-8")
    (tmp_path / "failing_gc.py").write_text("1 / 0", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    was = gc.isenabled()
    gc.enable()
    try:
        module = imported_module("noting_gc")
        assert not module.on
        with pytest.raises(ZeroDivisionError):
            imported_module("failing_gc")
        assert gc.isenabled()
        assert imported_module("noting_gc") is module
    finally:
        sys.modules.pop("noting_gc", None)
        (gc.enable if was else gc.disable)()
