"""graphflow.inspect."""
