"""Tests of the proofs for kernels in phases: `graphflow/schedule/facts/phase_independence.py`."""

import pytest

from graphflow.base.errors import ScheduleError
from graphflow.schedule import phase_proofs
from support.schedule_checks import kernel

PARAMS = "x: f32[4, 8], y: out[f32[4, 8]], h: out[f32[2, 8]]"

STEP = """
for t in serial(0, 4):
    s = alloc(f32[1], scratch)
    s[0] = {read}
    for q in parallel(0, 8):
        h[{written}, q] = h[{other}, 7 - q] + s[0]
"""


def test_states_that_take_turns_are_proven() -> None:
    body = STEP.format(read="h[t % 2, 0]", written="(t + 1) % 2", other="t % 2")
    proofs = phase_proofs(kernel(body, PARAMS))
    assert proofs and all(proof.proven for proof in proofs)
    claims = " ".join(proof.claim for proof in proofs)
    assert "the iterations of q are independent" in claims
    assert "what all threads read of h is not written in the phase behind it" in claims


@pytest.mark.parametrize(
    ("read", "written", "other", "reason"),
    [
        # One iteration reads the state that another one writes.
        ("x[t, 0]", "0", "0", "iterations of q are independent"),
        # A thread that comes first writes what another one still reads in front of the phase.
        ("h[0, 0]", "0", "1", "what all threads read of h is not written"),
        ("h[t % 2, 0]", "t % 2", "(t + 1) % 2", "what all threads read of h is not written"),
    ],
)
def test_races_are_refused(read: str, written: str, other: str, reason: str) -> None:
    body = STEP.format(read=read, written=written, other=other)
    with pytest.raises(ScheduleError, match=reason):
        phase_proofs(kernel(body, PARAMS))


def test_a_read_behind_the_last_phase_of_a_loop_is_refused() -> None:
    """The first phase of the next iteration may write it before a slow thread has read it."""
    body = """
for t in serial(0, 4):
    s = alloc(f32[1], scratch)
    for q in parallel(0, 8):
        h[0, q] = x[t, q]
    s[0] = h[0, 0]
"""
    with pytest.raises(ScheduleError, match="no phase behind it in its loop"):
        phase_proofs(kernel(body, PARAMS))


def test_a_phase_that_may_not_run_is_no_meeting() -> None:
    """Threads would not meet between the read and the write where the loop has no iteration."""
    body = """
s = alloc(f32[1], scratch)
s[0] = h[0, 0]
for t in serial(0, 4):
    for q in parallel(0, 8):
        h[1, q] = x[t, q]
for p in parallel(0, 8):
    h[0, p] = s[0]
"""
    with pytest.raises(ScheduleError, match="what all threads read of h is not written"):
        phase_proofs(kernel(body, PARAMS))


def test_a_kernel_that_threads_cannot_share_is_refused() -> None:
    body = "for p in parallel(0, 8):\n    y[0, p] = x[0, p]\nh[0, 0] = x[0, 0]"
    with pytest.raises(ScheduleError, match="every thread writes h"):
        phase_proofs(kernel(body, PARAMS))
