"""graphflow.kernels."""
