"""Optional dependencies: which packages an extra of the distribution brings.

In: the name of an extra.  Out: an error that says how to install it, if one of its packages is not
there.  What always holds: looking for a package does not import it.
"""

from __future__ import annotations

from importlib.util import find_spec

from graphflow.base.errors import GraphflowError

EXTRAS = {
    "distributed": ("dask", "distributed", "fsspec", "pandas", "pyarrow"),
    "ray": ("ray",),
    "serve": ("uvicorn", "httptools", "uvloop", "starlette", "prometheus_client", "orjson"),
}
"""The packages of each extra, by the names that are imported."""


def require_extra(extra: str, purpose: str) -> None:
    """Raise GraphflowError if a package of an extra is not installed, which `purpose` needs."""
    missing = [package for package in EXTRAS[extra] if not _is_there(package)]
    if missing:
        raise GraphflowError(
            f"{purpose} needs {', '.join(missing)}, which is not installed; install the extra "
            f"`{extra}`: pip install 'graphflow-compiler[{extra}]'"
        )


def _is_there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ValueError:  # what sys.modules says is there, or is not, without a spec
        return False
