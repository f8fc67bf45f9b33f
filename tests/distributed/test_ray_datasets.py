"""Tests of models over Ray Data, where Ray is installed: equal to serial runs, also when a worker
is killed and the run is started again."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import graphflow as gf
from graphflow.base.errors import InvalidModel
from graphflow.distributed import BatchModel, map_batches, portable_model
from support.pages import code_blocks
from support.paths import ROOT
from support.serving.saved_models import saved_product

ray = pytest.importorskip("ray", reason="the extra `ray` is not installed")

ROWS = np.random.default_rng(1).standard_normal((200, 6)).astype(np.float32)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved_product(tmp_path_factory.mktemp("saved"))


@pytest.fixture
def cluster() -> Iterator[None]:
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def serial(saved: Path, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    exe = gf.load(saved)
    return np.concatenate([exe.run({"x": row[None]})["y"] for row in rows])


def test_a_dataset(saved: Path, cluster: None) -> None:
    items = [{"number": k, "x": row} for k, row in enumerate(ROWS)]
    dataset = ray.data.from_items(items, override_num_blocks=2)
    for mapped in (
        map_batches(dataset, saved),
        dataset.map_batches(
            BatchModel,
            fn_constructor_args=(portable_model(saved),),
            batch_size=7,
            compute=ray.data.ActorPoolStrategy(size=1),
        ),
    ):
        found = mapped.take_all()
        assert [row["number"] for row in sorted(found, key=lambda row: row["number"])] == list(
            range(len(ROWS))
        )
        for row in found:
            np.testing.assert_allclose(
                row["y"], serial(saved, ROWS[row["number"]][None])[0], rtol=1e-5, atol=1e-6
            )
    with pytest.raises(InvalidModel, match="no output 'z'"):
        map_batches(dataset, saved, output="z")


def test_the_how_to(cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks about Ray in docs/distribute.md, which pages without Ray cannot run."""
    page = ROOT / "docs" / "distribute.md"
    monkeypatch.chdir(tmp_path)
    first, *_ = [block.code for block in code_blocks(page) if "small.gfx" in block.code]
    namespace: dict[str, Any] = {}
    exec(first, namespace)
    blocks = re.findall(r"```text\n(import ray.*?|found = .*?)```", page.read_text("utf-8"), re.S)
    for block in blocks:
        exec(block, namespace)
        found = {row["id"]: row["y"] for row in namespace["found"].take_all()}
        expected = namespace["exe"].run({"x": np.eye(12, dtype=np.float32)})["y"]
        np.testing.assert_allclose([found[k] for k in range(12)], expected, rtol=1e-6)
    assert len(blocks) == 2


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_five_thousand_images_and_a_run_that_is_killed(saved: Path, tmp_path: Path) -> None:
    """A worker is killed in the middle, then everything; the run is started again, and Ray's
    checkpoint says which images are left."""
    images = np.random.default_rng(3).standard_normal((5000, 6)).astype(np.float32)
    (tmp_path / "in").mkdir()
    for k in range(100):
        part = range(50 * k, 50 * k + 50)
        frame = pd.DataFrame({"id": part, "x": list(images[part.start : part.stop])})
        frame.to_parquet(tmp_path / "in" / f"{k:03}.parquet")
    script = tmp_path / "run.py"
    script.write_text(RUN, encoding="utf-8")
    out = tmp_path / "out"

    def run() -> subprocess.Popen[str]:
        command = [sys.executable, "-P", str(script), str(tmp_path), str(saved)]
        return subprocess.Popen(command, text=True, start_new_session=True)

    def written() -> int:
        return len(list(out.glob("*.parquet"))) if out.exists() else 0

    first = run()
    killed: set[int] = set()
    for limit in (5, 20):
        while written() < limit:
            assert first.poll() is None
            time.sleep(0.02)
        if limit == 5:
            victim = int(sorted((tmp_path / "actors").iterdir())[0].name)
            os.kill(victim, signal.SIGKILL)
            killed.add(victim)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    before = written()
    assert 20 <= before < 100
    # Ray itself gives up if its processes do not start within half a minute.
    assert any(run().wait(1800) == 0 for _ in range(3))
    actors = {int(path.name) for path in (tmp_path / "actors").iterdir()}
    assert killed < actors
    table = pd.read_parquet(out).sort_values("id")
    assert list(table["id"]) == list(range(5000))
    np.testing.assert_allclose(np.stack(table["y"]), serial(saved, images), rtol=1e-5, atol=1e-6)


RUN = """
import os
import sys
import time
from pathlib import Path

import numpy as np
import ray
from ray.data import DataContext
from ray.data.checkpoint import CheckpointConfig

from graphflow.distributed import BatchModel, portable_model

FOLDER, MODEL = Path(sys.argv[1]), sys.argv[2]


class Slowly(BatchModel):
    def __init__(self, *given):
        super().__init__(*given)
        (FOLDER / "actors").mkdir(exist_ok=True)
        (FOLDER / "actors" / str(os.getpid())).touch()

    def __call__(self, batch):
        time.sleep(0.05)
        return super().__call__(batch)


if __name__ == "__main__":
    # One for the model, one for what filters the images that are done, and some for reading.
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    context = DataContext.get_current()
    context.target_min_block_size, context.target_max_block_size = 1, 2 << 10
    context.checkpoint_config = CheckpointConfig(
        id_column="id", checkpoint_path=str(FOLDER / "checkpoint")
    )
    ids = ray.data.read_parquet(str(FOLDER / "in"), override_num_blocks=100)
    ids.map_batches(
        Slowly,
        fn_constructor_args=(portable_model(MODEL),),
        batch_size=50,
        compute=ray.data.ActorPoolStrategy(size=1),
    ).write_parquet(str(FOLDER / "out"))
"""
