"""The error function of float32 by tables in registers, for AVX-512.

In: the arithmetic of a builder and |x| <= `ERF_MOST`.  Out: erf(|x|), with an error of at most 1.33
units in the last place.  The axis is divided at multiples of about `SPACING`; around each of the 16
centers erf is a polynomial, whose coefficients an instruction fetches for 16 lanes.  With
clamp and sign, erf takes 19 instructions, of which 11 wait for each other; by one polynomial for
the whole axis it is 22 of 24.

The centers are not the multiples themselves, but numbers close to them where erf is almost a
float32, so that the first coefficient adds no error (S. Gal, "Computing elementary functions: a new
approach for achieving high accuracy and good performance", 1986).  Around zero, erf is |x| plus a
polynomial, since small results have to be exact to the last place as well.
"""

from __future__ import annotations

from graphflow.codegen.avx512 import looked_up
from graphflow.codegen.float_arithmetic import ROUNDING, FloatArithmetic
from graphflow.llvm import IrValue

SPACING = 17 / 64

CENTERS = (
    0.0, 0.2654484, 0.5309122, 0.79655135, 1.0618063, 1.3274268, 1.5930494, 1.858706, 2.1235998,
    2.389241, 2.6548324, 2.920515, 3.1873517, 3.4545555, 3.7201805, 3.9858055,
)  # fmt: skip
AT_CENTERS = (
    0.0, 0.29263753, 0.547241, 0.7400434, 0.86680496, 0.9395182, 0.9757353, 0.99142647,
    0.99732864, 0.9992722, 0.9998263, 0.99996376, 0.99999344, 0.999999, 0.9999999, 1.0,
)  # fmt: skip
"""erf at the centers."""

COEFFICIENTS = (
    (
        0.12837917, 1.051607, 0.8512193, 0.59827083, 0.36544102, 0.19373198, 0.08918662, 0.03565001,
        0.012414454, 0.003743665, 0.000980594, 0.00022293626, 4.3688415e-05, 7.4063596e-06,
        1.1013644e-06, 1.5226061e-07,
    ),
    (
        3.319364e-07, -0.2791419, -0.4519163, -0.47655073, -0.38802886, -0.25716794, -0.14208081,
        -0.06626351, -0.026363077, -0.008944098, -0.0026030159, -0.0006509836, -0.00013923772,
        -3.3899767e-05, -1.4885285e-05, -0.00011448547,
    ),
    (
        -0.3761444, -0.3011612, -0.123801224, 0.053630013, 0.15285456, 0.16300103, 0.12116522,
        0.07022701, 0.033185963, 0.012999122, 0.004280477, 0.0011932155, 0.0002812774,
        5.6444555e-05, 9.791563e-06, -0.003607183,
    ),
    (
        0.00032677053, 0.1319948, 0.18231566, 0.13698366, 0.048440237, -0.021920482, -0.048762552,
        -0.04306173, -0.026492996, -0.012623849, -0.0048669074, -0.0015484368, -0.00040880367,
        0.00037842937, 0.0005915133, -0.037244122,
    ),
    (
        0.110788725, 0.07716488, -0.00091321545, -0.058997836, -0.06587947, -0.036974043,
        -0.0052299355, 0.0108650485, 0.0124451425, 0.0080981925, 0.0038517201, 0.0014400324,
        0.00043468078, 0.000107949774, 2.2653398e-05, -0.12431903,
    ),
)  # fmt: skip
"""(erf(c + t) − erf(c)) / t for each center c, on |t| <= SPACING / 2; (erf(t) − t) / t for c = 0.
There is a row for each power of t, from the lowest up."""


def erf_by_table(math: FloatArithmetic, size: IrValue) -> IrValue:
    """erf of a float32 value that is not negative; NaN stays."""
    b = math.builder
    rounded = math.fma(size, math.constant(1 / SPACING, size), ROUNDING)
    index = b.convert("bitcast", rounded, "i32")
    t = b.binary("fsub", size, looked_up(b, CENTERS, index))
    total = looked_up(b, COEFFICIENTS[-1], index)
    for row in reversed(COEFFICIENTS[:-1]):
        total = math.fma(total, t, looked_up(b, row, index))
    around_zero = b.compare("fcmp oeq", rounded, math.constant(ROUNDING, size))
    return math.fma(total, t, b.select(around_zero, size, looked_up(b, AT_CENTERS, index)))
