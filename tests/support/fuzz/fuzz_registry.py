"""Every fuzz test of the project, by name.

`explore.py` draws fresh seeds for them, and `pytest -m slow` runs `many` seeds of each.  Another
one is an entry of `FUZZ_TESTS`.
"""

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, TypeVar

import onnx

from graphflow import tir
from graphflow.arith import Undecided, Verdict
from graphflow.base.errors import ScheduleError
from graphflow.base.fields import replace
from support.fuzz import native_fuzz
from support.fuzz.attention_fuzz import check_attention, draw_attention, run_attention
from support.fuzz.bound_checks import check_steps, compare_bounds
from support.fuzz.counted_fuzz import check_counted, run_counted
from support.fuzz.effect_questions import check as check_effects
from support.fuzz.empty_fuzz import run_empty
from support.fuzz.forced_fuzz import FAMILIES, run_forced
from support.fuzz.fuzz_cases import make_case, run_case, smaller
from support.fuzz.fuzz_test import Failure, FuzzTest, Result, attempted, by_case, by_seed, result
from support.fuzz.movement_fuzz import agrees
from support.fuzz.open_quantized_fuzz import run_open_quantized
from support.fuzz.quantized_fuzz import run_quantized
from support.fuzz.section_fuzz import copied_for_sections, section_model
from support.fuzz.sized_fuzz import SizedModel, check_sized, draw_batch, run_sized
from support.fuzz.sized_sequences import draw_sequence
from support.kernels.native_kernels import NativeCase, native_case
from support.kernels.smaller_kernels import smaller_kernels
from support.kernels.typed_kernels import check_typed
from support.models.movement_models import random_moving_model
from support.models.stage_models import STAGE_SPECIALS, random_stage_model
from support.mutants.mutant_processes import SECONDS, MutantProcess
from support.paths import TESTS
from support.primitives.all_cases import ALL_CASES
from support.primitives.config_cases import with_state
from support.primitives.extracted_parts import check_round_trip
from support.primitives.odd_arguments import PRIMITIVES, apply_anything
from support.primitives.primitive_cases import (
    Application,
    Outcome,
    PrimitiveCase,
    drawn_for,
    share,
    try_on,
    try_primitive,
)
from support.schedules import built_schedules, schedule_cases, sized_schedules
from support.schedules.schedule_cases import ANY, Focus
from support.schedules.schedule_graphs import fails_twice, make_graph, run_graph, smaller_graphs
from support.schedules.schedule_trial import OVERCOMPUTE
from support.schedules.sequence_cases import KINDS, run_sequence

ENOUGH = 100
"""Cases from which on the counts of a corpus say something."""


def lacks(counts: Counter[str], what: str, least: float, of: str = "cases") -> str:
    """What a corpus has too few of, as a share of others; "" where it has enough, or where chance
    alone, three standard deviations of the count, may have made it less."""
    wanted = least * counts[of]
    chance = 3 * max(0.0, wanted * (1 - least)) ** 0.5
    if counts[of] < ENOUGH or counts[what] >= wanted - chance:
        return ""
    return f"{counts[what]} {what} of {counts[of]} {of}, and at least {least:.1%} are to be. "


# Models -------------------------------------------------------------------------------------------


def run_model(case: Any) -> Result:
    found = run_case(case)
    kind = found.wrong.partition(":")[0] if found.crashed else "numbers"
    return result(found.wrong, kind, cases=1, both=found.padded and found.cancelled)


def check_model(case: Any) -> Failure | None:
    return run_model(case).failure


make_stage_case = partial(make_case, model_of=random_stage_model, share=STAGE_SPECIALS)

MODELS = (
    FuzzTest(
        "graphs",
        lambda seed: run_model(make_case(seed)),
        5000,
        draw=make_case,
        check=check_model,
        smaller=smaller,
        reach=lambda counts: lacks(counts, "both", 1 / 3),
    ),
    by_case("stages", make_stage_case, check_model, smaller, 1000),
)


@dataclass(frozen=True)
class SeededModel:
    """A model, and the seed of its inputs and options."""

    model: onnx.ModelProto
    seed: int


def run_moving(case: SeededModel) -> Result:
    compared = [False]

    def check() -> None:
        compared[0] = agrees(case.model, case.seed)

    return Result(attempted(check), Counter(cases=1, compared=compared[0]))


def draw_moving(seed: int) -> SeededModel:
    return SeededModel(random_moving_model(seed), seed)


