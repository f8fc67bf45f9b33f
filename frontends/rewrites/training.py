"""Optimizers of training graphs (`ai.onnx.preview.training`): steps of arithmetic on tensors.

In: a rate, the number of earlier updates, and for each variable its gradient and states.  Out: the
variables and the states after one update, by the formulas of ONNX's reference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from onnx import helper

from graphflow.base.errors import InvalidModel
from graphflow.frontends.rewrites.rewrites import NodeRewrite


def _variables(body: NodeRewrite, parts: int) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """For each variable its inputs, the variable, its gradient and its states, and the outputs.

    ONNX lists all variables first, then all gradients, and so on.
    """
    names, outputs = list(body.step.node.input[2:]), list(body.step.node.output)
    count = len(names) // parts
    if not count or len(names) != count * parts or len(outputs) != count * (parts - 1):
        raise InvalidModel(
            f"{body.step}: it has {len(names)} inputs and {len(outputs)} outputs for variables, "
            f"which are to be {parts} and {parts - 1} for each"
        )
    for number in range(count):
        yield tuple(names[number::count]), tuple(outputs[number::count])


def _rate(body: NodeRewrite, like: str) -> str:
    """The rate, in the element type of a variable."""
    return body.add("Cast", body.input(0), to=helper.np_dtype_to_tensor_dtype(body.dtype(like)))


def _is_later(body: NodeRewrite) -> str:
    """Whether there were earlier updates."""
    return body.add("Greater", body.input(1), body.number(0, body.input(1)))


def _updates(body: NodeRewrite, like: str) -> str:
    """The number of earlier updates, in the element type of a variable."""
    return body.add("Cast", body.input(1), to=helper.np_dtype_to_tensor_dtype(body.dtype(like)))


def _scaled(body: NodeRewrite, name: str, factor: float, like: str) -> str:
    return body.add("Mul", name, body.number(factor, like))


def _regularized(body: NodeRewrite, x: str, gradient: str) -> str:
    """The gradient with that of the regularization term."""
    return body.add("Add", _scaled(body, x, body.attribute("norm_coefficient", 0.0), x), gradient)


def _momentum(body: NodeRewrite) -> None:
    body.require_attributes("alpha", "beta", "mode", "norm_coefficient")
    alpha, beta = body.attribute("alpha"), body.attribute("beta")
    mode = body.attribute("mode")
    if mode not in ("standard", "nesterov") or alpha is None or beta is None:
        raise InvalidModel(f"{body.step}: alpha, beta or a mode that exists is missing")
    for (x, gradient, v), (x_out, v_out) in _variables(body, 3):
        slope = _regularized(body, x, gradient)
        factor = body.add("Where", _is_later(body), body.number(beta, x), body.number(1, x))
        kept = _scaled(body, v, alpha, x)
        velocity = body.add("Add", kept, body.add("Mul", factor, slope), result=v_out)
        step = velocity
        if mode == "nesterov":
            step = body.add("Add", slope, _scaled(body, velocity, alpha, x))
        body.add("Sub", x, body.add("Mul", _rate(body, x), step), result=x_out)


def _adagrad(body: NodeRewrite) -> None:
    body.require_attributes("decay_factor", "epsilon", "norm_coefficient")
    decay, epsilon = body.attribute("decay_factor", 0.0), body.attribute("epsilon", 1e-6)
    for (x, gradient, h), (x_out, h_out) in _variables(body, 3):
        slope = _regularized(body, x, gradient)
        slowed = _scaled(body, _updates(body, x), decay, x)
        rate = body.add("Div", _rate(body, x), body.add("Add", slowed, body.number(1, x)))
        squares = body.add("Add", h, body.add("Mul", slope, slope), result=h_out)
        root = body.add("Add", body.add("Sqrt", squares), body.number(epsilon, x))
        body.add("Sub", x, body.add("Div", body.add("Mul", rate, slope), root), result=x_out)


def _adam(body: NodeRewrite) -> None:
    body.require_attributes("alpha", "beta", "epsilon", "norm_coefficient", "norm_coefficient_post")
    alpha, beta = body.attribute("alpha", 0.9), body.attribute("beta", 0.999)
    epsilon, after = body.attribute("epsilon", 1e-6), body.attribute("norm_coefficient_post", 0.0)
    for (x, gradient, v, h), (x_out, v_out, h_out) in _variables(body, 4):
        slope = _regularized(body, x, gradient)
        velocity = _mixed(body, v, slope, alpha, x, v_out)
        squares = _mixed(body, h, body.add("Mul", slope, slope), beta, x, h_out)
        root = body.add("Add", body.add("Sqrt", squares), body.number(epsilon, x))
        corrected = body.add(
            "Div",
            body.add("Mul", _rate(body, x), body.add("Sqrt", _left_over(body, beta, x))),
            _left_over(body, alpha, x),
        )
        rate = body.add("Where", _is_later(body), corrected, _rate(body, x))
        moved = body.add("Sub", x, body.add("Mul", rate, body.add("Div", velocity, root)))
        body.add("Mul", moved, body.number(1 - after, x), result=x_out)


def _mixed(body: NodeRewrite, state: str, new: str, share: float, like: str, result: str) -> str:
    """`share` of a state, and the rest of what is new."""
    kept, added = _scaled(body, state, share, like), _scaled(body, new, 1 - share, like)
    return body.add("Add", kept, added, result=result)


def _left_over(body: NodeRewrite, share: float, like: str) -> str:
    """1 - share ** updates."""
    power = body.add("Pow", body.number(share, like), _updates(body, like))
    return body.add("Sub", body.number(1, like), power)


_DOMAIN = "ai.onnx.preview.training"

TRAINING: dict[tuple[str, str], Callable[[NodeRewrite], None]] = {
    (_DOMAIN, "Adagrad"): _adagrad,
    (_DOMAIN, "Adam"): _adam,
    (_DOMAIN, "Momentum"): _momentum,
}
"""The rewrite of each operator, by domain and name."""
