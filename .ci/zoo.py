"""Compiles the networks of the zoo, and compares each kernel with its definition.

All in one process, which imports the compiler once.  Without arguments it takes the networks that
have blocks of their own, with --all every one, else those that are named.  What fails is said at
the end, and the exit code is 1.
"""

import sys
import traceback
from functools import partial

import graphflow as gf
from graphflow.models.zoo.catalog import PROBE, ZOO, zoo_model
from graphflow.models.zoo.densenet import densenet40

OPTIONS = gf.Options(workers=0, validate=True)
"""Without worker processes, each of which would import the compiler anew; other checks have the
cores."""

REPEATED = {"mobilenet_v2_1.0", "densenet121_k12", "feature_pyramid"}
"""Networks of the blocks of others: mobilenet_v2_0.35, densenet40_k12, and shufflenet_v2 with the
resizes of unet_resize.  They are a third of the work; .ci/release takes them, too."""

SHORTENED = {"densenet40_k12": partial(densenet40, 0, layers=4)}
"""Networks of fewer layers unless they are asked for: each fourth layer has as many channels behind
the last whole vector as the first one.  All 36 layers are another fifth of the work."""


def fails(name: str) -> bool:
    model = zoo_model(name) if sys.argv[1:] or name not in SHORTENED else SHORTENED[name]()
    try:
        exe = gf.compile(model, options=OPTIONS)
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
