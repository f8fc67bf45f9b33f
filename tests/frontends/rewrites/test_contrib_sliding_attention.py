"""GroupQueryAttention over memory that slides with a local window, beside onnxruntime."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import graphflow as gf
from graphflow.base.errors import UnsupportedOp
from support.models.peer_sessions import peer_session

OPTIONS = gf.Options(fallback=None, threads=1)
SIZE, GROUPS = 16, 2
ANGLES = np.arange(40 * SIZE // 2, dtype=np.float32).reshape(40, -1) / 9


def sliding(window, room="room", bias=False):
    """A GroupQueryAttention of four heads in two groups over a memory of `room` rows; the number of
    all keys is that of the columns of a mask."""
    memory = ["batch", GROUPS, room, SIZE]
    shapes = {
        "q": ["batch", "n", 4 * SIZE], "k": ["batch", "n", GROUPS * SIZE],
        "v": ["batch", "n", GROUPS * SIZE], "old_k": memory, "old_v": memory, "last": ["batch"],
        "mask": ["batch", "keys"],
    }  # fmt: skip
    shapes |= {"bias": [1, 1, "n", "keys"]} if bias else {}
    kinds = {"last": TensorProto.INT32, "mask": TensorProto.INT64}
    inputs = [
        helper.make_tensor_value_info(name, kinds.get(name, TensorProto.FLOAT), shape)
        for name, shape in shapes.items()
    ]
    outputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("y", shapes["q"]), ("new_k", memory), ("new_v", memory))
    ]
    tables = [numpy_helper.from_array(f(ANGLES), f.__name__) for f in (np.cos, np.sin)]
    names = ["q", "k", "v", "old_k", "old_v", "last", "total", "cos", "sin", ""]
    nodes = [
        helper.make_node("Shape", ["mask"], ["columns"], start=1),
        helper.make_node("Cast", ["columns"], ["total"], to=TensorProto.INT32),
        helper.make_node(
            "GroupQueryAttention", [*names, "bias" if bias else ""], ["y", "new_k", "new_v"],
            domain="com.microsoft", num_heads=4, kv_num_heads=GROUPS, do_rotary=1,
            local_window_size=window, sliding_window_cache=1,
        ),
    ]  # fmt: skip
    graph = helper.make_graph(nodes, "sliding", inputs, outputs, tables)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def resident(count, room, window):
    """How many rows of the memory are in use after `count` keys, by the operator's definition."""
    step = room - window + 1
    return count if count <= room else count - step * -(-(count - room) // step)


def check_steps(exe, model, steps, room, window):
    """Run prompts and tokens one after another; rows that are not in use are NaN."""
    peer = peer_session(model)
    draw = np.random.default_rng(0).standard_normal
    mine = [np.full((1, GROUPS, room, SIZE), np.nan, np.float32) for _ in range(2)]
    its, count = [np.zeros_like(array) for array in mine], 0
    for length in steps:
        count += length
        feeds = {
            name: draw((1, length, heads * SIZE)).astype(np.float32)
            for name, heads in (("q", 4), ("k", GROUPS), ("v", GROUPS))
        }
        feeds["last"] = np.array([count - 1], np.int32)
        feeds["mask"] = np.ones((1, count), np.int64)
        wanted, *its = peer.run(None, {**feeds, "old_k": its[0], "old_v": its[1]})
        found = exe.run({**feeds, "old_k": mine[0], "old_v": mine[1]})
        mine = [np.array(found[name]) for name in ("new_k", "new_v")]
        np.testing.assert_allclose(found["y"], wanted, 1e-5, 1e-5)
        used = resident(count, room, window)
        for one, other in zip(mine, its, strict=True):
            np.testing.assert_allclose(one[:, :, :used], other[:, :, :used], 1e-5, 1e-5)
            one[:, :, used:] = np.nan


@pytest.mark.parametrize(("room", "window"), [(6, 6), (8, 5)])
def test_one_program_takes_prompts_and_tokens_across_the_end_of_the_memory(room, window):
    model = sliding(window)
    sizes = {"batch": (1, 1), "n": (1, 9), "keys": (1, 24), "room": (room, room)}
    exe = gf.compile(model, sizes=sizes, options=OPTIONS)
    check_steps(exe, model, (3, 1, 1, 1, 1, 4, 1, 9, 1, 1), room, window)
    assert len(exe.specializations) == 1


def test_sequences_of_a_batch_slide_each_for_itself():
    """Two sequences of other lengths, whose rows begin at other positions."""
    room, window, counts = 5, 3, np.array([3, 9])
    model = sliding(window)
    sizes = {"batch": (1, 2), "n": (1, 9), "keys": (1, 24), "room": (room, room)}
    exe = gf.compile(model, sizes=sizes, options=OPTIONS)
    peer = peer_session(model)
    draw = np.random.default_rng(0).standard_normal

    def new(batch, length):
        widths = {"q": 4 * SIZE, "k": GROUPS * SIZE, "v": GROUPS * SIZE}
        return {k: draw((batch, length, n)).astype(np.float32) for k, n in widths.items()}

    def given(counts, memory):
        rest = {"last": (counts - 1).astype(np.int32)}
        rest["mask"] = np.ones((len(counts), counts.max()), np.int64)
        return {**rest, "old_k": memory[0], "old_v": memory[1]}

    none = np.zeros((1, GROUPS, room, SIZE), np.float32)
    prompts = [
        peer.run(None, {**new(1, n), **given(np.array([n]), (none, none))})[1:] for n in counts
    ]
    memory = [np.concatenate(rows) for rows in zip(*prompts, strict=True)]
    for _ in range(4):
        counts = counts + 1
        feeds = {**new(2, 1), **given(counts, memory)}
        wanted, *memory = peer.run(None, feeds)
        found = exe.run(feeds)
        np.testing.assert_allclose(found["y"], wanted, 1e-5, 1e-5)
        for name, rows in zip(("new_k", "new_v"), memory, strict=True):
            for k, count in enumerate(counts):
                used = resident(count, room, window)
                np.testing.assert_allclose(found[name][k, :, :used], rows[k, :, :used], 1e-5, 1e-5)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"window": 7, "room": 6}, "a memory of 6 rows that slides with a window of 7"),
        ({"window": 3, "room": 3, "bias": True}, "attention_bias for a memory that slides"),
    ],
)
def test_what_a_memory_cannot_hold_is_refused(given, reason):
    sizes = dict.fromkeys(("batch", "n", "keys"), (1, 1))
    with pytest.raises(UnsupportedOp, match=reason):
        gf.compile(sliding(**given), sizes=sizes, options=OPTIONS)
