"""What every other package may import: errors, options, element types, the target, the trace, and
changes of process-wide state that are undone.

Each module is imported by itself (`from graphflow.base.errors import InvalidModel`), so that a
process which loads a saved model imports no more than it needs.
"""
