"""Decoders of onnxruntime's own operators, as its model builder for generation writes them.

One program takes a prompt and then token after token, beside onnxruntime.
"""

from typing import Any

import numpy as np
import pytest

import graphflow as gf
from graphflow.base.errors import RunError, UnsupportedOp
from graphflow.models.zoo.sequences.fused_llama import fused_llama
from support.models.sized_runs import (
    OPTIONS,
    beside_peer,
    difference,
    parsed_model,
    peer_of,
    sized_feeds,
)
from support.targets import in_turn

SIZES = {"batch": (1, 1), "sequence": (1, 12), "past": (0, 40), "total": (1, 40)}
PROMPT = [5, 17, 300, 2, 2, 41, 9]

KINDS: dict[str, dict[str, Any]] = {
    "a table of 4 bits": {"embedding_bits": 4},
    "a local window": {"window": 6, "groups": 1, "bits": 8, "embedding_bits": 8},
    "floats": {"bits": None, "groups": 4, "layers": 1},
}


def decoded(step: Any, exe: gf.Executable, count: int) -> tuple[list[int], list[Any]]:
    """The tokens that follow the prompt, each the likeliest one, and the results of each run."""
    names = [tensor.name for tensor in exe.inputs if tensor.name.startswith("past")]
    shape = next(tensor.shape for tensor in exe.inputs if tensor.name in names)
    assert shape is not None
    state = dict.fromkeys(names, np.zeros((1, shape[1], 0, shape[3]), np.float32))
    tokens, new, results = list(PROMPT), np.array([PROMPT]), []
    for _ in range(count):
        mask = np.ones((1, len(tokens)), np.int64)
        logits, *present = step({"input_ids": new, "attention_mask": mask, **state})
        results.append([logits, *map(np.array, present)])
        state = dict(zip(names, present, strict=True))
        new = logits[:, -1:].argmax(-1)
        tokens.append(int(new[0, 0]))
    return tokens, results


@in_turn("kind", KINDS)
def test_a_prompt_and_twenty_tokens(kind: str, target: gf.Target) -> None:
    model = fused_llama(0, **KINDS[kind])
    peer = peer_of(model)
    exe = gf.compile(model, sizes=SIZES, target=target, options=OPTIONS)
    bound = exe.bind()
    copied = []

    def step(feeds: dict[str, Any]) -> list[Any]:
        found = bound.run(feeds)
        copied.append(bound.copied)
        return [*found.values()]

    tokens, found = decoded(step, exe, 21)
    expected, wanted = decoded(lambda feeds: peer.run(None, feeds), exe, 21)
    assert tokens == expected
    for mine, theirs in zip(found, wanted, strict=True):
        numbered = [{str(k): array for k, array in enumerate(one)} for one in (mine, theirs)]
        assert not difference(*numbered, 1e-4)
    assert exe.foreign == () and len(exe.specializations) == 1
    assert set(copied) == {0}


@pytest.fixture(scope="module")
def two_sequences() -> gf.Executable:
    model = fused_llama(0, layers=1)
    return gf.compile(model, sizes={**SIZES, "batch": (1, 2)}, options=OPTIONS)


@pytest.mark.parametrize(
    ("batch", "length", "past"), [(1, 12, 28), (2, 12, 0), (2, 1, 39), (1, 1, 0), (1, 5, 11)]
)
def test_any_extents_in_any_order(
    two_sequences: gf.Executable, batch: int, length: int, past: int
) -> None:
    """Keys of random numbers, behind which there is room that a run of the most has filled."""
    exe, peer = two_sequences, peer_of(fused_llama(0, layers=1))
    extents = {"batch": batch, "sequence": length, "past": past, "total": length + past}
    feeds = sized_feeds(exe, extents, length, most=500)
    most = {"batch": 2, "sequence": 1, "past": 39, "total": 40}
    poison = sized_feeds(exe, most, 1, most=2, poison=True)
    assert np.isnan(exe.run(poison)["logits"]).all()
    feeds["attention_mask"][...] = 1
    names = [output.name for output in peer.get_outputs()]
    wanted = dict(zip(names, peer.run(None, feeds), strict=True))
    assert not difference(exe.run(feeds), wanted, 1e-4)


