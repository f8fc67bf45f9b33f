"""Models with open shapes: which program serves a run, and which bounds the next one gets.

Each module is imported by itself, as those of `graphflow.api` are.
"""
