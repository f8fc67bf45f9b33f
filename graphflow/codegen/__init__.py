"""graphflow.codegen."""
