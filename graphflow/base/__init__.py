"""What every other package may import: errors, options, element types, the target and the trace.

Each module is imported by itself (`from graphflow.base.errors import InvalidModel`), so that a
process which loads a saved model imports no more than it needs.
"""