def test_a_run_says_which_earlier_keys_are_not_in_use(two_sequences: gf.Executable) -> None:
    """The prompt may end in padding; behind it, all keys have to count."""
    exe = two_sequences
    prompt = sized_feeds(exe, {"batch": 2, "sequence": 5, "past": 0, "total": 5}, 0, most=500)
    prompt["attention_mask"][...] = 1
    whole = exe.run(prompt)["logits"]
    prompt["attention_mask"][1, 3:] = 0
    np.testing.assert_array_equal(exe.run(prompt)["logits"], whole)
    later = sized_feeds(exe, {"batch": 2, "sequence": 1, "past": 5, "total": 6}, 0, most=500)
    later["attention_mask"][...] = 1
    exe.run(later)
    later["attention_mask"][1, 3:5] = 0
    with pytest.raises(RunError, match="earlier keys that seqlens_k says are not in use is 2"):
        exe.run(later)


APPENDING = {
    "Attention": """g (float[1,n,8] x, float[8,24] w, float[24] b, float[2,1,2,p,4] old)
        => (float[1,n,8] y, float[2,1,2,k,4] new)
        { y,new=com.microsoft.Attention<num_heads=2,unidirectional=1>(x,w,b,,old) }""",
    "MultiHeadAttention": """g (float[1,n,8] x, float[1,2,p,4] k, float[1,2,p,4] v, int64[1,n] i,
        float[64,2] c, float[64,2] s, int32[1,t] m)
        => (float[1,n,8] y, float[1,2,j,4] a, float[1,2,j,4] b)
        { q=com.microsoft.RotaryEmbedding<num_heads=2>(x,i,c,s)
        y,a,b=com.microsoft.MultiHeadAttention<num_heads=2,unidirectional=1>(q,q,x,,m,,k,v) }""",
}


@pytest.mark.parametrize("op", APPENDING)
def test_keys_and_values_of_older_operators_stay_in_place(op: str) -> None:
    """Also where one tensor has both; the mask has the length of all keys."""
    model = parsed_model(APPENDING[op])
    sizes = {"n": (1, 6), "p": (0, 20)} | ({"t": (1, 26)} if " m)" in APPENDING[op] else {})
    exe = gf.compile(model, sizes=sizes, options=OPTIONS)
    runs = [{"n": n, "p": p, "t": n + p} for n, p in ((1, 0), (6, 0), (1, 19), (6, 20))]
    assert beside_peer(model, sizes, runs, compiled=exe, most=2) == ([], "")
    (one,) = exe.report()["specializations"]
    assert one["states"] and all(state["in_place"] for state in one["states"])


STATED = {"batch": (1, 1), "sequence": (1, 8), "total_sequence_length": (1, 64)}
"""Sizes of a decoder whose runs state how many tokens there are, but for that of its memory."""


@pytest.mark.parametrize("past", [(64, 64), (0, 64)], ids=["shared memory", "growing memory"])
@pytest.mark.parametrize("is_bound", [True, False])
def test_a_run_states_how_many_tokens_there_are(past: tuple[int, int], is_bound: bool) -> None:
    """One program for all of these numbers."""
    model = fused_llama(0, layers=1, states_lengths=True)
    exe = gf.compile(model, sizes={**STATED, "past": past}, options=OPTIONS)
    bound, peer = exe.bind(), peer_of(model)
    run = bound.run if is_bound else exe.run
    found = _stated(lambda feeds: [*run(feeds).values()], past[0])
    wanted = _stated(lambda feeds: peer.run(None, feeds), past[0])
    for mine, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(mine, theirs, 1e-4, 1e-4)
    assert exe.foreign == () and len(exe.specializations) == 1
    assert not is_bound or bound.copied == 0


def _stated(step: Any, room: int) -> list[Any]:
    """The logits of a prompt and 40 tokens."""
    names = [f"past_key_values.0.{part}" for part in ("key", "value")]
    state = dict.fromkeys(names, np.zeros((1, 2, room, 16), np.float32))
    count, new, found = len(PROMPT), np.array([PROMPT]), []
    for _ in range(40):
        lengths = {"seqlens_k": np.array([count - 1], np.int32)}
        lengths["total_sequence_length"] = np.array([count], np.int32)
        logits, *present = step({"input_ids": new, **lengths, **state})
        found.append(np.array(logits))
        state, count, new = (
            dict(zip(names, present, strict=True)),
            count + 1,
            logits[:, -1:].argmax(-1),
        )
    return found


def test_a_number_of_tokens_that_the_memory_contradicts_is_refused() -> None:
    model = fused_llama(0, layers=1, states_lengths=True)
    options = gf.Options(cache="off", fallback=None)
    exe = gf.compile(model, sizes={**STATED, "past": (0, 64)}, options=options)
    feeds = sized_feeds(exe, {"batch": 1, "sequence": 2, "past": 5, "total_sequence_length": 6}, 0)
    with pytest.raises(UnsupportedOp, match="a memory of 5 keys for 6 in all"):
        exe.run(feeds)
