"""Foreign sections: nodes of a model that have no kernel run in onnxruntime."""

from graphflow.foreign.opening import RunnableSection, open_section
from graphflow.foreign.section import ForeignNode, ObjectSpec, Section

__all__ = ["ForeignNode", "ObjectSpec", "RunnableSection", "Section", "open_section"]
