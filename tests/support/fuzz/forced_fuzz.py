"""Random models of every family, planned as no cost model would plan them (`forced_plans`).

In: a seed, by which family, model, inputs and plans go.  Out: what is wrong, and which kinds of
variants were in the plans.  Each family is compared as its own fuzz test does it.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx

import graphflow as gf
from graphflow.base.fields import replace
from support.fuzz.forced_plans import forced_plans
from support.fuzz.fuzz_cases import make_case, run_case
from support.fuzz.fuzz_test import Failure, Result, attempted, result
from support.fuzz.movement_fuzz import agrees
from support.fuzz.open_quantized_fuzz import run_open_quantized
from support.fuzz.quantized_fuzz import agreement
from support.fuzz.sized_fuzz import MOST_RUNS, draw_batch, run_sized
from support.fuzz.sized_sequences import draw_sequence
from support.models.forced_models import random_attention, random_reduced_model, random_wide_model
from support.models.fuzzing import random_model
from support.models.movement_models import random_moving_model
from support.models.stage_models import STAGE_SPECIALS, random_stage_model
from support.padded import Arrays, normal_inputs, reference

FINITE = (-0.0, 0.0, 1e-40, 3e8, -3e30)


@dataclass(frozen=True)
class Family:
    """Models of one family, the kind of variants that they are for, and in which share of the
    models it is in the plan at least.

    Where models have sizes, `run` also takes how many runs are compared with programs of their
    extents alone, each of which is compiled.
    """

    run: Callable[..., Result]
    favourite: str = ""
    least: float = 0.0
    sized: bool = False


def run_forced(seed: int, exact: int = MOST_RUNS) -> Result:
    """The result of the fuzz test for a seed; `exact` runs of models with sizes are compared with
    programs of their extents alone."""
    names = [*FAMILIES]
    number, place = divmod(seed, len(names))
    name = names[place]
    family = FAMILIES[name]
    with forced_plans(number, family.favourite) as kinds:
        found = family.run(number, exact) if family.sized else family.run(number)
    counts = Counter({name: 1, f"{name}: {family.favourite}": int(kinds[family.favourite] > 0)})
    return replace(found, counts=counts)


def of_graphs(model_of: Callable[[int], onnx.ModelProto], specials: float = 0.0) -> Family:
    """Models whose results are compared with onnxruntime's, some with pinned layouts."""

    def run(seed: int) -> Result:
        try:
            case = make_case(seed, model_of, specials)
        except AssertionError:
            return Result()  # nothing to compare
        pinned = seed % 3 == 0
        found = run_case(
            replace(case, prices=None, pins=case.pins if pinned else {}, bare=case.bare and pinned)
        )
        return result(found.wrong, found.wrong.partition(":")[0] if found.crashed else "numbers")

    return Family(run)


def run_moving(seed: int) -> Result:
    return Result(attempted(lambda: agrees(random_moving_model(seed), seed)))


def run_quantized_layers(seed: int) -> Result:
    """Layers behind one another that round a tie differently may be more than a step apart."""

    def check() -> None:
        far = agreement(seed).far
        if far and "if no other layer is returned" not in far:
            raise Failure("numbers", far)

    return Result(attempted(check))


def run_reduced(seed: int) -> Result:
    """What is computed of a stored tensor is, bit for bit, what onnxruntime computes of it."""

    def check() -> None:
        case, rng = random_reduced_model(seed), np.random.default_rng((seed, 5))
        inputs = normal_inputs(case.model, seed)
        for array in inputs.values():
            if rng.random() < 0.3:
                array.reshape(-1)[rng.integers(array.size)] = rng.choice(FINITE)
            elif rng.random() < 0.2:
                array[...] = rng.choice((0.0, -0.0, 1.0, -2.0))
        options = gf.Options(threads=1 + seed % 2, workers=0, fallback=None, poison=True)
        got = gf.compile(case.model, options=options).run(inputs, poison=np.nan)
        stored, whole = got[case.stored], reference(case.model, inputs)[case.stored]
        if not np.linalg.norm(stored - whole) <= 1e-4 * np.linalg.norm(whole) + 1e-30:
            raise Failure("numbers", f"{case.stored} differs from onnxruntime's")
        if wrong := other_bits(got, reference(case.behind, {case.stored: stored})):
            raise Failure("numbers", wrong)

    return Result(attempted(check))


def other_bits(got: Arrays, want: Arrays) -> str:
    """Which output has another shape or other numbers; "" if none has."""
    for name, array in want.items():
        if got[name].shape != array.shape:
            return f"{name} has shape {got[name].shape}, not {array.shape}"
        if not np.array_equal(got[name], array):
            return f"{name} has {(got[name] != array).sum()} other elements of {array.size}"
    return ""


FAMILIES = {
    "wide": replace(of_graphs(random_wide_model), favourite="FilteredTiles", least=0.3),
    "attention": replace(of_graphs(random_attention, 0.1), favourite="row bands", least=0.15),
    "reduced": Family(run_reduced, "stored reductions", 0.1),
    "quantized": Family(run_quantized_layers, "DotTile"),
    "graphs": of_graphs(random_model),
    "stages": of_graphs(random_stage_model, STAGE_SPECIALS),
    "movement": Family(run_moving),
    "sequences": Family(lambda seed, exact: run_sized(draw_sequence(seed), exact), sized=True),
    "batches": Family(lambda seed, exact: run_sized(draw_batch(seed), exact), sized=True),
    "quantized sizes": Family(run_open_quantized, sized=True),
}
