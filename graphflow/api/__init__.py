"""The public functions of graphflow: compile, build, check, load, and the `Executable` they return.

`model`, `saved` and `executable` run programs and import no part of the compiler; `compilation`,
`specialize`, `building`, `checking` and `backend` do.  Each module is imported by itself;
`graphflow/__init__.py` lists the public names.
"""
