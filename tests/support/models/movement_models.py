"""Random small models whose channels are moved, scaled and summed in many ways.

In: a seed.  Out: a model of splits, concatenations, channel shuffles, convolutions, factors and
summands by channel, matrix products, and normalizations between transposes.  Inner tensors are
outputs too, and have several readers.
"""

from collections.abc import Callable

import numpy as np
import onnx

from support.padded import Net

ORDINARY_SHARE = 0.6
"""Of the vectors by channel; the others hold some of `SPECIALS`."""

SPECIALS = (0.0, -0.0, np.inf, -np.inf, np.nan, 1e-38, 1e-40, 1e38, -1.0, -1e-20, 1e18)
STEPS = (2, 6)
"""The fewest and, plus one, the most steps of a model."""


def random_moving_model(seed: int) -> onnx.ModelProto:
    """The model of a seed."""
    return _Maker(seed).model()


class _Maker:
    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng((seed, 17))
        self._b = Net(seed)
        self._side = int(self._rng.choice((1, 2, 3, 4, 5, 6, 7, 12)))
        self._batch = int(self._rng.choice((1, 1, 2)))
        self._special = self._rng.random() < 0.4
        self._values: list[str] = []

    def model(self) -> onnx.ModelProto:
        b, rng = self._b, self._rng
        channels = int(rng.integers(3, 41))
        x = b.input("x", (self._batch, channels, self._side, self._side))
        self._values.append(b.relu(b.conv(x, channels, 1)) if rng.random() < 0.7 else x)
        kinds: list[tuple[float, Callable[[str], str]]] = [
            (3, self._conv), (3, self._vector), (2, self._shuffle), (2, self._unit),
            (2, self._join), (1.5, self._split), (1, self._scaled_conv), (1, self._tokens),
            (1, self._matmul), (0.7, self._activation), (0.5, self._backward), (0.5, self._reduce),
            (0.5, self._transposed),
        ]  # fmt: skip
        chances = np.array([chance for chance, _ in kinds])
        for _ in range(int(rng.integers(*STEPS))):
            step = kinds[int(rng.choice(len(kinds), p=chances / chances.sum()))][1]
            self._values.append(step(self._any()))
        last = self._values[-1]
        if last == x:  # no step applied to it
            last = b.node("Identity", [x])
        outputs = {last: None}
        for value in self._values[1:-1]:
            if rng.random() < 0.2 and value != x:  # a step may have given the input back
                outputs[value] = None
        if rng.random() < 0.15:
            flat = b.node("Flatten", [b.node("GlobalAveragePool", [last])], axis=1)
            b.set_channels(flat, b.channels(last))
            outputs[b.linear(flat, 5)] = None
        b.output(*outputs)
        return b.model()

    def _any(self) -> str:
        """A value that there is, mostly the last one."""
        if self._rng.random() < 0.75:
            return self._values[-1]
        return str(self._rng.choice(self._values))

    # Steps ---------------------------------------------------------------------------------------

    def _conv(self, x: str) -> str:
        b, rng = self._b, self._rng
        channels = b.channels(x)
        kernel = int(rng.choice((1, 1, 3)))
        options = {"pads": [kernel // 2] * 4, "bias": bool(rng.random() < 0.6)}
        divisors = [g for g in range(2, channels) if channels % g == 0]
        kind = rng.random()
        if kind < 0.2:
            return b.conv(x, channels, 3, group=channels, pads=[1] * 4)
        if kind < 0.35 and divisors:
            group = int(rng.choice(divisors))
            return b.conv(x, group * int(rng.integers(1, 4)), kernel, group=group, **options)
        return b.conv(x, int(rng.integers(3, 41)), kernel, **options)

    def _scaled_conv(self, x: str) -> str:
        x = self._conv(x)
        for _ in range(int(self._rng.integers(1, 4))):
            x = self._vector(x)
        return x

    def _vector(self, x: str) -> str:
        b, rng = self._b, self._rng
        channels = b.channels(x)
        kind = rng.integers(4)
        if kind == 0:
            variance = b.constant(rng.uniform(0.5, 2, channels).astype(np.float32))
            parts = [self._numbers(channels) for _ in range(3)]
            return b.node("BatchNormalization", [x, *parts, variance])
        shape = [(1, channels, 1, 1), (channels, 1, 1), (1,), (1, channels, 1, 1)][rng.integers(4)]
        op = ("Mul", "Add", "Sub")[kind - 1]
        pair = [x, self._numbers(*shape)]
        flip = rng.random() < 0.3
        found = b.node(op, pair[::-1] if flip else pair)
        b.set_channels(found, channels)
        return found

    def _numbers(self, *shape: int) -> str:
        array = self._rng.uniform(0.5, 1.5, shape) * self._rng.choice((-1, 1), shape)
        flat = array.reshape(-1)
        if self._special and self._rng.random() > ORDINARY_SHARE:
            places = self._rng.integers(flat.size, size=int(self._rng.integers(1, 3)))
            flat[places] = self._rng.choice(SPECIALS, places.size)
        return self._b.constant(array.astype(np.float32))

    def _shuffle(self, x: str) -> str:
        b, rng = self._b, self._rng
        channels, side, n = b.channels(x), self._side, self._batch
        divisors = [g for g in range(2, channels) if channels % g == 0]
        if not divisors:
            return x if len(self._values) < 2 else b.relu(x)
        group = int(rng.choice(divisors))
        apart, together = (n, group, channels // group, side, side), (n, channels, side, side)
        y = b.node("Reshape", [x, b.integers(*apart)])
        y = b.node("Transpose", [y], perm=[0, 2, 1, 3, 4])
        y = b.node("Reshape", [y, b.integers(*together)])
        b.set_channels(y, channels)
        return y

    def _split(self, x: str) -> str:
        b, rng = self._b, self._rng
        channels = b.channels(x)
        at = int(rng.integers(1, channels))
        parts = b.split(x, at, channels - at)
        self._values += [part for part in parts if b.channels(part) >= 3]
        return b.concat(*parts[::-1]) if rng.random() < 0.3 else self._values[-1]

    def _join(self, x: str) -> str:
        parts = [x, *(self._any() for _ in range(int(self._rng.integers(1, 3))))]
        if self._rng.random() < 0.2:
            parts.append(x)
        if sum(map(self._b.channels, parts)) > 90:
            return self._conv(x)
        self._rng.shuffle(parts)
        return self._b.concat(*parts)

    def _unit(self, x: str) -> str:
        """Part of the channels through a convolution, joined with the others, shuffled."""
        b = self._b
        channels = b.channels(x)
        at = channels // 2
        left, right = b.slice_channels(x, 0, at), b.slice_channels(x, at, channels)
        right = b.relu(b.conv(right, channels - at, 3, pads=[1] * 4))
        return self._shuffle(b.concat(left, right))

    def _backward(self, x: str) -> str:
        """The channels in opposite order, or every second one."""
        b = self._b
        channels = b.channels(x)
        if self._rng.random() < 0.5 or channels < 6:
            limits = [b.integers(n) for n in (channels - 1, -channels - 1, 1, -1)]
            count = channels
        else:
            limits = [b.integers(n) for n in (1, channels, 1, 2)]
            count = channels // 2
        y = b.node("Slice", [x, *limits])
        b.set_channels(y, count)
        return y

    def _activation(self, x: str) -> str:
        return self._b.node(str(self._rng.choice(("Relu", "Sigmoid", "HardSwish"))), [x])

    def _reduce(self, x: str) -> str:
        """A reduction over the channels, back to what is multiplied by."""
        b = self._b
        y = b.sum_channels(x, str(self._rng.choice(("ReduceSum", "ReduceMean", "ReduceMax"))))
        scale = b.node("Sigmoid", [y])
        return b.node("Mul", [x, scale])

    def _tokens(self, x: str) -> str:
        """Softmax or LayerNormalization over channels that are last, between transposes."""
        b, rng = self._b, self._rng
        channels = b.channels(x)
        y = b.node("Transpose", [x], perm=[0, 2, 3, 1])
        if rng.random() < 0.5:
            y = b.node("Softmax", [y], axis=-1)
        else:
            vectors = (b.weight(channels), b.weight(channels))
            y = b.node("LayerNormalization", [y, *vectors], axis=-1)
        if rng.random() < 0.3:
            y = b.node("MatMul", [y, b.weight(channels, channels, scale=0.3)])
        y = b.node("Transpose", [y], perm=[0, 3, 1, 2])
        b.set_channels(y, channels)
        return y

    def _matmul(self, x: str) -> str:
        """Matrix products of a tensor, or of what is like it, with either operand transposed."""
        b, rng = self._b, self._rng
        channels, places = b.channels(x), self._side**2
        flat = b.node("Reshape", [x, b.integers(self._batch, channels, places)])
        other = flat if rng.random() < 0.5 else b.weight(1, channels, places, scale=0.3)
        across = b.node("Transpose", [other], perm=[0, 2, 1])
        if rng.random() < 0.5:  # among channels
            mixed = b.node("MatMul", [flat, across])
            y = b.node("MatMul", [b.node("Softmax", [mixed], axis=-1), flat])
        else:
            mixed = b.node("MatMul", [across, flat])
            y = b.node("MatMul", [flat, b.node("Softmax", [mixed], axis=-1)])
        y = b.node("Reshape", [y, b.integers(self._batch, channels, self._side, self._side)])
        b.set_channels(y, channels)
        return y

    def _transposed(self, x: str) -> str:
        """A product over the channels with a weight that is stored transposed."""
        b, rng = self._b, self._rng
        channels, made = b.channels(x), int(rng.integers(3, 41))
        y = b.node("Transpose", [x], perm=[0, 2, 3, 1])
        y = b.node("Reshape", [y, b.integers(self._batch * self._side**2, channels)])
        w = b.weight(made, channels, scale=channels**-0.5)
        if rng.random() < 0.5:
            y = b.node("Gemm", [y, w, b.weight(made)], transB=1)
        else:
            y = b.node("MatMul", [y, b.node("Transpose", [w], perm=[1, 0])])
        if rng.random() < 0.5:
            y = b.node("Mul", [y, self._numbers(made)])
        y = b.node("Reshape", [y, b.integers(self._batch, self._side, self._side, made)])
        y = b.node("Transpose", [y], perm=[0, 3, 1, 2])
        b.set_channels(y, made)
        return y
