"""Convolution and transposed convolution over any number of spatial axes, with groups, strides,
dilations and padding.

In: logical shapes and attributes.  Out: one PrimFunc with parameters x, w, optionally b, and y.  A
predicate skips the taps that fall into the padding, so nothing outside of `x` is read.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphflow.arith import Predicate, Var
from graphflow.base.errors import InvalidModel
from graphflow.kernels.definitions import stages
from graphflow.kernels.definitions.stages import Shape
from graphflow.kernels.definitions.windows.window import Window, spatial_names
from graphflow.tir import Binary, Buffer, Expr, Load, PrimFunc, ReduceOp


def convolution(
    x_shape: Shape,
    w_shape: Shape,
    window: Window | None = None,
    *,
    groups: int = 1,
    bias: bool = False,
    dtype: str = "float32",
) -> PrimFunc:
    """`y[n, oc, o…] = b[oc] + Σ x[n, ic, o·stride + k·dilation − pad] · w[oc, ic, k…]`.

    `x_shape` is (N, IC, spatial…), `w_shape` (OC, IC / groups, kernel…).  `window` has the kernel's
    extents; None stands for stride 1 without padding.  Loops: n, oc, spatial; then ic, kernel.
    With more than one group a loop g comes after n, and oc and ic count inside the group.
    """
    window = Window.of(w_shape[2:]) if window is None else window
    _check(x_shape, w_shape, window, groups)
    out_spatial = window.output_shape(x_shape[2:])
    x, w = Buffer("x", x_shape, dtype), Buffer("w", w_shape, dtype)
    b = Buffer("b", (w_shape[0],), dtype)
    y = Buffer("y", (x_shape[0], w_shape[0], *out_spatial), dtype)

    loops = _ConvolutionLoops(groups, (w_shape[0] // groups, w_shape[1]), window, out_spatial)
    places = window.positions(loops.outer, loops.taps)
    product = Binary(
        "mul",
        Load(x, (loops.n, loops.in_channel, *places)),
        Load(w, (loops.out_channel, loops.ic, *stages.indices_of(loops.taps))),
    )
    return loops.kernel(
        "conv", (x, w), y, product, b if bias else None, window.inside(places, x_shape[2:])
    )


class _ConvolutionLoops:
    """The loops n, g, oc and spatial, and ic and taps; `channels` are those of a group."""

    def __init__(
        self, groups: int, channels: tuple[int, int], window: Window, out_spatial: Sequence[int]
    ) -> None:
        self.n, g, oc, self.ic = Var("n"), Var("g"), Var("oc"), Var("ic")
        outputs, inputs = channels
        self.outer = stages.loops_over(spatial_names("o", window.rank), out_spatial)
        self.taps = stages.loops_over(spatial_names("k", window.rank), window.kernel)
        self.channels = ((g, groups), (oc, outputs)) if groups > 1 else ((oc, outputs),)
        self.oc = oc
        self.out_channel = g * outputs + oc if groups > 1 else oc
        self.in_channel = g * inputs + self.ic if groups > 1 else self.ic
        self.inputs = inputs

    def kernel(
        self,
        name: str,
        operands: tuple[Buffer, Buffer],
        y: Buffer,
        product: Expr,
        bias: Buffer | None,
        where: Predicate,
    ) -> PrimFunc:
        """The kernel that sums the products where `where` holds, beginning with the bias."""
        stage = stages.reduction_stage(
            name,
            ReduceOp.ADD,
            y,
            ((self.n, y.shape[0]), *self.channels, *self.outer),
            ((self.ic, self.inputs), *self.taps),
            product,
            indices=(self.n, self.out_channel, *stages.indices_of(self.outer)),
            init=None if bias is None else Load(bias, (self.out_channel,)),
            where=where,
        )
        inputs = operands if bias is None else (*operands, bias)
        return stages.kernel_of_stages(name, inputs, (y,), (stage,))


def _check(x_shape: Shape, w_shape: Shape, window: Window, groups: int) -> None:
    if len(x_shape) != len(w_shape) or len(x_shape) < 3:
        raise InvalidModel(
            f"input {x_shape} and weight {w_shape} must have the same rank, at least 3"
        )
    if groups < 1 or w_shape[0] % groups or x_shape[1] != w_shape[1] * groups:
        raise InvalidModel(
            f"input {x_shape} has {x_shape[1]} channels; weight {w_shape} with {groups} groups "
            f"needs {w_shape[1] * groups}, and output channels that {groups} divides"
        )
    if window.kernel != w_shape[2:]:
        raise InvalidModel(f"a window of {window.kernel} is not that of the weight {w_shape}")


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
    outputs = w_shape[1]
    x, w = Buffer("x", x_shape, dtype), Buffer("w", w_shape, dtype)
    b = Buffer("b", (outputs * groups,), dtype)
    y = Buffer("y", (x_shape[0], outputs * groups, *out_spatial), dtype)

    loops = _ConvolutionLoops(groups, (outputs, x_shape[1] // groups), window, out_spatial)
    places, covered = window.covering(loops.outer, loops.taps, begins, x_shape[2:])
    product = Binary(
        "mul",
        Load(x, (loops.n, loops.in_channel, *places)),
        Load(w, (loops.in_channel, loops.oc, *stages.indices_of(loops.taps))),
    )
    return loops.kernel("conv_transpose", (x, w), y, product, b if bias else None, covered)
