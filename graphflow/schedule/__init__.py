"""graphflow.schedule."""
