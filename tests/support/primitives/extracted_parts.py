"""Random kernels of which a part is extracted, inlined, and replaced by a call again."""

from random import Random

import numpy as np

from graphflow.schedule import Schedule, extract_subproc, inline, replace
from graphflow.tir import PrimFunc, calls_in, interpret, loops_of, parse, to_text, verify
from support.kernels.effect_kernels import EffectKernel
from support.schedule_checks import inputs_of


def check_round_trip(seed: int) -> bool:
    random = Random(seed)
    func = EffectKernel.of(random.randint, bool(seed % 3)).func()
    loops = [loop.var.name for loop in loops_of(func.body)]
    if not loops:
        return False
    place = random.choice(loops)
    extracted = Schedule.of(func).apply(extract_subproc, place, "part")
    verify(extracted.func, "scheduled")
    assert parse(to_text(extracted.func)) == extracted.func
    inlined = extracted.apply(inline, "part")
    again = inlined.apply(replace, f"part.{place}", _definition(extracted.func))
    inputs = inputs_of(func)
    for done in (extracted, inlined, again):
        for name, want in interpret(func, inputs, undefined=-3).items():
            got = interpret(done.func, inputs, undefined=-3)[name]
            np.testing.assert_array_equal(got, want, err_msg=to_text(done.func))
    return True


def _definition(func: PrimFunc) -> PrimFunc:
    (call,) = calls_in(func.body)
    return call.definition
