"""Damage to saved models behind correct checksums, so that the loader reads the damaged fields.

In: a seed.  Out: how loading and running the damaged file ended.
"""

import copy
import json
import random
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import graphflow as gf
from graphflow.api.executable import Executable
from graphflow.base.errors import GraphflowError
from graphflow.program import random_inputs
from graphflow.runtime.container import Container, write_container
from support.mutants.mutant_models import base
from support.mutants.mutations import damaged_bytes, damaged_fields, damaged_json

NAMES = ("convolutions", "sections", "strings", "indices", "open", "shapes", "sizes")
"""Models with kernels alone, with sections, with objects between sections and the caller, with
guards and trimmed outputs, for several shapes, for several values, and for sizes."""

SIZES: Mapping[str, Mapping[str, tuple[int, int]]] = {"sizes": {"n": (1, 6), "m": (2, 5)}}

OTHER_FEEDS: Mapping[str, Mapping[str, Any]] = {
    "open": {"x": np.ones((1, 4), np.float32), "y": np.ones((5, 4), np.float32)},
    "shapes": {"shape": np.array([12, 1]), "n": np.array(2)},
    "sizes": {"x": np.ones((6, 3, 6, 6), np.float32), "y": np.ones((2, 6, 2), np.float32)},
}
"""What makes the second program of a file, or runs the only one with other extents."""


@dataclass(frozen=True)
class Saved:
    """A file, its header and sections, and what it computes of some inputs."""

    content: bytes
    header: Mapping[str, Any]
    sections: Mapping[str, bytes]
    runs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]


@cache
def saved_model(name: str) -> Saved:
    """The file of one of the models."""
    given = base(name)
    options = gf.Options(threads=1, workers=0)
    exe = gf.compile(given.content, sizes=SIZES.get(name), options=options)
    feeds = [_feeds(exe, given.feeds)]
    if name in OTHER_FEEDS:
        feeds.append(_feeds(exe, {**given.feeds, **OTHER_FEEDS[name]}))
    runs = [(inputs, exe.run(inputs)) for inputs in feeds]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gfx"
        exe.save(path)
        with Container(path) as file:
            header = {key: value for key, value in file.header.items() if key != "sections"}
            sections = {key: file.read(key) for key in file.names}
        return Saved(path.read_bytes(), header, sections, runs)


def _feeds(exe: Executable, given: Mapping[str, Any]) -> dict[str, Any]:
    drawn = [tensor for tensor in exe.inputs if tensor.name not in given]
    return {**given, **random_inputs(drawn)}


def try_saved(seed: int, say: Callable[[str], None]) -> str:
    """How a damaged saved model ended.

    Bytes that are damaged under the old checksums are refused.  Tables under new checksums are, or
    give the results as before, but for what `_may_differ` allows.
    """
    rng = random.Random(seed)
    saved = saved_model(rng.choice(NAMES))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gfx"
        place: tuple[Any, ...] = ()
        if rng.random() < 0.1:
            path.write_bytes(damaged_bytes(rng, saved.content))
            if path.read_bytes() == saved.content:
                return "unchanged"
        else:
            place = _write_damaged(rng, saved, path)
        try:
            exe = gf.load(path)
            _ask(exe)
            results = [exe.run(inputs) for inputs, _ in saved.runs]
        except GraphflowError as error:
            return f"refused: {str(error)[:90]!r}"
    assert place, "damaged bytes were not noticed"
    if all(map(_same, results, [expected for _, expected in saved.runs])):
        return f"as before after a change at {place}"
    assert _may_differ(place), f"other results after a change at {place}"
    return f"other results after a change at {place}"


def _write_damaged(rng: random.Random, saved: Saved, path: Path) -> tuple[Any, ...]:
    """Damage one JSON value anywhere, or the model of a section, and write the file anew.

    Gives the way to what was damaged.
    """
    models = [name for name in saved.sections if "section:" in name]
    if models and rng.random() < 0.15:
        name = rng.choice(models)
        damage = damaged_bytes if rng.random() < 0.3 else damaged_fields
        changed = {**saved.sections, name: damage(rng, saved.sections[name])}
        write_container(path, dict(saved.header), changed)
        return (name,)
    tables = {name: json.loads(content) for name, content in saved.sections.items()
              if name.endswith("program") or "document:" in name}  # fmt: skip
    tables["header"] = copy.deepcopy(dict(saved.header))
    programs = [name for name in tables if name.endswith("program")]
    documents = [name for name in tables if name not in programs]
    deciding = [name for name in documents if name.endswith(("model", "models", "header"))]
    name = rng.choice(rng.choices((programs, deciding, documents), (6, 3, 1))[0])
    place = (name, *damaged_json(rng, tables[name]))
    changed = {key: json.dumps(tables[key]).encode() if key in tables else content
               for key, content in saved.sections.items()}  # fmt: skip
    write_container(path, tables["header"], changed)
    return place


def _ask(exe: Executable) -> None:
    """All questions that a file answers."""
    for one in exe.specializations:
        one.report(), one.decisions(), one.layouts, one.outputs
        for name in one.explain(one.inputs[0].name), one.foreign, one.values:
            assert name is not None
    exe.report(), exe.inputs


def _same(found: Mapping[str, Any], expected: Mapping[str, Any]) -> bool:
    """Whether the outputs are the same in order; their names are only the file's."""
    pairs = list(zip(found.values(), expected.values(), strict=False))
    return len(found) == len(expected) and all(
        mine.shape == other.shape and mine.tolist() == other.tolist() for mine, other in pairs
    )


def _may_differ(place: tuple[Any, ...]) -> bool:
    """Whether a change there may give other results.

    That is so of the steps of the run, exchanged for others that stay in their memory, of the
    shape of an output, exchanged for another one of as many elements, of the tensor and element by
    which an output is cut, exchanged for others that are extents too, and of the model of a
    section, exchanged for another one that gives the same types: such a file is the one of another
    model.  What tells it from the file that somebody wrote is that
    file's own digest, `load(sha256=…)`; a digest inside could be recomputed like the checksums.
    """
    if "section:" in place[0]:
        return True
    is_extent = place[1:2] == ("trimmed",) and len(place) == 4 and place[3] in (2, 3)
    is_shape = place[1:2] == ("outputs",) and place[3:4] == (2,)
    return place[0].endswith("program") and (place[1:2] == ("run",) or is_extent or is_shape)
