"""The kinds of register tiles, each with its claim, its price and its builder.

In: for a claim, a kernel whose operands have layouts; for a builder, the nest over the axes of the
output.  Out: the price of a tile's steps, and the loops of the tile.  A new kind is one module here
and one line of `tiled_kernels.py`, its name in `IMAGE_TILES`.
"""
