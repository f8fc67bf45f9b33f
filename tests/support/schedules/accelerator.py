"""A small accelerator: a systolic array of 4×4 cells behind a scratchpad and an accumulator.

Everything about it is data: two configurations, three memories, and its instructions as kernels.
`scheduled_matmul` puts a matrix product with a scaled relu on it with scheduling primitives alone.
"""

from graphflow.arith import const
from graphflow.schedule import (
    Schedule,
    add_loop,
    bind_config,
    delete_config,
    divide_loop,
    fission,
    name_statement,
    remove_loop,
    reorder_loops,
    replace,
    set_memory,
    shift_loop,
    stage_window,
    write_config,
)
from graphflow.tir import Config, IndexValue, MemorySpace, PrimFunc, parse

ARRAY = Config("array", {"accumulate": "int32"})
"""What a product does with the accumulator: 0 overwrites it, 1 adds to it."""
OUTPUT = Config("output", {"relu": "int32", "scale": "int32"})
"""What happens to an element that leaves the accumulator."""

SPAD = MemorySpace("spad", ("load", "preload", "product"), rank=2, capacity=64, alignment=4)
CELLS = MemorySpace("cells", ("preload", "product"), rank=2, capacity=16)
ACC = MemorySpace("acc", ("zero", "product", "store"), rank=2, capacity=1024, alignment=16)

HEAD = """
array = config(accumulate=i32)
output = config(relu=i32, scale=i32)
spad = memory(instructions=("load", "preload", "product"), rank=2, capacity=64, alignment=4)
cells = memory(instructions=("preload", "product"), rank=2, capacity=16)
acc = memory(instructions=("zero", "product", "store"), rank=2, capacity=1024, alignment=16)


@primfunc
"""


def _instruction(text: str) -> PrimFunc:
    return parse(HEAD + text.strip("\n") + "\n")


LOAD = _instruction("""
def load(to: out[buffer(i8[4, 4], spad)], x: i8[4, 4]):
    for r in serial(0, 4):
        for c in serial(0, 4):
            to[r, c] = x[r, c]
""")

PRELOAD = _instruction("""
def preload(to: out[buffer(i8[4, 4], cells)], x: buffer(i8[4, 4], spad)):
    for r in serial(0, 4):
        for c in serial(0, 4):
            to[r, c] = x[r, c]
""")

ZERO = _instruction("""
def zero(to: out[buffer(i32[4, 4], acc)]):
    for r in serial(0, 4):
        for c in serial(0, 4):
            to[r, c] = i32(0)
""")

PRODUCT = _instruction("""
def product(to: inout[buffer(i32[4, 4], acc)], a: buffer(i8[4, 4], spad), w: buffer(i8[4, 4], cells)):
    assume(unless(False), array.accumulate == i32(1))
    for r in serial(0, 4):
        for c in serial(0, 4):
            for k in serial(0, 4):
                to[r, c] += cast(i32, a[r, k]) * cast(i32, w[k, c])
""")  # noqa: E501

STORE = _instruction("""
def store(to: out[i32[4, 4]], x: buffer(i32[4, 4], acc)):
    for r in serial(0, 4):
        for c in serial(0, 4):
            to[r, c] = select(data(output.relu == i32(1)), max(x[r, c] * output.scale, i32(0)), x[r, c] * output.scale)
""")  # noqa: E501

SET_ACCUMULATE = _instruction("""
def set_accumulate(value: index):
    array.accumulate = index(value, i32)
""")

SET_RELU = _instruction("""
def set_relu(value: index):
    output.relu = index(value, i32)
""")

MATMUL = parse("""
@primfunc
def matmul(a: i8[12, 12], b: i8[12, 12], y: out[i32[12, 12]]):
    t = alloc(i32[12, 12])
    for i in serial(0, 12):
        for j in serial(0, 12):
            t[i, j] = i32(0)
            for k in serial(0, 12):
                t[i, j] += cast(i32, a[i, k]) * cast(i32, b[k, j])
    for u in serial(0, 12):
        for v in serial(0, 12):
            y[u, v] = max(t[u, v] * i32(3), i32(0))
""")


def tiled() -> Schedule:
    """The product in tiles, each in the memory of the accelerator; no instruction yet."""
    s = Schedule.of(MATMUL).apply(fission, "j", 1, "_sum", 2)
    for loop in ("i", "j", "i_sum", "j_sum", "k", "u", "v"):
        s = s.apply(divide_loop, loop, 4, (f"{loop}_tile", f"{loop}_in"), "perfect")
    s = s.apply(reorder_loops, ("i_tile", "j_tile", "i_in", "j_in"))
    outer = ("j_sum_tile", "k_tile", "i_sum_tile")
    s = s.apply(reorder_loops, (*outer, "i_sum_in", "j_sum_in", "k_in"))
    s = s.apply(reorder_loops, ("u_tile", "v_tile", "u_in", "v_in"))
    s = s.apply(stage_window, "k_tile", "b", "held")
    s = s.apply(add_loop, "held_load_0", "once", 1)
    s = s.apply(stage_window, "once", "b", "weights").apply(remove_loop, "once")
    s = s.apply(stage_window, "i_sum_tile", "a", "rows")
    for buffer in ("held", "weights", "rows"):
        for axis in (0, 1):
            s = s.apply(shift_loop, f"{buffer}_load_{axis}", 0)
    for buffer, memory in {"held": CELLS, "weights": SPAD, "rows": SPAD, "t": ACC}.items():
        s = s.apply(set_memory, buffer, memory)
    return s


def mapped() -> Schedule:
    """Every statement an instruction; the state is set before each of those that need it."""
    s = tiled()
    for place, instruction in {
        "i_in": ZERO,
        "weights_load_0": LOAD,
        "held_load_0": PRELOAD,
        "rows_load_0": LOAD,
    }.items():
        s = s.apply(replace, place, instruction)
    s = s.apply(write_config, "i_sum_in", ARRAY.field("accumulate"), _index(1))
    s = s.apply(replace, "i_sum_in", PRODUCT)
    s = s.apply(name_statement, "u_in", "leave")
    s = s.apply(bind_config, "leave", "i32(3)", OUTPUT.field("scale"))
    s = s.apply(write_config, "u_in", OUTPUT.field("relu"), _index(1))
    s = s.apply(replace, "u_in", STORE)
    for place, instruction in {"i_sum_tile[2]": SET_ACCUMULATE, "leave[1]": SET_RELU}.items():
        s = s.apply(name_statement, place, "setting").apply(replace, "setting", instruction)
    return s


def scheduled_matmul() -> Schedule:
    """The product with the state set once, in front of the loops that need it."""
    s = mapped()
    s = s.apply(write_config, "j_sum_tile", ARRAY.field("accumulate"), _index(1))
    s = s.apply(delete_config, "set_accumulate")
    s = s.apply(write_config, "u_tile", OUTPUT.field("relu"), _index(1))
    s = s.apply(delete_config, "set_relu")
    s = s.apply(write_config, "u_tile", OUTPUT.field("scale"), 3)
    s = s.apply(delete_config, "leave[0]")
    for place, instruction in {"[2]": SET_ACCUMULATE, "[4]": SET_RELU}.items():
        s = s.apply(name_statement, place, "setting").apply(replace, "setting", instruction)
    return s


def _index(value: int) -> IndexValue:
    return IndexValue(const(value), "int32")