def draw_sections(seed: int) -> SeededModel:
    return SeededModel(section_model(seed), seed)


def check_sections(case: SeededModel) -> Failure | None:
    return attempted(lambda: copied_for_sections(case.model, case.seed))


ModelCase = TypeVar("ModelCase", SeededModel, SizedModel)


def fewer_nodes(case: ModelCase) -> Iterator[ModelCase]:
    """Models with one of the tensors as their only output."""
    graph = onnx.shape_inference.infer_shapes(case.model).graph
    for info in (*graph.value_info, *graph.output):
        wanted, nodes = {info.name}, []
        for node in reversed(graph.node):
            if wanted & set(node.output):
                nodes.insert(0, node)
                wanted |= set(node.input)
        if len(nodes) < len(graph.node) or len(graph.output) > 1:
            less = onnx.ModelProto()
            less.CopyFrom(case.model)
            del less.graph.node[:], less.graph.output[:]
            less.graph.node.extend(nodes)
            less.graph.output.append(info)
            yield replace(case, model=less)


def mostly_equal(counts: Counter[str]) -> str:
    """What is wrong with how many quantized elements are equal to onnxruntime's, and how many
    products add up integers."""
    equal = lacks(counts, "equal", 0.95, of="elements")
    return equal + lacks(counts, "folded", 0.6)


MODELS += (
    FuzzTest(
        "movement",
        lambda seed: run_moving(draw_moving(seed)),
        2000,
        draw=draw_moving,
        check=lambda case: run_moving(case).failure,
        smaller=fewer_nodes,
        reach=lambda counts: lacks(counts, "compared", 0.75),
    ),
    FuzzTest("empty tensors", run_empty, 3000, check=lambda seed: run_empty(seed).failure),
    by_case("sections", draw_sections, check_sections, fewer_nodes, 2000),
    FuzzTest(
        "quantized",
        run_quantized,
        3000,
        check=lambda seed: run_quantized(seed).failure,
        reach=mostly_equal,
    ),
    FuzzTest(
        "forced plans",
        run_forced,
        10_000,
        check=lambda seed: run_forced(seed).failure,
        reach=lambda counts: "".join(
            lacks(counts, f"{name}: {family.favourite}", least, of=name)
            for name, family in FAMILIES.items()
            if (least := family.least)
        ),
    ),
    FuzzTest(
        "quantized sizes",
        run_open_quantized,
        3000,
        check=lambda seed: run_open_quantized(seed).failure,
        reach=lambda counts: lacks(counts, "one_program", 0.7),
    ),
    FuzzTest(
        "sizes",
        lambda seed: run_sized(draw_batch(seed)),
        2000,
        draw=draw_batch,
        check=check_sized,
        smaller=fewer_nodes,
        reach=lambda counts: lacks(counts, "one_program", 0.6),
    ),
    FuzzTest(
        "two sizes",
        lambda seed: run_sized(draw_sequence(seed)),
        3000,
        draw=draw_sequence,
        check=check_sized,
        smaller=fewer_nodes,
        reach=lambda counts: lacks(counts, "one_program", 0.9),
    ),
    FuzzTest(
        "counts of data",
        lambda seed: run_counted(draw_sequence(seed)),
        1000,
        draw=draw_sequence,
        check=check_counted,
        smaller=fewer_nodes,
        reach=lambda counts: lacks(counts, "late", 0.4),
    ),
    FuzzTest(
        "attention",
        run_attention,
        500,
        draw=draw_attention,
        check=check_attention,
        reach=lambda counts: lacks(counts, "one_program", 0.95),
    ),
)


# Native code --------------------------------------------------------------------------------------


def check_native(case: NativeCase) -> Failure | None:
    return _native(lambda: native_fuzz.difference(case, *native_fuzz.TARGETS))


def _native(check: Any) -> Failure | None:
    wrong: list[str] = []
    failure = attempted(lambda: wrong.append(check()))
    return failure or (Failure("numbers", wrong[0]) if wrong[0] else None)


def is_defined(func: tir.PrimFunc, given: Mapping[str, Any]) -> bool:
    """Whether outputs depend neither on undefined memory nor on the order of parallel iterations.

    Else the case says nothing about native code.
    """
    scalars = {var.name: given[var.name] for var in func.scalars}
    arrays = {name: array for name, array in given.items() if name not in scalars}
    one, other = (
        tir.interpret(func, arrays, undefined=value, reverse=reverse, scalars=scalars)
        for value, reverse in ((7.0, False), (-3.0, True))
    )
    return all(array.tobytes() == other[name].tobytes() for name, array in one.items())


