"""Tests of the models of a server: states, versions, loads that fail, and changes of files."""

import asyncio
import gc
import os
import weakref
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphflow.base.errors import GraphflowError
from graphflow.serve.model_files import ModelFile, ModelFiles
from graphflow.serve.refused import RefusedRequest
from graphflow.serve.repository import Repository, model_metadata
from graphflow.serve.serve_metrics import ServeMetrics
from support.serving.served import LIMITS, WIDTH, loads_a_factor

ONES = {"x": np.ones((1, WIDTH), np.float32)}


def write(path: Path, factor: str) -> Path:
    """Replace a file, as a careful program does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".new").write_text(factor)
    os.replace(path.with_suffix(".new"), path)
    return path


def opened(
    files: ModelFiles, test: Callable[[Repository], Awaitable[None]], loads: Any = loads_a_factor
) -> ServeMetrics:
    metrics = ServeMetrics()

    async def main() -> None:
        repository = Repository(files, loads, LIMITS, metrics)
        await test(repository)
        await repository.close()
        assert not repository.is_ready

    asyncio.run(main())
    return metrics


async def factor(repository: Repository, name: str = "m", version: str | None = None) -> float:
    found = await repository.serving(name, version).infer(ONES, 20.0)
    return float(found["y"][0, 0])


async def states(repository: Repository) -> dict[str, tuple[str, str]]:
    rows = await repository.index()
    return {f"{row['name']}:{row['version']}": (row["state"], row["reason"]) for row in rows}


def test_versions_and_unloading(tmp_path: Path) -> None:
    for version in ("2", "10"):
        write(tmp_path / "m" / version / "model.gfx", version)
    write(tmp_path / "other/1/model.gfx", "7")

    async def test(repository: Repository) -> None:
        await repository.load_all()
        assert repository.is_ready and repository.versions("m") == ["2", "10"]
        assert await factor(repository) == 10  # the latest, by number
        assert await factor(repository, version="2") == 2
        metadata = model_metadata(repository.serving("m"), ["2", "10"])
        assert metadata["versions"] == ["2", "10"] and metadata["parameters"]["sha256"] == "0" * 64
        await repository.unload("m")
        with pytest.raises(RefusedRequest, match="'m', version 10 is unavailable: unloaded") as no:
            repository.serving("m")
        assert no.value.status == HTTPStatus.SERVICE_UNAVAILABLE
        assert repository.is_ready and await factor(repository, "other") == 7
        assert (await states(repository))["m:2"] == ("UNAVAILABLE", "unloaded")
        await repository.load("m")
        assert await factor(repository) == 10

    text = opened(ModelFiles((), (tmp_path,)), test).text().decode()
    assert 'graphflow_model_ready{model="m",version="2"} 0.0' in text


@pytest.mark.parametrize("name", ["none", "../m", "", "m/1", "m\0"])
def test_names_that_are_not_there(name: str, tmp_path: Path) -> None:
    write(tmp_path / "m/1/model.gfx", "2")

    async def test(repository: Repository) -> None:
        await repository.load_all()
        for done in (repository.load(name), repository.unload(name)):
            with pytest.raises(RefusedRequest) as refused:
                await done
            assert refused.value.status == HTTPStatus.NOT_FOUND
        for version in (None, "1"):
            with pytest.raises(RefusedRequest, match="no model"):
                repository.serving(name, version)
        with pytest.raises(RefusedRequest, match="no model 'm', version 2"):
            repository.serving("m", "2")

    opened(ModelFiles((), (tmp_path,)), test)


def test_a_load_that_fails_leaves_what_was_served(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gfx", "2")

    async def test(repository: Repository) -> None:
        await repository.load_all()
        write(path, "damaged")
        with pytest.raises(GraphflowError, match="has no factor"):
            await repository.load("m")
        assert await factor(repository) == 2 and repository.is_ready
        write(path, "5")
        await repository.load("m")
        assert await factor(repository) == 5
        assert await states(repository) == {"m:1": ("READY", "")}

    opened(ModelFiles((ModelFile("m", "1", path),)), test)


def test_a_first_load_that_fails(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gfx", "damaged")
    other = write(tmp_path / "other.gfx", "3")

    async def test(repository: Repository) -> None:
        with pytest.raises(GraphflowError, match=r"m\.gfx has no factor"):
            await repository.load_all()
        assert not repository.is_ready
        assert await factor(repository, "other") == 3
        assert (await states(repository))["m:1"][0] == "UNAVAILABLE"

    opened(ModelFiles((ModelFile("m", "1", path), ModelFile("other", "1", other))), test)


def test_a_model_is_loading_until_it_is_there(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gfx", "2")

    async def test(repository: Repository) -> None:
        loading = asyncio.ensure_future(repository.load_all())
        while await states(repository) != {"m:1": ("LOADING", "")}:
            await asyncio.sleep(0)
        with pytest.raises(RefusedRequest, match="is loading"):
            repository.serving("m")
        gate.set()
        await loading
        assert await factor(repository) == 2

    gate = asyncio.Event()

    async def slowly(file: ModelFile) -> Any:
        await gate.wait()
        return await loads_a_factor(file)

    opened(ModelFiles((ModelFile("m", "1", path),)), test, slowly)


def test_a_file_that_changes_is_noticed(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gfx", "2")

    async def test(repository: Repository) -> None:
        await repository.load_all()
        await repository.look_for_changes(loads=False)
        assert await states(repository) == {"m:1": ("READY", "")}
        write(path, "3")
        await repository.look_for_changes(loads=False)
        state, reason = (await states(repository))["m:1"]
        assert state == "READY" and "changed since it was loaded" in reason
        assert await factor(repository) == 2
        await repository.load("m")
        assert await factor(repository) == 3
        path.unlink()
        await repository.look_for_changes(loads=True)
        assert "is gone" in (await states(repository))["m:1"][1]
        assert await factor(repository) == 3

    text = opened(ModelFiles((ModelFile("m", "1", path),)), test).text().decode()
    assert 'graphflow_model_file_changed{model="m",version="1"} 1.0' in text


def test_a_file_that_changes_is_loaded_where_that_is_wanted(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gfx", "2")

    async def test(repository: Repository) -> None:
        await repository.load_all()
        write(path, "damaged")
        await repository.look_for_changes(loads=True)
        assert await factor(repository) == 2
        write(path, "4")
        await repository.look_for_changes(loads=True)
        assert await factor(repository) == 4

    opened(ModelFiles((ModelFile("m", "1", path),)), test)


def test_a_model_that_is_served_no_more_is_freed(tmp_path: Path) -> None:
    """At once: its weights are memory that the collector of garbage does not know of."""
    path = write(tmp_path / "m.gfx", "2")

    async def test(repository: Repository) -> None:
        await repository.load_all()
        assert await factor(repository) == 2
        program = weakref.ref(repository.serving("m").model.program)
        write(path, "3")
        await repository.load("m")
        await settled(lambda: program() is None)
        program = weakref.ref(repository.serving("m").model.program)
        assert await factor(repository) == 3
        await repository.unload("m")
        await settled(lambda: program() is None)

    assert not gc.isenabled()
    opened(ModelFiles((ModelFile("m", "1", path),)), test)


async def settled(condition: Callable[[], bool]) -> None:
    for _ in range(200):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it did not happen")


def test_what_was_accepted_is_answered_by_what_accepted_it(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gfx", "2")

    async def test(repository: Repository) -> None:
        await repository.load_all()
        before = repository.serving("m")
        program: Any = before.model.program
        program.gate.clear()
        accepted = [asyncio.ensure_future(factor(repository)) for _ in range(3)]
        await asyncio.sleep(0.01)
        write(path, "5")
        await repository.load("m")
        assert await factor(repository) == 5  # while the other is still at work
        assert before.is_closed and not any(one.done() for one in accepted)
        program.gate.set()
        assert await asyncio.gather(*accepted) == [2, 2, 2]

    opened(ModelFiles((ModelFile("m", "1", path),)), test)


def test_a_version_whose_file_is_taken_away_is_not_missed(tmp_path: Path) -> None:
    for version in ("1", "2"):
        write(tmp_path / "m" / version / "model.gfx", version)

    async def test(repository: Repository) -> None:
        await repository.load_all()
        (tmp_path / "m" / "1" / "model.gfx").unlink()
        await repository.load("m")
        assert repository.is_ready and repository.versions("m") == ["2"]
        assert (await states(repository))["m:1"] == ("UNAVAILABLE", "its file is gone")

    opened(ModelFiles((), (tmp_path,)), test)


def test_a_load_that_the_system_refuses_is_noted(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gfx", "2")

    async def refuse(_: ModelFile) -> Any:
        raise OSError("no space left")

    async def test(repository: Repository) -> None:
        with pytest.raises(OSError, match="no space left"):
            await repository.load("m")
        assert (await states(repository))["m:1"] == ("UNAVAILABLE", "no space left")
        assert not repository.is_ready

    opened(ModelFiles((ModelFile("m", "1", path),)), test, refuse)
