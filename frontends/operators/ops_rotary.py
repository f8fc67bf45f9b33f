"""RotaryEmbedding: one kernel, and two Gathers where a position is given for each element."""

from __future__ import annotations

from graphflow.frontends.nodes.call import Emitters, NodeCall
from graphflow.frontends.protos.steps import derived
from graphflow.kernels.definitions import rotary


def _rotary_embedding(call: NodeCall) -> None:
    """Positions are indices of rows of the caches, checked as those of Gather are."""
    shape = call.shape(0)
    if len(shape) not in (3, 4):
        raise call.invalid(f"its input is {list(shape)}, without axes of a batch, heads and steps")
    heads = call.attribute("num_heads", 0) if len(shape) == 3 else shape[1]
    if not heads or (len(shape) == 3 and shape[2] % heads):
        raise call.invalid(f"its input is {list(shape)}, and num_heads is {heads}")
    size = shape[3] if len(shape) == 4 else shape[2] // heads
    width = call.attribute("rotary_embedding_dim", 0) or size
    caches = list(call.inputs[1:3])
    if call.has(3):
        steps = []
        for number, cache in enumerate(caches):
            part = ("cosines", "sines")[number]
            caches[number] = call.context.unique_tensor_name(f"{call.name}.{part}")
            inputs = (cache, call.inputs[3])
            steps.append(derived(call.step, "Gather", inputs, (caches[number],), part, axis=0))
        call.drops_counts = True  # of the caches, of which Gather takes rows
        assert call.context.import_steps is not None
        call.context.import_steps(call.context, steps)
    wanted = (shape[0], shape[-2], width // 2)
    found = [call.context.graph.values[cache].shape for cache in caches]
    if width % 2 or width > size or any(cache != wanted for cache in found):
        raise call.invalid(
            f"its input is {list(shape)} of heads of {size} elements, of which {width} are rotated "
            f"by caches {[list(cache) for cache in found]}; each has to be {list(wanted)}"
        )
    func = rotary.rotated(shape, heads, width, call.flag("interleaved"), call.dtype())
    call.emit(func, (call.inputs[0], *caches))


OPERATORS: Emitters = {"RotaryEmbedding": _rotary_embedding}
"""The function of each operator."""
