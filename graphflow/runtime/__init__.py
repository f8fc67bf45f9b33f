"""graphflow.runtime."""
