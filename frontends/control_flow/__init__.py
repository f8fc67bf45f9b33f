"""Control flow: branches, loops, functions and sequences become the nodes of their bodies."""
