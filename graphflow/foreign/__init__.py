"""Foreign sections: nodes of a model that have no kernel run in onnxruntime."""

from graphflow.foreign.opening import Runs, open_section
from graphflow.foreign.section import ForeignNode, ObjectSpec, Section

__all__ = ["ForeignNode", "ObjectSpec", "Runs", "Section", "open_section"]
