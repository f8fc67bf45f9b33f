"""Candidates: what a plan can take for each node and value, requirements and prices."""