def smaller_native(case: NativeCase) -> Iterator[NativeCase]:
    if len(case.slices) > 1:
        yield replace(case, slices=((0, max(high for _, high in case.slices)),))
    for func in smaller_kernels(case.func, "lowered"):
        names = {param.buffer.name for param in func.params}
        arrays = {name: array for name, array in case.arrays.items() if name in names}
        if not is_defined(func, arrays):
            continue
        whole = native_fuzz.whole_loop(func)
        same = whole == native_fuzz.whole_loop(case.func)
        yield replace(case, func=func, arrays=arrays, slices=case.slices if same else (whole,))


def check_built(case: native_fuzz.BuiltCase) -> Failure | None:
    def wrong() -> str:
        found = (native_fuzz.built_difference(case, target) for target in native_fuzz.TARGETS)
        return next(filter(None, found), "")

    return _native(wrong)


def smaller_built(case: native_fuzz.BuiltCase) -> Iterator[native_fuzz.BuiltCase]:
    for func in smaller_kernels(case.func, "scheduled"):
        names = {p.buffer.name for p in func.params} | {var.name for var in func.scalars}
        runs = [{k: v for k, v in run.items() if k in names} for run in case.runs]
        if not all(is_defined(func, run) for run in runs):
            continue
        yield replace(case, func=func, runs=tuple(runs))


NATIVE = (
    by_case("native_kernels", native_case, check_native, smaller_native, 25_000),
    by_case("user_kernels", native_fuzz.built_case, check_built, smaller_built, 25_000),
)


# Schedules ----------------------------------------------------------------------------------------


def run_schedule(seed: int, focus: Focus = ANY) -> Result:
    found = schedule_cases.run_case(seed, focus)
    tried, taken = (c[OVERCOMPUTE] > 0 for c in (found.tried, found.taken))
    return result(found.wrong, found.kind, cases=1, overcomputes=taken, tried=tried)


def run_sized_kernel(seed: int) -> Result:
    found = sized_schedules.run_sized_case(seed)
    overcomputes, native = found.taken[OVERCOMPUTE] > 0, found.native > 0
    return result(found.wrong, found.kind, cases=1, overcomputes=overcomputes, native=native)


def run_kind(seed: int) -> Result:
    """Sequences of primitives, on kernels of each kind in turn."""
    number, kind = divmod(seed, len(KINDS))
    found = run_sequence([*KINDS][kind], number)
    steps, native = len(found.steps), found.native > 0
    return result(found.wrong, found.kind, cases=1, native=native, steps=steps)


def draw_kind(seed: int) -> schedule_cases.ScheduleCase:
    number, kind = divmod(seed, len(KINDS))
    return schedule_cases.case_of(number, run_sequence([*KINDS][kind], number))


def run_built(seed: int) -> Result:
    """A schedule may be refused when it is built only by an error that names the step."""
    found = built_schedules.run_built(seed)
    named = found.kind.startswith("build") and bool(found.step)
    wrong = "" if named else found.wrong
    return result(wrong, found.kind, cases=1, refused=named, steps=len(found.steps))


def few_refused(counts: Counter[str]) -> str:
    most = built_schedules.MOST_NOT_BUILDING * counts["cases"]
    return f"{counts['refused']} are refused" if counts["refused"] > max(1, most) else ""


def draw_built(seed: int) -> schedule_cases.ScheduleCase:
    return schedule_cases.case_of(seed, built_schedules.run_built(seed))


def check_built_schedule(case: schedule_cases.ScheduleCase) -> Failure | None:
    def verify(*case: Any) -> tuple[str, str]:
        wrong, kind, step = built_schedules.verdict(*case)
        return ("", "") if step else (wrong, kind)

    return schedule_cases.applied(case, verify)


def run_offers(seed: int) -> Result:
    found = run_graph(make_graph(seed))
    counts = {"cancelled": found.cancelled > 0, "run_over": found.ran_over}
    return result(found.wrong, found.kind, cases=1, **counts)


def check_offers(case: Any) -> Failure | None:
    found = run_graph(case)
    if not found.wrong or not fails_twice(case, found.kind):
        return None
    return Failure(found.kind, found.wrong)


