"""graphflow.lower."""
