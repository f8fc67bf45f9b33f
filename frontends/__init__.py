"""graphflow.frontends."""
