"""Places of a kernel: how steps name loops, blocks, statements and buffers, and find them."""