def of_schedules(name: str, focus: Focus, many: int, share: float = 0.0) -> FuzzTest:
    """Schedules of kernels of one family, of which a share runs over padding."""
    return FuzzTest(
        name,
        partial(run_schedule, focus=focus),
        many,
        draw=lambda seed: schedule_cases.case_of(seed, schedule_cases.run_case(seed, focus)),
        check=schedule_cases.applied,
        smaller=schedule_cases.smaller,
        reach=lambda counts: (
            lacks(counts, "overcomputes", share) + lacks(counts, "overcomputes", share, "tried")
        ),
    )


SCHEDULES = (
    of_schedules("schedules", ANY, 50_000, 0.1),
    of_schedules("schedules_of_definitions", Focus("definition"), 5000),
    of_schedules("schedules_of_updates", Focus("updates"), 5000),
    of_schedules("schedules_of_rows", Focus("rows", "private_rows"), 5000),
    FuzzTest(
        "sized_kernels",
        run_sized_kernel,
        20_000,
        draw=lambda seed: schedule_cases.case_of(seed, sized_schedules.run_sized_case(seed)),
        check=sized_schedules.check_sized_case,
        smaller=schedule_cases.smaller,
        reach=lambda counts: lacks(counts, "overcomputes", 0.05) + lacks(counts, "native", 0.03),
    ),
    FuzzTest(
        "schedule_graphs",
        run_offers,
        5000,
        draw=make_graph,
        check=check_offers,
        smaller=smaller_graphs,
        reach=lambda counts: lacks(counts, "cancelled", 0.1) + lacks(counts, "run_over", 0.1),
    ),
    FuzzTest(
        "schedule_sequences",
        run_kind,
        880 * len(KINDS),
        draw=draw_kind,
        check=schedule_cases.applied,
        smaller=schedule_cases.smaller,
        reach=lambda counts: lacks(counts, "native", 0.9) + lacks(counts, "steps", 5),
    ),
    FuzzTest(
        "built_schedules",
        run_built,
        20_000,
        draw=draw_built,
        check=check_built_schedule,
        smaller=schedule_cases.smaller,
        reach=few_refused,
    ),
)


# Primitives ---------------------------------------------------------------------------------------


def with_fields(case: PrimitiveCase) -> PrimitiveCase:
    return replace(case, kernel=lambda number: with_state(case.kernel(number), number))


def turn(seed: int) -> tuple[PrimitiveCase, int]:
    """The case of a seed, one after another, every fourth time with configuration state."""
    number, position = divmod(seed, len(ALL_CASES))
    case = ALL_CASES[position]
    return (with_fields(case) if number % 4 == 3 else case), number


def run_primitive(seed: int) -> Result:
    case, number = turn(seed)
    found: list[Outcome | None] = []
    failure = attempted(lambda: found.append(try_primitive(case, number)))
    counts = Counter({f"{case.name}: {o}": 1 for o in found if o is not None and number % 4 < 3})
    return Result(failure, counts)


def enough_apply(counts: Counter[str]) -> str:
    """Of the applications of each primitive that are not unsafe."""
    lacking = ""
    for case in ALL_CASES:
        found = Counter({o: counts[f"{case.name}: {o}"] for o in Outcome})
        if found[Outcome.APPLIED] + found[Outcome.REFUSED] >= ENOUGH and share(found) < case.least:
            lacking += f"{case.name} applied {share(found):.0%} of what is not unsafe. "
    return lacking


def check_application(drawn: Application) -> Failure | None:
    (case,) = (case for case in ALL_CASES if case.name == drawn.name)
    return attempted(lambda: try_on(case, drawn)) if drawn.arguments is not None else None


def smaller_application(drawn: Application) -> Iterator[Application]:
    for func in smaller_kernels(drawn.func, "scheduled"):
        yield replace(drawn, func=func)


def anything(seed: int) -> None:
    number, position = divmod(seed, len(PRIMITIVES))
    apply_anything([*PRIMITIVES][position], number)


PRIMITIVE_TESTS = (
    FuzzTest(
        "primitives",
        run_primitive,
        600 * len(ALL_CASES),
        draw=lambda seed: drawn_for(*turn(seed)),
        check=check_application,
        smaller=smaller_application,
        reach=enough_apply,
    ),
    by_seed("odd_arguments", anything, 2000 * len(PRIMITIVES)),
)


# Analyses -----------------------------------------------------------------------------------------


