"""graphflow.cost."""
