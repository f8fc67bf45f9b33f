"""Graphs whose values can share memory: concatenations, slices and reshapes as views."""

import numpy as np

from graphflow.graph import OperatorGraph, Value
from graphflow.kernels.definitions.movements import movement, selection
from support.planning.nets import Net


def concat_twice() -> OperatorGraph:
    net = Net(x=(1, 4, 3, 4))
    a = net.unary("a", "relu", "x")
    return net.done(net.unary("y", "exp", net.concat("c", a, a)))


def in_two_concats() -> OperatorGraph:
    net = Net(x=(1, 4, 3, 4))
    a, b = net.unary("a", "relu", "x"), net.unary("b", "tanh", "x")
    left, right = net.concat("left", a, b), net.concat("right", b, a)
    return net.done(net.unary("y", "exp", left), net.unary("z", "exp", right))


def input_in_a_concat() -> OperatorGraph:
    net = Net(x=(1, 4, 3, 4))
    a = net.unary("a", "relu", "x")
    return net.done(net.unary("y", "exp", net.concat("c", "x", a)))


def inputs_only() -> OperatorGraph:
    net = Net(x=(1, 4, 3, 4), z=(1, 2, 3, 4))
    return net.done(net.concat("c", "x", "z", "x"))


def output_in_a_concat() -> OperatorGraph:
    net = Net(x=(1, 4, 3, 4))
    a, b = net.unary("a", "relu", "x"), net.unary("b", "exp", "x")
    return net.done(a, net.concat("c", a, b))


def concat_of_concats() -> OperatorGraph:
    net = Net(x=(1, 4, 3, 4))
    a, b, e = (net.unary(n, op, "x") for n, op in (("a", "relu"), ("b", "exp"), ("e", "tanh")))
    inner = net.concat("inner", a, b)
    outer = net.concat("outer", inner, e)
    return net.done(net.unary("y", "neg", outer), net.unary("z", "exp", inner))


def concat_with_a_constant() -> OperatorGraph:
    net = Net(x=(1, 4, 3, 4))
    a = net.unary("a", "relu", "x")
    net.graph.add_initializer("k", np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4))
    return net.done(net.unary("y", "exp", net.concat("c", a, "k")))


def reshape_then_concat() -> OperatorGraph:
    """The reshaped memory is a window of a larger one, under a shape of equal rank."""
    net = Net(x=(1, 6, 2))
    a = net.unary("a", "relu", "x")
    r = net.add("r", movement.reshape((1, 6, 2), (1, 3, 4)), a)
    net.graph.add_value(Value("z", "float32", (1, 7, 4)))
    net.graph.set_inputs(["x", "z"])
    b = net.unary("b", "exp", "z")
    return net.done(net.unary("y", "neg", net.concat("c", b, r)))


def flatten_then_concat() -> OperatorGraph:
    net = Net(x=(1, 6, 2, 2), z=(1, 5))
    a, b = net.unary("a", "relu", "x"), net.unary("b", "exp", "z")
    r = net.add("r", movement.reshape((1, 6, 2, 2), (1, 24)), a)
    return net.done(net.unary("y", "neg", net.concat("c", b, r)))


def reshape_of_a_window() -> OperatorGraph:
    net = Net(x=(1, 4, 3, 4))
    a, b = net.unary("a", "relu", "x"), net.unary("b", "exp", "x")
    net.concat("c", a, b)
    r = net.add("r", movement.reshape((1, 4, 3, 4), (1, 48)), a)
    return net.done("c", net.unary("y", "neg", r))


def reshape_of_an_input() -> OperatorGraph:
    net = Net(x=(1, 4, 3, 4))
    return net.done(net.add("r", movement.reshape((1, 4, 3, 4), (1, 48)), "x"))


def output_and_window() -> OperatorGraph:
    """The copy for the graph output and the copy for the window are two."""
    net = Net(x=(1, 16, 12, 12))
    a = net.conv("a", net.conv("b", "x", 32, 3), 16, 3)
    return net.done(a, net.concat("c", net.unary("e", "exp", "x"), a))


def concat_then_reshape() -> OperatorGraph:
    net = Net(x=(1, 4, 3, 4))
    a, b = net.unary("a", "relu", "x"), net.unary("b", "exp", "x")
    return net.done(net.add("r", movement.reshape((1, 8, 3, 4), (1, 96)), net.concat("c", a, b)))


def part(net: Net, name: str, source: str, channels: range) -> str:
    shape = net.graph.values[source].shape
    ranges = [range(n) for n in shape]
    ranges[1] = channels
    return net.add(name, selection.take_slice(shape, ranges), source)


