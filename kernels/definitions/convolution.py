"""Convolution and transposed convolution over any number of spatial axes, with groups, strides,
dilations and padding.

In: logical shapes and attributes.  Out: one PrimFunc with parameters x, w, optionally b, and y.  A
predicate skips the taps that fall into the padding, so nothing outside of `x` is read.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphflow.arith import Var, conjunction, equal, floor_div, floor_mod, within
from graphflow.base.errors import InvalidModel
from graphflow.kernels.definitions.stages import Shape, kernel, loops_over, reduction_stage
from graphflow.kernels.definitions.window import Window, spatial_names
from graphflow.tir import Binary, Buffer, Load, PrimFunc, ReduceOp


def convolution(
    x_shape: Shape,
    w_shape: Shape,
    *,
    strides: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    groups: int = 1,
    bias: bool = False,
    dtype: str = "float32",
    name: str = "conv",
) -> PrimFunc:
    """`y[n, oc, o…] = b[oc] + Σ x[n, ic, o·stride + k·dilation − pad] · w[oc, ic, k…]`.

    `x_shape` is (N, IC, spatial…), `w_shape` (OC, IC / groups, kernel…), `pads` all begins and then
    all ends.  Loops: n, oc, spatial; then ic, kernel.  With more than one group a loop g comes
    after n, and oc and ic count inside the group.
    """
    _check(x_shape, w_shape, groups)
    window = Window.of(w_shape[2:], strides, pads, dilations)
    out_spatial = window.output_shape(x_shape[2:])
    group_outputs = w_shape[0] // groups
    x, w = Buffer("x", x_shape, dtype), Buffer("w", w_shape, dtype)
    b = Buffer("b", (w_shape[0],), dtype)
    y = Buffer("y", (x_shape[0], w_shape[0], *out_spatial), dtype)

    n, g, oc, ic = Var("n"), Var("g"), Var("oc"), Var("ic")
    outer = loops_over(spatial_names("o", window.rank), out_spatial)
    taps = loops_over(spatial_names("k", window.rank), window.kernel)
    channels = ((g, groups), (oc, group_outputs)) if groups > 1 else ((oc, group_outputs),)
    out_channel = g * group_outputs + oc if groups > 1 else oc
    in_channel = g * w_shape[1] + ic if groups > 1 else ic
    places = window.positions(outer, taps)
    target = (n, out_channel, *(var for var, _ in outer))
    product = Binary(
        "mul",
        Load(x, (n, in_channel, *places)),
        Load(w, (out_channel, ic, *(var for var, _ in taps))),
    )
    stage = reduction_stage(
        name,
        ReduceOp.ADD,
        y,
        ((n, x_shape[0]), *channels, *outer),
        target,
        ((ic, w_shape[1]), *taps),
        product,
        init=Load(b, (out_channel,)) if bias else None,
        where=window.inside(places, x_shape[2:]),
    )
    return kernel(name, (x, w, b) if bias else (x, w), (y,), (stage,))


def _check(x_shape: Shape, w_shape: Shape, groups: int) -> None:
    if len(x_shape) != len(w_shape) or len(x_shape) < 3:
        raise InvalidModel(
            f"input {x_shape} and weight {w_shape} must have the same rank, at least 3"
        )
    if groups < 1 or w_shape[0] % groups or x_shape[1] != w_shape[1] * groups:
        raise InvalidModel(
            f"input {x_shape} has {x_shape[1]} channels; weight {w_shape} with {groups} groups "
            f"needs {w_shape[1] * groups}, and output channels that {groups} divides"
        )


def transposed_convolution(
    x_shape: Shape,
    w_shape: Shape,
    out_spatial: Sequence[int],
    *,
    strides: Sequence[int] | None = None,
    pads_begin: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    groups: int = 1,
    bias: bool = False,
    dtype: str = "float32",
) -> PrimFunc:
    """`y[n, oc, o…] = b[oc] + Σ x[n, ic, (o + pad − k·dilation) / stride] · w[ic, oc, k…]`.

    `x_shape` is (N, IC, spatial…), `w_shape` (IC, OC / groups, kernel…); the sum takes the taps
    that the stride divides and that lie inside x.  `out_spatial` may be any extents: where no tap
    reaches, the result is the bias.  Loops are those of `convolution`.
    """
    if len(x_shape) != len(w_shape) or len(x_shape) < 3:
        raise InvalidModel(
            f"input {x_shape} and weight {w_shape} must have the same rank, at least 3"
        )
    if groups < 1 or w_shape[0] != x_shape[1] or x_shape[1] % groups:
        raise InvalidModel(
            f"input {x_shape} has {x_shape[1]} channels; the weight {w_shape} must have as many, "
            f"and {groups} groups must divide them"
        )
    rank = len(w_shape) - 2
    # Begins may be negative: then the result starts before the first tap.
    begins = tuple(pads_begin or (0,) * rank)
    window = Window.of(w_shape[2:], strides, None, dilations)
    if len(begins) != rank or len(out_spatial) != rank or min(out_spatial) < 0:
        raise InvalidModel(f"pads {begins} and output {tuple(out_spatial)} do not fit {w_shape}")
    outputs, inputs = w_shape[1], x_shape[1] // groups
    x, w = Buffer("x", x_shape, dtype), Buffer("w", w_shape, dtype)
    b = Buffer("b", (outputs * groups,), dtype)
    y = Buffer("y", (x_shape[0], outputs * groups, *out_spatial), dtype)

    n, g, oc, ic = Var("n"), Var("g"), Var("oc"), Var("ic")
    outer = loops_over(spatial_names("o", rank), tuple(out_spatial))
    taps = loops_over(spatial_names("k", rank), window.kernel)
    channels = ((g, groups), (oc, outputs)) if groups > 1 else ((oc, outputs),)
    out_channel = g * outputs + oc if groups > 1 else oc
    in_channel = g * inputs + ic if groups > 1 else ic
    reached = [
        o + begin - k * dilation
        for (o, _), (k, _), begin, dilation in zip(
            outer, taps, begins, window.dilations, strict=True
        )
    ]
    strided = list(zip(reached, window.strides, x_shape[2:], strict=True))
    product = Binary(
        "mul",
        Load(x, (n, in_channel, *(floor_div(place, stride) for place, stride, _ in strided))),
        Load(w, (in_channel, oc, *(var for var, _ in taps))),
    )
    whole = [equal(floor_mod(place, stride), 0) for place, stride, _ in strided]
    inside = [within(place, 0, extent * stride) for place, stride, extent in strided]
    stage = reduction_stage(
        "conv_transpose",
        ReduceOp.ADD,
        y,
        ((n, x_shape[0]), *channels, *outer),
        (n, out_channel, *(var for var, _ in outer)),
        ((ic, inputs), *taps),
        product,
        init=Load(b, (out_channel,)) if bias else None,
        where=conjunction((*inside, *whole)),
    )
    return kernel("conv_transpose", (x, w, b) if bias else (x, w), (y,), (stage,))
