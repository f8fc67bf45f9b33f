"""Compiles the networks of the zoo, and compares each kernel with its definition.

All in one process, which imports the compiler once.  Without arguments it takes the networks that
have blocks of their own, with --all every one, else those that are named.  What fails is said at
the end, and the exit code is 1.
"""

import sys
import traceback

import graphflow as gf
from graphflow.models.zoo.catalog import PROBE, ZOO, zoo_model

OPTIONS = gf.Options(workers=0, validate=True)
"""Without worker processes, each of which would import the compiler anew; other checks have the
cores."""

REPEATED = {"mobilenet_v2_1.0", "densenet121_k12", "feature_pyramid"}
"""Networks of the blocks of others: mobilenet_v2_0.35, densenet40_k12, and shufflenet_v2 with the
resizes of unet_resize.  They are a third of the work; .ci/release takes them, too."""


def fails(name: str) -> bool:
    try:
        exe = gf.compile(zoo_model(name), options=OPTIONS)
    except Exception:
        traceback.print_exc()
        return True
    print(f"{name}: {exe.compiled.validation.summary()}")
    return False


every = [name for name in ZOO if not name.startswith(PROBE)]
given = sys.argv[1:] or [name for name in every if name not in REPEATED]
names = every if given == ["--all"] else given
failed = [name for name in names if fails(name)]
if failed:
    sys.exit(f"these failed: {', '.join(failed)}")
print(f"{len(names)} networks are valid")
