"""Sliding windows: the input positions that each output position reads.

In: kernel, strides, pads and dilations, one number for each spatial axis.  Out: output extents,
index expressions of the taps, the predicate that a tap lies inside of the input, and the number of
taps that do.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from graphflow.arith import (
    IndexExpr,
    Predicate,
    conjunction,
    equal,
    floor_div,
    floor_mod,
    maximum,
    minimum,
    simplify_index,
    within,
)
from graphflow.base.errors import InvalidModel
from graphflow.base.fields import replace
from graphflow.kernels.definitions import stages
from graphflow.kernels.definitions.stages import Loop, Shape


def spatial_names(prefix: str, rank: int) -> tuple[str, ...]:
    """Names of variables for spatial axes: `ow`; `oh, ow`; `od, oh, ow`; numbered above three."""
    if rank <= 3:
        return tuple(prefix + letter for letter in "dhw"[3 - rank :])
    return tuple(f"{prefix}{axis}" for axis in range(rank))


class Window(Struct, frozen=True):
    """A window over spatial axes: one number for each axis, and how windows are counted.

    In `ceil_mode` there may be a last window that reaches behind the end padding.
    """

    kernel: Shape
    strides: Shape
    dilations: Shape
    pads_begin: Shape
    pads_end: Shape
    ceil_mode: bool = False

    @staticmethod
    def of(
        kernel: Sequence[int],
        strides: Sequence[int] | None = None,
        pads: Sequence[int] | None = None,
        dilations: Sequence[int] | None = None,
        ceil_mode: bool = False,
    ) -> Window:
        """A window with ONNX's defaults; `pads` lists all begins, then all ends."""
        rank = len(kernel)
        strides = (1,) * rank if strides is None else strides
        dilations = (1,) * rank if dilations is None else dilations
        pads = (0,) * (2 * rank) if pads is None else pads
        if len(strides) != rank or len(dilations) != rank or len(pads) != 2 * rank:
            raise InvalidModel(
                f"a kernel of {rank} axes needs {rank} strides and dilations and {2 * rank} pads, "
                f"not {len(strides)}, {len(dilations)} and {len(pads)}"
            )
        if min((*kernel, *strides, *dilations), default=1) < 1:
            raise InvalidModel(
                f"kernel {tuple(kernel)}, strides {tuple(strides)} and dilations "
                f"{tuple(dilations)} must all be at least 1"
            )
        if min(pads, default=0) < 0:
            raise InvalidModel(f"pads {tuple(pads)} must not be negative; crop before the window")
        begins, ends = tuple(pads[:rank]), tuple(pads[rank:])
        return Window(tuple(kernel), tuple(strides), tuple(dilations), begins, ends, ceil_mode)

    @property
    def rank(self) -> int:
        """The number of spatial axes."""
        return len(self.kernel)

    @property
    def reach(self) -> Shape:
        """The extent of the dilated kernel."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    def output_shape(self, spatial: Sequence[int]) -> Shape:
        """Output extents; in ceil mode a last window that starts in the end padding is dropped.

        In ceil mode the kernel may exceed the padded input if a window is left; its taps beyond the
        padding are ignored.  Raises `InvalidModel` if there is no window.
        """
        if len(spatial) != self.rank:
            raise InvalidModel(f"kernel {self.kernel} does not fit spatial axes {tuple(spatial)}")
        out: list[int] = []
        for axis, extent in enumerate(spatial):
            begin, stride = self.pads_begin[axis], self.strides[axis]
            room = extent + begin + self.pads_end[axis] - self.reach[axis]
            count = (room + (stride - 1 if self.ceil_mode else 0)) // stride + 1
            if count < 1:
                raise InvalidModel(
                    f"kernel {self.kernel} with dilations {self.dilations} is larger than the "
                    f"padded input {tuple(spatial)} on spatial axis {axis}"
                )
            if self.ceil_mode and (count - 1) * stride >= extent + begin:
                count -= 1
            out.append(count)
        return tuple(out)

    def along(self, axis: int) -> Window:
        """The window along one axis: one tap and stride 1 along the others, without padding."""

        def kept(numbers: Shape, others: int) -> tuple[int, ...]:
            return tuple(n if k == axis else others for k, n in enumerate(numbers))

        return replace(
            self,
            kernel=kept(self.kernel, 1),
            strides=kept(self.strides, 1),
            dilations=kept(self.dilations, 1),
            pads_begin=kept(self.pads_begin, 0),
            pads_end=kept(self.pads_end, 0),
        )

    def reaching(self, spatial: Sequence[int], outputs: Sequence[int]) -> Window:
        """The window without the outer taps that lie outside of the input for every output.

        `outputs` are the output extents of this window; `output_shape` of the result has no
        meaning.  At least one tap is left on each axis, so `inside` is still needed.
        """
        kernel, begins = [], []
        for axis, (extent, count) in enumerate(zip(spatial, outputs, strict=True)):
            begin, dilation = self.pads_begin[axis], self.dilations[axis]
            # Tap k of output o lies at o · stride + k · dilation − begin.
            first = -((max(count, 1) - 1) * self.strides[axis] - begin)
            low = max(0, -(-first // dilation))
            high = min(self.kernel[axis] - 1, (extent - 1 + begin) // dilation)
            low = min(low, self.kernel[axis] - 1)
            kernel.append(max(high - low, 0) + 1)
            begins.append(begin - low * dilation)
        return replace(self, kernel=tuple(kernel), pads_begin=tuple(begins))

    def positions(self, outer: Sequence[Loop], taps: Sequence[Loop]) -> tuple[IndexExpr, ...]:
        """The input index of each tap, one for each axis; it may lie outside of the input."""
        return tuple(
            o * stride + k * dilation - begin
            for (o, _), (k, _), stride, dilation, begin in zip(
                outer, taps, self.strides, self.dilations, self.pads_begin, strict=True
            )
        )

    def covering(
        self, outer: Sequence[Loop], taps: Sequence[Loop], begins: Shape, count: Sequence[int]
    ) -> tuple[tuple[IndexExpr, ...], Predicate]:
        """The windows in whose taps positions lie: their numbers, and the predicate that they are
        among the first `count` ones.

        Window w has tap k at `w · stride + k · dilation − begin`, with `begins` in place of the
        pads, as they may be negative.
        """
        reached = [
            o + begin - k * dilation
            for (o, _), (k, _), begin, dilation in zip(
                outer, taps, begins, self.dilations, strict=True
            )
        ]
        strided = list(zip(reached, self.strides, count, strict=True))
        whole = [equal(floor_mod(place, stride), 0) for place, stride, _ in strided]
        inside = [within(place, 0, extent * stride) for place, stride, extent in strided]
        numbers = tuple(floor_div(place, stride) for place, stride, _ in strided)
        return numbers, conjunction((*inside, *whole))

    def inside(self, places: Sequence[IndexExpr], spatial: Sequence[int]) -> Predicate:
        """The predicate that the input has an element at `places`."""
        return conjunction(within(p, 0, n) for p, n in zip(places, spatial, strict=True))

    def counts(
        self, outer: Sequence[Loop], spatial: Sequence[int], include_pads: bool
    ) -> tuple[IndexExpr, ...]:
        """The number of taps that count at each output position, as one factor for each axis.

        These are the taps inside the input, or with `include_pads` inside the padded input.  Taps
        beyond the padding, which exist in ceil mode, never count.
        """
        factors: list[IndexExpr] = []
        for axis, (o, _) in enumerate(outer):
            begin, dilation = self.pads_begin[axis], self.dilations[axis]
            start = o * self.strides[axis] - begin
            low = -begin if include_pads else 0
            high = spatial[axis] + (self.pads_end[axis] if include_pads else 0)
            # Taps k with low <= start + k·dilation < high, as a range [first, last) of k.
            first = maximum(0, -floor_div(start - low, dilation))
            last = minimum(self.kernel[axis], -floor_div(start - high, dilation))
            factors.append(simplify_index(maximum(0, last - first), stages.ranges_of(outer)))
        return tuple(factors)
