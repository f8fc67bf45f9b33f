"""Tests of `SharedScope`: a process-wide change is in force while needed, and then undone."""

import os
import textwrap
import threading
from collections.abc import Callable

import pytest

from graphflow.base.shared_scope import SharedScope
from support.fresh_interpreters import run_fresh


class Switch:
    """Something of the process that a scope switches."""

    def __init__(self) -> None:
        self.made = 0
        self.is_on = False
        self.scope = SharedScope(self._make)

    def _make(self) -> Callable[[], None]:
        assert not self.is_on
        self.is_on, self.made = True, self.made + 1
        return self._undo

    def _undo(self) -> None:
        assert self.is_on
        self.is_on = False


def test_the_change_is_made_once_and_undone_by_the_last() -> None:
    switch = Switch()
    with pytest.raises(ZeroDivisionError), switch.scope.entered():
        with switch.scope.entered():
            assert switch.is_on
        assert switch.is_on
        raise ZeroDivisionError
    assert (switch.is_on, switch.made) == (False, 1)
    with switch.scope.entered():
        assert (switch.is_on, switch.made) == (True, 2)


def test_a_change_that_fails_leaves_nobody_inside() -> None:
    switch = Switch()
    switch.is_on = True
    with pytest.raises(AssertionError), switch.scope.entered():
        pass
    switch.is_on = False
    with switch.scope.entered():
        assert switch.is_on
    assert (switch.is_on, switch.made) == (False, 1)


def test_it_lasts_while_any_thread_is_inside() -> None:
    switch, inside, go = Switch(), threading.Event(), threading.Event()

    def stay() -> None:
        with switch.scope.entered():
            inside.set()
            assert go.wait(60)

    other = threading.Thread(target=stay)
    other.start()
    assert inside.wait(60)
    with switch.scope.entered():
        pass
    assert switch.is_on
    go.set()
    other.join()
    assert (switch.is_on, switch.made) == (False, 1)


@pytest.mark.parametrize("inside", [True, False])
def test_a_forked_child_keeps_only_what_its_own_thread_needs(inside: bool) -> None:
    switch, entered, go = Switch(), threading.Event(), threading.Event()

    def stay() -> None:
        with switch.scope.entered():
            entered.set()
            assert go.wait(60)

    other = threading.Thread(target=stay)
    other.start()
    assert entered.wait(60)

    def forked() -> bool:
        child = os.fork()
        if child == 0:
            found = [switch.is_on]
            with switch.scope.entered():
                found.append(switch.is_on)
            os._exit(found != [inside, True])
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    if inside:
        with switch.scope.entered():
            right = forked()
    else:
        right = forked()
    go.set()
    other.join()
    assert right


STATE = """
    import gc
    from llvmlite import binding as llvm
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    TEXT = '''
    define float @f(ptr %a, ptr %b, i64 %n) {
    entry:
      br label %loop
    loop:
      %i = phi i64 [ 0, %entry ], [ %next, %loop ]
      %s = phi float [ 0.0, %entry ], [ %sum, %loop ]
      %p = getelementptr [40 x float], ptr %a, i64 %i, i64 3
      %q = getelementptr [24 x float], ptr %b, i64 %i, i64 5
      %x = load float, ptr %p
      %r = fdiv float %s, 3.0
      %y = load float, ptr %q
      %xy = fmul float %x, %y
      %sum = fadd float %r, %xy
      %next = add i64 %i, 1
      %more = icmp slt i64 %next, %n
      br i1 %more, label %loop, label %end
    end:
      ret float %sum
    }'''
    def assembly():
        machine = llvm.Target.from_default_triple().create_target_machine(opt=3)
        return machine.emit_assembly(llvm.parse_assembly(TEXT))
    def state():
        frozen, flags = gc.get_freeze_count(), gc.get_debug()
        return assembly(), gc.isenabled(), gc.get_threshold(), frozen, flags
    gc.set_threshold(701, 11, 12)
    before = state()
"""


def run_script(body: str) -> None:
    run_fresh(textwrap.dedent(STATE) + textwrap.dedent(body))


def test_a_compile_leaves_llvm_and_the_collector_as_they_were() -> None:
    run_script("""
        import graphflow as gf
        from graphflow.models import ModelBuilder
        b = ModelBuilder(1)
        b.output(b.relu(b.conv(b.input("x", (1, 3, 8, 8)), 9, 3)))
        options = gf.Options(workers=0)
        executable = gf.compile(b.model(), options=options)
        assert executable.report()["summary"]
        assert state() == before
    """)


@pytest.mark.parametrize("option", ["-enable-misched=false", "-disable-lsr=true"])
def test_another_option_would_be_seen(option: str) -> None:
    """The trap: the assembly that is compared depends on each of the two passes."""
    run_script(f"""
        llvm.set_option("", "{option}")
        assert assembly() != before[0]
    """)


def test_kernels_are_emitted_without_the_two_passes() -> None:
    run_script("""
        from graphflow.codegen import host_target, target_machine
        target = host_target()
        def plain():
            made = llvm.Target.from_default_triple().create_target_machine(
                cpu=target.cpu, features=target.features, opt=3, reloc="pic", codemodel="small"
            )
            module, _ = target_machine.optimized(TEXT, target)
            return made.emit_assembly(llvm.parse_assembly(str(module)))
        emitted = target_machine.assembly(TEXT, target)
        assert emitted != plain()
        llvm.set_option("", "-enable-misched=false")
        llvm.set_option("", "-disable-lsr=true")
        assert emitted == plain()
    """)
