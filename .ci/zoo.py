"""Compiles the networks of the zoo, and compares each kernel with its definition.

All in one process, which imports the compiler once.  Without arguments it takes all networks, else
those that are named.  What fails is said at the end, and the exit code is 1.
"""

import sys
import traceback

from graphflow.cli import main
from graphflow.models.zoo.catalog import PROBE, ZOO


def fails(name: str) -> bool:
    try:
        return main(["compile", f"zoo:{name}", "--validate"]) != 0
    except Exception:
        traceback.print_exc()
        return True


names = sys.argv[1:] or [name for name in ZOO if not name.startswith(PROBE)]
failed = [name for name in names if fails(name)]
if failed:
    sys.exit(f"these failed: {', '.join(failed)}")
print(f"{len(names)} networks are valid")
