"""graphflow.graph."""
