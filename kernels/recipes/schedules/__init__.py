"""Builders: the schedules that make kernels of definitions, from scheduling primitives alone.

In: a definition, placements and a recipe.  Out: the schedule of the kernel.  What always holds: no
claim is imported here, so a builder knows of a variant only what its recipe says.
"""
