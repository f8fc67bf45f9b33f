"""What claims and builders share: variants as data, and what is read off definitions and layouts.

In: compute definitions and layouts.  Out: the roles of loops and operands, positions in memory,
stages at shared loops.  What always holds: nothing here prices or makes a kernel.
"""
