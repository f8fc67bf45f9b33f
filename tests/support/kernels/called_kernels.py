"""A kernel that calls a fused multiply-add, as text."""

KERNEL = """
@instruction
def fma(c: inout[f32[4]], a: f32[()], b: f32[4]):
    for lane in serial(0, 4):
        c[lane] += a[()] * b[lane]


@primfunc
def k(x: f32[3], w: f32[3, 8], y: out[f32[8]]):
    for j in serial(0, 8):
        y[j] = f32(0.0)
    for r in serial(0, 3):
        for t in serial(0, 2):
            fma(y[4*t:4*t + 4], x[r], w[r, 4*t:4*t + 4])
"""
