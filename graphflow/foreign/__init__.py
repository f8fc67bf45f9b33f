"""Foreign sections: nodes of a model that have no kernel run in onnxruntime."""

from graphflow.foreign.opening import Runs, open_section
from graphflow.foreign.section import FALLBACKS, ForeignNode, ObjectSpec, Section

__all__ = ["FALLBACKS", "ForeignNode", "ObjectSpec", "Runs", "Section", "open_section"]
