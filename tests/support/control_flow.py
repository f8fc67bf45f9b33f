"""Models with branches and loops, in ONNX's text form."""

from support.single import noise

X = {"x": noise(2, 3)}


BRANCHES = """y = If ({condition}) <
    then_branch = t () => (float[2,3] a) <float[3] w = {{1, 2, 3}}> {{ s = Add(x, w) a = Neg(s) }},
    else_branch = e () => (float[2,3] b) {{ s = Mul(x, x) b = Identity(s) }}
>"""


LOOP = """g (float[2,3] x) => (float[2,3] y, float[n,2,3] rows) {
    y, rows = Loop (trips, going, x) <
        body = b (int64 i, bool c, float[2,3] v) => (bool again, float[2,3] w, float[2,3] row)
          <float[3] step = {1, -1, 2}> {
            f = Cast <to: int = 1> (i) s = Mul(f, step) w = Add(v, s) row = Neg(w)
            again = Less(i, last)
          }
    > }"""
