"""Foreign parts of a model: nodes that have no kernel here run in onnxruntime."""

from graphflow.foreign.opening import Runs, open_section
from graphflow.foreign.section import FALLBACKS, ForeignNode, ObjectSpec, Section

__all__ = ["FALLBACKS", "ForeignNode", "ObjectSpec", "Runs", "Section", "open_section"]
