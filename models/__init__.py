"""graphflow.models."""
