"""Services between threads and processes: workers, values made once, a store, digests.

`workers` calls functions in other processes, `once` makes a value once for each key, `store` keeps
bytes by key in a folder, `digest` makes such keys, `uninterrupted` keeps handlers of signals out of
a function.  None of them knows the IR.  Each module is imported by itself.
"""
