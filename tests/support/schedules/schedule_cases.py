"""One case of the schedule fuzzer: a random schedule of a random kernel, run and compared.

In: a seed.  Out: an `Outcome`: what was wrong, and which primitives were tried and accepted.  A
scheduled kernel must compute what its definition computes: in the interpreter, forward and with its
parallel and vectorized loops reversed, whatever memory and undefined padding contain.  Parameters
with a new layout get the padding that was stated, and each access to forbidden padding is an error.
A kernel with scalars runs for several values of these: the ends, the borders of tiles, and beside
them; its inputs hold poison behind their extents.  Some of the kernels also run as native code.  A
wrong case is shrunk by dropping steps before it is shown.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from graphflow import tir
from graphflow.base.errors import CodegenError, GraphflowError, ScheduleError, VerifyError
from graphflow.base.fields import replace
from graphflow.codegen import avx2_target, host_target
from graphflow.graph.program_kernels import program_kernel
from graphflow.kernels.lowering import KernelTask, LoweredKernel, remove_assume, remove_undef
from graphflow.kernels.lowering.task import parallel_extent, with_workspace
from graphflow.kernels.recipes import Scheduled
from graphflow.kernels.recipes.schedules.on_host import on_host
from graphflow.schedule import Schedule, ScheduleStep, replay
from graphflow.tir.meaning.operators import undefined_value
from graphflow.tir.meaning.to_python import compile_to_python
from support.fuzz.fuzz_test import Failure, shrunk
from support.kernels import schedule_families, schedule_rows
from support.kernels.schedule_kernels import Dice, Kernel, random_kernel
from support.kernels.smaller_kernels import smaller_kernels
from support.placing import Native
from support.primitives.primitive_cases import leaves_the_same
from support.schedules.schedule_inputs import (
    Array,
    chains,
    inputs_for,
    inputs_of,
    packed,
    poison_of,
    same_bits,
    scalars_of,
    unpacked,
    unpromised,
)
from support.schedules.schedule_trial import Crashed, Trial
from support.schedules.schedule_ways import random_schedule

assert schedule_families and schedule_rows

TOO_WIDE = "divide it first"
"""What code generation says of a loop with more lanes than the target has registers for."""

NATIVE_SHARE = 1 / 14
EXACT_BELOW = {"float32": 2.0**22, "float64": 2.0**50}
"""Sums and products of small whole numbers are exact in any order, as long as they stay below."""


@dataclass(frozen=True)
class Outcome:
    """What a case showed; `wrong` is empty where everything is right, `kind` names what is not."""

    wrong: str = ""
    kind: str = ""
    tried: Counter[str] = field(default_factory=Counter)
    taken: Counter[str] = field(default_factory=Counter)
    native: int = 0
    kernel: Kernel | None = None
    steps: tuple[ScheduleStep, ...] = ()
    step: str = ""
    """The note that names the step which a refused build is about."""


class Watched(list[Any]):
    """Memory with elements that nobody may touch."""

    def __init__(self, items: Sequence[Any], forbidden: Sequence[int], name: str) -> None:
        super().__init__(items)
        self.forbidden = frozenset(forbidden)
        self.name = name

    def __getitem__(self, place: Any) -> Any:
        if place in self.forbidden:
            raise Failure("forbidden", f"{self.name}: forbidden padding is read, place {place}")
        return super().__getitem__(place)

    def __setitem__(self, place: Any, value: Any) -> None:
        if place in self.forbidden:
            raise Failure("forbidden", f"{self.name}: forbidden padding is written, place {place}")
        super().__setitem__(place, value)


# Running ------------------------------------------------------------------------------------------

NO_SCALARS: Mapping[str, int] = {}
LEAST_SCALAR, MOST_SCALAR = 0, 10**6
"""Wide bounds, which say of no access that it is in its buffer."""

UNDEFINED = (float("nan"), -42.0, 0.0, 99.0)
"""What memory holds that was not written, by runs, on both sides of the constants of kernels; the
first two are the same bool."""


def interpreted(
    func: tir.PrimFunc,
    placed: Mapping[str, tuple[Array, Array]],
    outputs: Mapping[str, Array],
    run: int,
    reverse: bool,
    scalars: Mapping[str, int] = NO_SCALARS,
) -> dict[str, Array]:
    """The outputs of a kernel; `outputs` says which of their elements may not be touched."""
    memory = []
    for param in func.params:
        buffer = param.buffer
        if buffer.name in placed:
            items, closed = list(placed[buffer.name][0].reshape(-1)), placed[buffer.name][1]
        else:
            fill = undefined_value(buffer.dtype, UNDEFINED[run])
            items, closed = [fill] * buffer.size, outputs.get(buffer.name, np.zeros(0, bool))
        if len(items) != buffer.size:
            raise Failure(
                "interface", f"{buffer.name} has {buffer.size} elements, not {len(items)}"
            )
        places = np.flatnonzero(closed)
        memory.append(Watched(items, list(places), buffer.name) if places.size else items)
    memory += [[undefined_value(field.dtype, UNDEFINED[run])] for field in tir.fields_of(func)]
    call = _called(func, UNDEFINED[run], reverse)
    with np.errstate(all="ignore"):
        call(*(scalars[var.name] for var in func.scalars), *memory)
    return {
        p.buffer.name: np.array(list(cells), tir.DTYPES[p.buffer.dtype]).reshape(p.buffer.shape)
        for p, cells in zip(func.params, memory, strict=False)
        if p.buffer in func.outputs
    }


@lru_cache(maxsize=16)
def _called(func: tir.PrimFunc, undefined: float, reverse: bool) -> Callable[..., None]:
    """The kernel as a function of its scalars and memory; it is run for several of both."""
    free = dict.fromkeys(func.scalars, (LEAST_SCALAR, MOST_SCALAR))
    return compile_to_python(func, undefined=undefined, reverse=reverse, free=free)


def compared(have: Array, want: Array, defined: Array, exact: bool, name: str, where: str) -> None:
    if have.shape != want.shape:
        raise Failure("interface", f"{name} has the shape {have.shape}, not {want.shape}")
    agree = same_bits(have, want) | ~defined
    if want.dtype.kind == "f" and not agree.all():
        with np.errstate(all="ignore"):
            large = np.isfinite(want) & (np.abs(want) > EXACT_BELOW[want.dtype.name])
            if large.any() or not exact:
                agree |= np.isclose(have, want, rtol=2e-5, atol=1e-35, equal_nan=True)
    if not agree.all():
        k = np.argwhere(~agree)[0]
        raise Failure(
            "numbers",
            f"{where}: {name}{k.tolist()} is {have[tuple(k)]!r} and should be "
            f"{want[tuple(k)]!r}; {int((~agree).sum())} of {agree.size} differ",
        )


@dataclass(frozen=True)
class Expected:
    """What the definition gives: outputs, and which of their elements are defined."""

    outputs: dict[str, Array]
    defined: dict[str, Array]


def expected_of(
    func: tir.PrimFunc, inputs: Mapping[str, Array], scalars: Mapping[str, int] = NO_SCALARS
) -> Expected:
    placed = {name: (array, np.zeros(0, bool)) for name, array in inputs.items()}
    first, *others = (
        interpreted(func, placed, {}, run, False, scalars) for run in range(len(UNDEFINED))
    )
    defined = {
        name: np.logical_and.reduce([same_bits(array, other[name]) for other in others])
        for name, array in first.items()
    }
    return Expected(first, defined)


def checked(kernel: Kernel, schedule: Schedule, seed: int, native: bool) -> int:
    """How many times the schedule ran natively; `Failure` where it is wrong."""
    dice = Dice(seed, 3)
    func, steps = schedule.func, schedule.steps
    inputs = inputs_of(kernel, steps, dice)
    ran = 0
    for scalars in scalars_of(kernel, steps, dice):
        for run in (0, 1):
            given = inputs_for(kernel, steps, inputs, scalars, run)
            if kernel.sizes or run == 0:
                want = expected_of(kernel.func, given, scalars)
            compared_outputs(kernel, schedule, given, want, run, scalars)
        if native:
            ran += run_natively(kernel, schedule, given, want, scalars)
    if not leaves_the_same(kernel.func, func, schedule.fields):
        raise Failure("state", "fields hold something else afterwards")
    if dice.chance(0.1):
        if replay(kernel.func, steps) != func:
            raise Failure("replay", "the steps, taken again, give another kernel")
        if tir.parse(tir.to_text(func)) != func:
            raise Failure("text", "the kernel's text is parsed as another kernel")
    return ran


def compared_outputs(
    kernel: Kernel,
    schedule: Schedule,
    inputs: Mapping[str, Array],
    want: Expected,
    run: int,
    scalars: Mapping[str, int],
) -> None:
    """`Failure` where a run of a schedule gives something else than its definition."""
    placed_in = chains(kernel.func, schedule.steps)
    outputs = {
        b.name: packed(np.zeros(b.shape, tir.DTYPES[b.dtype]), placed_in[b.name], 0)[1]
        for b in kernel.func.outputs
    }
    changed = {p.buffer.name for p in kernel.func.params if p.role is tir.Role.INOUT}
    before = placed_in | {name: unpromised(placed_in[name]) for name in changed}
    placed = {name: packed(array, before[name], run) for name, array in inputs.items()}
    found = interpreted(schedule.func, placed, outputs, run, bool(run), scalars)
    for name, array in want.outputs.items():
        fill = undefined_value(array.dtype.name, UNDEFINED[run])
        fill = poison_of(array.dtype, run) if name in changed else fill
        have = unpacked(found[name], placed_in[name], fill, name)
        where = f"run {run}{f' with {dict(scalars)}' if scalars else ''}"
        compared(have, array, want.defined[name], not kernel.rounded, name, where)


def lowered_of(schedule: Schedule) -> LoweredKernel | None:
    """The kernel for the emitter; None where it is none yet.

    Where parallel loops or buffers in registers are not where the emitter takes them, the loops run
    in order and the buffers are in memory.  Parameters with strides are given dense arrays.
    """
    task = KernelTask("k", schedule.definition, (), Scheduled(schedule.func), host_target())
    try:
        hosted = on_host(with_scalars_in_memory(schedule.func))
    except VerifyError:  # a field is perhaps read before it is written
        return None
    for func in (hosted, plain(hosted)):
        lowered, workspace = with_workspace(remove_assume(remove_undef(func)))
        try:
            tir.verify(lowered, "lowered")
        except VerifyError:
            continue
        return LoweredKernel("k", lowered, schedule, parallel_extent(lowered), workspace, (), task)
    return None


def with_scalars_in_memory(func: tir.PrimFunc) -> tir.PrimFunc:
    """The kernel as programs call it, if it has scalars; what it assumes of elements is removed."""
    if not func.scalars:
        return func

    def change(stmt: tir.Stmt) -> tir.Body:
        loads = isinstance(stmt, tir.Assume) and any(tir.loads_in((stmt,)))
        return () if loads else (stmt,)

    return program_kernel(replace(func, body=tir.map_body(func.body, change)))


def plain(func: tir.PrimFunc) -> tir.PrimFunc:
    """The kernel without parallel loops, buffers in registers, and parameters with strides."""
    scratch = {
        buffer: replace(buffer, scope="scratch")
        for buffer in tir.buffers_of(func)
        if buffer.scope == "register"
    }

    def serial(stmt: tir.Stmt) -> tir.Stmt:
        if isinstance(stmt, tir.For) and stmt.kind is tir.LoopKind.PARALLEL:
            return replace(stmt, kind=tir.LoopKind.SERIAL)
        return stmt

    params = tuple(replace(param, strided=False) for param in func.params)
    return replace(
        func, params=params, body=tir.map_body(tir.rename_buffers(func.body, scratch), serial)
    )


def run_natively(
    kernel: Kernel,
    schedule: Schedule,
    inputs: Mapping[str, Array],
    want: Expected,
    scalars: Mapping[str, int] = NO_SCALARS,
) -> int:
    lowered = lowered_of(schedule)
    if lowered is None:
        return 0
    held = {name: np.array(value, np.int64) for name, value in scalars.items()}
    placed_in = chains(kernel.func, schedule.steps)
    for target in dict.fromkeys((host_target(), avx2_target())):
        try:
            code = Native(lowered, target)
        except CodegenError as error:
            if TOO_WIDE in str(error):
                return 0
            raise
        for run in (0, 1):
            arrays = {
                name: packed(array, placed_in[name], run)[0] for name, array in inputs.items()
            } | held
            fills = {}
            for buffer in lowered.func.outputs:
                fills[buffer.name] = undefined_value(buffer.dtype, UNDEFINED[run])
                arrays[buffer.name] = np.full(buffer.shape, fills[buffer.name])
            found = code(arrays, 0.0)
            for name, array in want.outputs.items():
                have = unpacked(found[name], placed_in[name], fills[name], name)
                where = f"native, {target.name}, run {run}"
                compared(have, array, want.defined[name], kernel.exact, name, where)
    return 1


# Cases --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Focus:
    """Kernels of one family alone, schedules that go one way; None: any.  `sized` is how many
    scalars a kernel may have."""

    family: str | None = None
    way: str | None = None
    sized: int = 0


ANY = Focus()


def run_case(seed: int, focus: Focus = ANY) -> Outcome:
    """The random schedule of a seed, checked."""
    kernel = random_kernel(seed, focus.family, focus.sized)
    dice = Dice(seed, 2)
    trial = Trial(kernel.func, dice)
    native = dice.chance(NATIVE_SHARE)
    made, schedule = drawn(kernel, trial, lambda: random_schedule(trial, focus.way))
    if schedule is None:
        return made
    wrong, kind, ran = verdict(kernel, schedule, seed, native)
    return replace(made, wrong=wrong, kind=kind, native=ran)


def drawn(
    kernel: Kernel, trial: Trial, draw: Callable[[], object]
) -> tuple[Outcome, Schedule | None]:
    """What random steps gave, and the schedule of them; None where one of them crashed."""
    made = Outcome(tried=trial.tried, taken=trial.taken, kernel=kernel)
    try:
        draw()
    except Crashed as crash:
        step, cause = crash.args[0], crash.__cause__
        name = type(cause).__name__
        wrong = f"{step} raised {name}: {cause}"
        steps = (*trial.schedule.steps, step)
        return replace(made, wrong=wrong, kind=f"crash {name}", steps=steps), None
    return replace(made, steps=trial.schedule.steps), trial.schedule


def verdict(kernel: Kernel, schedule: Schedule, seed: int, native: bool) -> tuple[str, str, int]:
    """What is wrong with a schedule, of which kind, and how often it ran natively."""
    try:
        return "", "", checked(kernel, schedule, seed, native)
    except Failure as failure:
        return failure.text, failure.kind, 0
    except (
        GraphflowError,
        ArithmeticError,
        LookupError,
        TypeError,
        ValueError,
        AssertionError,
    ) as e:
        return f"{type(e).__name__}: {e}", type(e).__name__, 0


@dataclass(frozen=True)
class ScheduleCase:
    """Steps on a kernel; the seed is that of the inputs."""

    kernel: Kernel
    steps: tuple[ScheduleStep, ...]
    seed: int

    def __str__(self) -> str:
        return "\n".join((tir.to_text(self.kernel.func), *map(str, self.steps)))


def case_of(seed: int, outcome: Outcome) -> ScheduleCase:
    assert outcome.kernel is not None
    return ScheduleCase(outcome.kernel, outcome.steps, seed)


Verify = Callable[[Kernel, Schedule, int], tuple[str, str]]
"""What is wrong with a schedule, and its kind; the seed is that of inputs."""


def natively_too(kernel: Kernel, schedule: Schedule, seed: int) -> tuple[str, str]:
    return verdict(kernel, schedule, seed, True)[:2]


def applied(case: ScheduleCase, verify: Verify = natively_too) -> Failure | None:
    """What is wrong after the steps; None too where one of them is refused."""
    schedule = Schedule.of(case.kernel.func)
    for step in case.steps:
        try:
            schedule = schedule.apply(step.primitive, *step.arguments, **dict(step.options))
            tir.verify(schedule.func, "scheduled")
        except ScheduleError:
            return None
        except Exception as error:
            name = type(error).__name__
            return Failure(f"crash {name}", f"{step} raised {name}: {error}")
    wrong, kind = verify(case.kernel, schedule, case.seed)
    return Failure(kind, wrong) if kind else None


def smaller(case: ScheduleCase) -> Iterator[ScheduleCase]:
    """Without one of the steps, and with a kernel that has a part less."""
    for k in reversed(range(len(case.steps))):
        yield replace(case, steps=(*case.steps[:k], *case.steps[k + 1 :]))
    for func in smaller_kernels(case.kernel.func, "scheduled"):
        yield replace(case, kernel=replace(case.kernel, func=func))


def complaint(seed: int, outcome: Outcome) -> str:
    """The seed, the definition, the steps that are needed, and the difference."""

    def fails(case: ScheduleCase) -> bool:
        found = applied(case)
        return found is not None and found.kind == outcome.kind

    case = shrunk(case_of(seed, outcome), smaller, fails)
    found = applied(case)
    text = found.text if found else outcome.wrong
    lines = [f"seed {seed} ({case.kernel.family}), {outcome.kind}: {text}", "", str(case)]
    if not outcome.kind.startswith("crash"):
        lines += ["", tir.to_text(replay(case.kernel.func, case.steps))]
    return "\n".join(lines)


def report(outcomes: Sequence[Outcome]) -> str:
    """How often each primitive was tried and taken, and in how many kernels."""
    tried: Counter[str] = sum((o.tried for o in outcomes), Counter())
    taken: Counter[str] = sum((o.taken for o in outcomes), Counter())
    kernels = Counter(name for o in outcomes for name, n in o.taken.items() if n)
    rows = [
        f"{name:40} {tried[name]:7} tried {taken[name]:7} taken {taken[name] / tried[name]:6.1%} "
        f"in {kernels[name]:6} kernels"
        for name in sorted(tried)
    ]
    rows.append(f"{len(outcomes)} kernels, {sum(o.native for o in outcomes)} ran natively")
    return "\n".join(rows)
