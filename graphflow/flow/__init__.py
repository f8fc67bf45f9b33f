"""graphflow.flow."""
