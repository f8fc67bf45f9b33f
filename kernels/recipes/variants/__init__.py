"""Claims: the variants that a definition could have, each with its contract and its price.

In: a definition, its roles, and layouts.  Out: `KernelVariant`s.  What always holds: no builder is
imported here, so a claim is derived from access relations alone.
"""
