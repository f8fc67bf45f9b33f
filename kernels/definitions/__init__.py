"""Compute definitions: PrimFuncs from logical shapes and attributes, without a layout or target."""
