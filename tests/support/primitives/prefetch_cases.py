"""Random applications of `prefetch`: windows of any buffer, at any loop, some of them outside."""

from graphflow.arith import IndexExpr, Var, const, minimum
from graphflow.schedule import prefetch
from graphflow.tir import PrimFunc, buffers_of, loops_of, parse
from support.kernels.random_kernels import Number
from support.primitives.choices import Arguments
from support.primitives.loop_cases import one_of
from support.primitives.primitive_cases import PrimitiveCase
from support.schedule_checks import kernel


def packed_kernel(number: Number) -> PrimFunc:
    """A product with packed weights, of which each row tile needs all of a panel."""
    panels, rows, depth = number(1, 3), number(1, 2), number(1, 3)
    kind = ("serial", "vectorized")[number(0, 1)]
    scope = ("scratch", "register")[number(0, 3) == 0]
    return parse(f"""
@primfunc
def packed(x: f32[{rows}, {depth}], w: f32[{panels}, {depth}, 32], y: out[f32[{panels}, {rows}, 32]]):
    for panel in serial(0, {panels}):
        for row in serial(0, {rows}):
            t = alloc(f32[32], {scope})
            for z in serial(0, 32):
                t[z] = f32(0.0)
            for k in serial(0, {depth}):
                for c in {kind}(0, 32):
                    t[c] += x[row, k] * w[panel, k, c]
            for s in serial(0, 32):
                y[panel, row, s] = t[s]
""")  # noqa: E501


def _window(func: PrimFunc, number: Number) -> Arguments:
    loops = list(loops_of(func.body))
    long = [b for b in buffers_of(func) if b.shape and b.dtype == "float32" and b.shape[-1] >= 16]
    if not loops or not long:
        return None
    buffer = long[number(0, len(long) - 1)]
    loop = loops[number(0, len(loops) - 1)]
    names = [inner.var.name for inner in loops]

    def index(extent: int) -> IndexExpr:
        if number(0, 2):
            return const(number(0, extent - (number(0, 5) > 0)))
        return minimum(Var(one_of(names, number) or "") + 1, extent - 1)

    starts = [index(extent) for extent in buffer.shape[:-1]]
    return loop.var.name, buffer.name, (*starts, (16 * number(0, buffer.shape[-1] // 16 - 1), 16))


# What is refused ----------------------------------------------------------------------------------

FETCHED = """
for panel in serial(0, 4):
    for k in serial(0, 5):
        for c in serial(0, 32):
            y[panel, c] += w[panel, k, c]
for lane in vectorized(0, 6):
    y[0, lane] = f32(1.0)
u = alloc(f32[16], register)
for j in serial(0, 1):
    t = alloc(f32[16])
    t[j] = f32(1.0)
"""

panel, k = Var("panel"), Var("k")


def fetching() -> PrimFunc:
    """A kernel that sums the panels of w."""
    params = "z: f32[16, 5], b: i32[16], w: f32[4, 5, 32], y: inout[f32[4, 32]]"
    return kernel(FETCHED, params)


PREFETCH_CASES = (
    PrimitiveCase(prefetch, _window, packed_kernel)
    .on(fetching, "q", "w", (0, k, (0, 16)))
    .refuses("", "k has no loop or block q")
    .given("k", "v", (0, k, (0, 16)))
    .refuses("", "k has no buffer v; it has z, b, w, y")
    .given("k", "w", (0, (0, 16)))
    .refuses("window", "w has 3 axes, the window 2")
    .given("k", "w", (0, 0, (0, 8)))
    .refuses("window", r".* and gets \[8\] of w")
    .given("k", "z", ((0, 16), 0))
    .refuses("window", r".* that follow one another")
    .given("k", "b", ((0, 16),))
    .refuses("window", r".*takes 16 .* of float32 .* b, int32\[16\]")
    .given("panel", "w", (0, k, (0, 16)))
    .refuses("scope", "k is no loop around panel")
    .given("k", "t", ((0, 16),))
    .refuses("scope", "t is not allocated at the end of k")
    .given("j", "u", ((0, 16),))
    .refuses("memory", "u is in registers")
    .given("k", "w", (panel + 1, k, (0, 16)))
    .refuses("inside", "what k fetches of w lies inside it does not hold", r"panel=3")
    .given("k", "w", (minimum(panel + 1, 3), k, (17, 16)))
    .refuses("inside", "what k fetches of w lies inside it does not hold")
    .given("lane", "w", (0, 0, (0, 16)))
    .refuses("lanes", "lane is vectorized"),
)
