"""graphflow."""
