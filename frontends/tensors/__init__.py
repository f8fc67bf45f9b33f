"""What import knows of tensors: constants, fixed values, and extents that a run decides."""
