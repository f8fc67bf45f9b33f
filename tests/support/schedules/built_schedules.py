"""Random schedules of kernels of many kinds, each of which has to build and to compute the same.

In: a seed.  Out: an `Outcome`: the steps that a random kernel accepted, and what went wrong: a step
that left the kernel unsound, a build that was refused, or numbers that differ from those of the
definition in the interpreter.  What always holds: after each accepted step the kernel is verified,
its parallel and vectorized loops are proven independent, and its index arithmetic is proven to fit.

The kernels are those of the schedule fuzzer, kernels with loops of all kinds, buffers in registers
and all types of numbers, and those that the primitives' own random cases draw, with calls, windows,
lets and configuration state.  Where a definition does not build, its schedules are not expected
to.
"""

from collections.abc import Sequence
from random import Random

import numpy as np

import graphflow as gf
from graphflow.base.errors import GraphflowError
from graphflow.base.fields import replace
from graphflow.codegen import avx2_target, host_target
from graphflow.schedule import Schedule, assume_finite, require_sound
from graphflow.tir.meaning.operators import undefined_value
from support.kernels.random_kernels import KernelOptions, RandomKernel
from support.kernels.schedule_kernels import Dice, Kernel, random_kernel, whole_numbers
from support.primitives.all_cases import SEQUENCE_CASES
from support.schedules.schedule_cases import (
    UNDEFINED,
    Failure,
    Outcome,
    case_of,
    compared,
    drawn,
    expected_of,
)
from support.schedules.schedule_inputs import (
    Chain,
    chains,
    inputs_for,
    inputs_of,
    packed,
    pad_kind,
    unpacked,
)
from support.schedules.schedule_steps import random_sequence
from support.schedules.schedule_trial import Trial

MOST_STEPS = 8
"""Primitives of a schedule, those included that are refused."""

MOST_NOT_BUILDING = 0.005
"""The share of schedules that may be refused when they are built, each naming the step."""

WHOLE = ("int8", "uint8", "int32", "uint32", "int64", "uint64", "bool")
"""Types of the kernels with all kinds of loops: results are the same bits in any order."""

OPTIONS = gf.Options(cache="off", check_assumes=True)

EXACT = ("min", "max", "abs", "neg", "not", "add", "sub", "mul", "and", "or")


def run_built(seed: int) -> Outcome:
    """The random schedule of a seed, built and run."""
    kernel = _drawn(Random(f"built {seed}"))
    trial = Trial(kernel.func, Dice(seed, 5), each=lambda func: require_sound(func))
    made, schedule = drawn(kernel, trial, lambda: random_sequence(trial, MOST_STEPS))
    if schedule is None:
        return made
    wrong, kind, step = verdict(kernel, schedule, seed)
    return replace(made, kind=kind, wrong=wrong, step=step)


def _drawn(random: Random) -> Kernel:
    """A kernel of any source."""
    match random.choice(("family", "loop kinds", "case", "case")):
        case "family":
            return random_kernel(random.randrange(10**6))
        case "loop kinds":
            options = KernelOptions("scheduled", WHOLE, binary=EXACT, unary=EXACT)
            return whole_numbers(RandomKernel(random.randint, options).func(), "loop kinds")
        case _:
            case = random.choice(SEQUENCE_CASES)
            return whole_numbers(case.kernel(random.randint), case.name)


def verdict(kernel: Kernel, schedule: Schedule, seed: int) -> tuple[str, str, str]:
    """What is wrong with a schedule, its kind, and the step that it is about; all empty if nothing
    is."""
    dice = Dice(seed, 6)
    placed = chains(kernel.func, schedule.steps)
    inputs = inputs_for(kernel, schedule.steps, inputs_of(kernel, schedule.steps, dice), {}, 0)
    finite = {s.arguments[0] for s in schedule.steps if s.primitive is assume_finite}
    target = host_target() if dice.chance(0.5) else avx2_target()
    try:
        want = expected_of(kernel.func, inputs)
        # What is promised to be finite is so in its padding too: that is a part of the array given.
        given = {n: packed(a, placed[n], int(n in finite))[0] for n, a in inputs.items()}
        assume = {name: "finite" for name in finite if np.isfinite(given[name]).all()}
        exe = gf.build(
            schedule, target=target, threads=dice.between(1, 2), assume=assume, options=OPTIONS
        )
        found = exe.run(given)
        for name, array in want.outputs.items():
            fill = undefined_value(array.dtype.name, UNDEFINED[0])
            have = unpacked(np.asarray(found[name]), _stored(placed[name]), fill, name)
            exact = kernel.exact and not kernel.rounded
            compared(have, array, want.defined[name], exact, name, target.name)
    except Failure as failure:
        return failure.text, failure.kind, ""
    except GraphflowError as error:
        noted = getattr(error, "__notes__", ())
        if any(note.startswith("the definition of") for note in noted):
            return "", "", ""
        notes = (note for note in noted if note.startswith("in step"))
        return str(error), f"build {type(error).__name__}", next(notes, "")
    except Exception as error:  # whatever it is, it is no GraphflowError
        return repr(error), f"crash {type(error).__name__}", ""
    return "", "", ""


def _stored(chain: Chain) -> Chain:
    """The layouts of an output, whose memory was not filled before: padding that is not to be
    touched holds anything."""
    return tuple((layout, "undef" if pad_kind(pad) == "none" else pad) for layout, pad in chain)


def text_of(seed: int, built: Outcome) -> str:
    """The seed, the definition, the steps, and what was wrong."""
    return f"seed {seed}, {built.kind}: {built.wrong}\n\n{case_of(seed, built)}"


def not_building(found: Sequence[Outcome]) -> list[Outcome]:
    """The schedules that were accepted and refused only when they were built."""
    return [one for one in found if one.kind.startswith("build")]
