"""Samples to calibrate with: what the inputs of a network are like.

In: files, folders of them, or arrays; and the inputs that a network declares.  Out: samples, each
with an array for every input, as one run takes them.  What always holds: a sample has the names,
element types and extents that the network declares; the same data, limit and seed give the same
samples.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from graphflow.base.errors import InvalidModel
from graphflow.program import OpenTensor, arrays_of_file, random_inputs

Sample: TypeAlias = "dict[str, NDArray[Any]]"
CalibrationData: TypeAlias = (
    "str | os.PathLike[str] | Iterable[str | os.PathLike[str] | Mapping[str, NDArray[Any]]]"
)
"""Files and folders, or the inputs of one run after the other."""

SUFFIXES = (".npy", ".npz")


def samples_of(
    data: CalibrationData, inputs: Sequence[OpenTensor], limit: int, seed: int
) -> list[Sample]:
    """At most `limit` samples of `data`, chosen by `seed` where there are more.

    An array of a file that has several times the fixed first extent of its input is cut into as
    many samples.  Raises InvalidModel for data that does not fit the inputs, or that is empty.
    """
    sources, dice = list(_sources(data)), np.random.default_rng(seed)
    found: list[Sample] = []
    for place in _places(len(sources), limit, dice):
        found += _cut(*_read(sources[place], place, inputs), inputs)
    if not found:
        raise InvalidModel("the data has no samples; give at least one, and better a hundred")
    return [found[place] for place in _places(len(found), limit, dice)]


def _places(count: int, limit: int, dice: np.random.Generator) -> list[int]:
    """At most `limit` of so many places, in their order."""
    if count <= limit:
        return [*range(count)]
    return sorted(dice.permutation(count)[:limit].tolist())


def random_samples(inputs: Sequence[OpenTensor], count: int, seed: int) -> list[Sample]:
    """So many samples of random numbers; InvalidModel where a shape is open."""
    return [random_inputs(inputs, seed + number) for number in range(count)]


def _sources(data: CalibrationData) -> Iterator[Path | Mapping[str, NDArray[Any]]]:
    """The files of paths and folders, in order of their names, or the mappings as given."""
    if isinstance(data, Mapping):
        yield data
        return
    for part in [data] if isinstance(data, str | os.PathLike) else data:
        if isinstance(part, Mapping):
            yield part
        else:
            yield from _files(Path(part))


def _files(path: Path) -> list[Path]:
    if not path.exists():
        raise InvalidModel(f"there is no file or folder {path} of samples; check the path")
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES)
    if not found:
        raise InvalidModel(
            f"the folder {path} has no file {' or '.join(SUFFIXES)}; give one with the arrays of "
            "samples"
        )
    return found


def _read(
    source: Path | Mapping[str, NDArray[Any]], place: int, inputs: Sequence[OpenTensor]
) -> tuple[str, Mapping[str, NDArray[Any]]]:
    """What a source is called, and its arrays by input name."""
    if not isinstance(source, Path):
        arrays = {name: np.asarray(array) for name, array in source.items()}
        return f"sample {place}", arrays
    if source.suffix not in SUFFIXES:
        raise InvalidModel(
            f"{source} is no array; give files .npy for a network of one input, .npz with an array "
            "for each input, or folders of them"
        )
    try:
        return str(source), arrays_of_file(source, lambda: _only_name(source, inputs))
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        raise InvalidModel(
            f"cannot read {source}: {error}; give files that numpy.save or numpy.savez wrote"
        ) from None


def _only_name(source: Path, inputs: Sequence[OpenTensor]) -> str:
    if len(inputs) != 1:
        names = ", ".join(tensor.name for tensor in inputs)
        raise InvalidModel(
            f"{source} has one array, and the network takes {names}; give files .npz with an array "
            "for each"
        )
    return inputs[0].name


def _cut(
    what: str, arrays: Mapping[str, NDArray[Any]], inputs: Sequence[OpenTensor]
) -> list[Sample]:
    """The samples of one source; InvalidModel if it does not fit the inputs."""
    names = [tensor.name for tensor in inputs]
    if sorted(arrays) != sorted(names):
        raise InvalidModel(
            f"{what} has the arrays {', '.join(sorted(arrays)) or '(none)'}, and the network takes "
            f"{', '.join(names)}; give each of them under its name"
        )
    counts = {tensor.name: _runs(what, tensor, arrays[tensor.name]) for tensor in inputs}
    if len(set(counts.values())) > 1:
        text = ", ".join(f"{name} for {count}" for name, count in counts.items())
        raise InvalidModel(f"{what} has arrays for different numbers of runs: {text}")
    (count,) = set(counts.values())
    if count == 1:
        return [dict(arrays)]
    parts = {name: np.split(arrays[name], count) for name in names}
    return [{name: part[number] for name, part in parts.items()} for number in range(count)]


def _runs(what: str, tensor: OpenTensor, array: NDArray[Any]) -> int:
    """How many runs an array is for; InvalidModel where it does not fit the input."""
    if array.dtype.name != tensor.dtype:
        raise InvalidModel(
            f"{what} has {tensor.name} as {array.dtype.name}, and the network takes "
            f"{tensor.dtype}; convert it with astype"
        )
    shape = tensor.shape
    if shape is None:
        return 1
    fits = array.ndim == len(shape) and all(
        not isinstance(wanted, int) or given == wanted
        for given, wanted in zip(array.shape[1:], shape[1:], strict=True)
    )
    if fits and not shape:
        return 1
    first = shape[0] if shape else None
    if fits and (not isinstance(first, int) or (first and array.shape[0] % first == 0)):
        count = array.shape[0] // first if isinstance(first, int) else 1
        if array.size:
            return count
    raise InvalidModel(
        f"{what} has {tensor.name} with the shape {list(array.shape)}, which does not fit {tensor}"
    )
