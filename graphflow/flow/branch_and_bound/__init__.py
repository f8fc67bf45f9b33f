"""Branch and bound: the cheapest plan where the tables of elimination would be too large."""