def halves() -> OperatorGraph:
    net = Net(x=(1, 8, 3, 4))
    a = net.unary("a", "relu", "x")
    left, right = part(net, "left", a, range(4)), part(net, "right", a, range(4, 8))
    return net.done(net.unary("y", "exp", left), net.unary("z", "tanh", right), a)


def halves_of_an_input() -> OperatorGraph:
    net = Net(x=(1, 8, 3, 4))
    left, right = part(net, "left", "x", range(4)), part(net, "right", "x", range(4, 8))
    return net.done(net.unary("y", "exp", left), right)


def slice_then_concat() -> OperatorGraph:
    """A part of one tensor becomes a part of another one, so one of the two has to move."""
    net = Net(x=(1, 8, 3, 4))
    a, b = net.unary("a", "relu", "x"), net.unary("b", "exp", "x")
    joined = net.concat("c", part(net, "p", a, range(2, 6)), b)
    return net.done(net.unary("y", "neg", joined), net.unary("z", "tanh", a))


def concat_then_slice() -> OperatorGraph:
    """The slice crosses the border between two parts."""
    net = Net(x=(1, 4, 3, 4))
    a, b = net.unary("a", "relu", "x"), net.unary("b", "exp", "x")
    return net.done(net.unary("y", "neg", part(net, "p", net.concat("c", a, b), range(2, 7))))


def slice_then_reshape() -> OperatorGraph:
    """Row-major, half of the channels is one piece of memory; channels-last it is not."""
    net = Net(x=(1, 8, 3, 4))
    half = part(net, "p", net.unary("a", "relu", "x"), range(4, 8))
    flat = net.add("r", movement.reshape((1, 4, 3, 4), (1, 48)), half)
    return net.done(net.unary("y", "exp", flat), net.unary("z", "tanh", half))


def reshaped_twice() -> OperatorGraph:
    net = Net(x=(1, 8, 3, 4))
    a = net.unary("a", "relu", "x")
    flat = net.add("r", movement.reshape((1, 8, 3, 4), (1, 96)), a)
    rows = net.add("s", movement.reshape((1, 8, 3, 4), (1, 24, 4)), a)
    return net.done(net.unary("y", "exp", flat), net.unary("z", "tanh", rows))


def reshaped_parts_of_an_output() -> OperatorGraph:
    """As a detector ends: boxes of several scales, one behind the other."""
    net = Net(x=(1, 4, 3, 4), z=(1, 4, 2, 2))
    rows = []
    for name, size in (("x", (3, 4)), ("z", (2, 2))):
        a = net.unary(f"a{name}", "relu", name)
        turned = net.add(f"t{name}", movement.transpose((1, 4, *size), (0, 2, 3, 1)), a)
        count = size[0] * size[1]
        rows.append(net.add(f"r{name}", movement.reshape((1, *size, 4), (1, count, 4)), turned))
    return net.done(net.add("c", movement.concat([(1, 12, 4), (1, 4, 4)], 1), *rows))


def shuffled_halves() -> OperatorGraph:
    """A channel shuffle, then one half into a convolution and the other one past it."""
    net = Net(x=(1, 16, 5, 5))
    a, b = net.conv("a", "x", 8), net.conv("b", "x", 8)
    joined = net.concat("c", a, b)
    apart = net.add("r", movement.reshape((1, 16, 5, 5), (1, 2, 8, 5, 5)), joined)
    turned = net.add("t", movement.transpose((1, 2, 8, 5, 5), (0, 2, 1, 3, 4)), apart)
    mixed = net.add("s", movement.reshape((1, 8, 2, 5, 5), (1, 16, 5, 5)), turned)
    left, right = part(net, "left", mixed, range(8)), part(net, "right", mixed, range(8, 16))
    return net.done(net.concat("y", left, net.conv("e", right, 8)))


def every_second() -> OperatorGraph:
    """What lies between the rows that are read belongs to another tensor."""
    net = Net(x=(1, 4, 6, 6))
    a = net.unary("a", "relu", "x")
    ranges = [range(1), range(4), range(0, 6, 2), range(0, 6, 2)]
    rows = net.add("rows", selection.take_slice((1, 4, 6, 6), ranges), a)
    return net.done(net.conv("y", rows, 5), net.unary("z", "exp", a))


SHARED = [
    concat_twice, in_two_concats, input_in_a_concat, inputs_only, output_in_a_concat,
    concat_of_concats, concat_with_a_constant, reshape_then_concat, flatten_then_concat,
    reshape_of_a_window, reshape_of_an_input, concat_then_reshape, output_and_window,
    halves, halves_of_an_input, slice_then_concat, concat_then_slice, slice_then_reshape,
    reshaped_twice, reshaped_parts_of_an_output, shuffled_halves, every_second,
]  # fmt: skip
