"""graphflow.layout."""
