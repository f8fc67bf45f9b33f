"""graphflow.convert."""