def run_effects(seed: int) -> Result:
    counts: Counter[str] = Counter()

    def check() -> None:
        for (data, question, verdict), count in check_effects(seed).items():
            if not data:
                counts[question] += count
                counts[f"decided {question}"] += count * (verdict is not Verdict.UNKNOWN)

    return Result(attempted(check), counts)


def nearly_all_are_decided(counts: Counter[str]) -> str:
    asked = [name for name in counts if f"decided {name}" in counts]
    return "".join(lacks(counts, f"decided {name}", 0.95, name) for name in asked)


def run_values(seed: int) -> Result:
    counts: Counter[str] = Counter(cases=1)

    def check() -> None:
        counts["proven"] += check_typed(seed)[Verdict.PROVEN]

    return Result(attempted(check), counts)


def run_round_trip(seed: int) -> Result:
    counts: Counter[str] = Counter(cases=1)

    def check() -> None:
        counts["extracted"] += check_round_trip(seed)

    return Result(attempted(check), counts)


def run_bounds(seed: int) -> Result:
    counts: Counter[str] = Counter(cases=1)

    def check() -> None:
        try:
            exact, total = compare_bounds(seed)
        except (ScheduleError, Undecided) as error:
            assert "not decided" in str(error)
            return
        counts.update({"decided": 1, "exact": exact, "ranges": total})

    return Result(attempted(check), counts)


def of_runs(name: str, run: Any, many: int, reach: Any) -> FuzzTest:
    return FuzzTest(name, run, many, check=lambda seed: run(seed).failure, reach=reach)


ANALYSES = (
    of_runs("effects", run_effects, 20_000, nearly_all_are_decided),
    of_runs("values", run_values, 2000, lambda counts: lacks(counts, "proven", 0.5)),
    of_runs("extracted_parts", run_round_trip, 3000, lambda c: lacks(c, "extracted", 2 / 3)),
    of_runs(
        "bounds",
        run_bounds,
        2000,
        lambda counts: lacks(counts, "decided", 0.975) + lacks(counts, "exact", 0.95, "ranges"),
    ),
    by_seed("attached_stages", check_steps, 2000),
)


# Damaged files ------------------------------------------------------------------------------------


@cache
def mutants_of(kind: str) -> MutantProcess:
    return MutantProcess(kind)


def run_mutant(seed: int, kind: str) -> Result:
    """Its process is another one than that of this test, so that it may die."""
    end = mutants_of(kind).attempt(seed)
    return result(end.wrong, end.how, **({} if end.wrong else {end.how: 1}))


MUTANTS = tuple(
    FuzzTest(
        f"damaged_{name}",
        partial(run_mutant, kind=kind),
        many,
        check=lambda seed, kind=kind: run_mutant(seed, kind).failure,
        seconds=8 * SECONDS,
    )
    for name, kind, many in (
        ("models", "model", 8000),
        ("operators", "operator", 8000),
        ("sections", "section", 4000),
        ("files", "saved", 2000),
    )
)


# Test modules -------------------------------------------------------------------------------------


@cache
def seeded_modules() -> tuple[str, ...]:
    """The test modules with properties of hypothesis, or with tests by `support.seeds`."""
    drawn = re.compile(r"^(@given\(|from support\.seeds import)|    @given\(", re.MULTILINE)
    modules = sorted(path.relative_to(TESTS) for path in TESTS.rglob("test_*.py"))
    return tuple(
        module.as_posix()
        for module in modules
        if drawn.search((TESTS / module).read_text(encoding="utf-8"))
    )


def run_module(seed: int) -> None:
    """One of the modules, with examples that nobody saw; hypothesis shrinks what fails."""
    number, position = divmod(seed, len(seeded_modules()))
    fresh = (f"--hypothesis-seed={number}", f"--fuzz-seeds={number}:{number + 1}")
    options = ("-n", "0", "-x", "-m", "not slow and not mutant", "-p", "no:cacheprovider")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", seeded_modules()[position], *options, *fresh],
        cwd=TESTS,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in (0, 5):
        raise AssertionError(f"{seeded_modules()[position]}\n{done.stdout[-4000:]}")


MODULES = (by_seed("test_modules", run_module, 20 * len(seeded_modules()), seconds=600.0),)


FUZZ_TESTS = {
    test.name: test
    for group in (MODELS, NATIVE, SCHEDULES, PRIMITIVE_TESTS, ANALYSES, MUTANTS, MODULES)
    for test in group
}
