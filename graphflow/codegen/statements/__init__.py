"""The statements of a kernel as LLVM functions: loops, conditions, reductions."""
