"""graphflow.bench."""
