"""Tests of executables in pools of processes and threads of every kind, and of the memory of
weights that processes share."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import graphflow as gf
from graphflow.models import ModelBuilder, named

POOLS = """
import asyncio
import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import joblib
import numpy as np

import graphflow as gf

START = sys.argv[2]


def one(exe, batch):
    return exe(batch)


async def in_tasks(exe, batches, pool):
    loop = asyncio.get_running_loop()
    tasks = [loop.run_in_executor(pool, one, exe, batch) for batch in batches]
    names = [tensor.name for tensor in exe.outputs]
    alone = await asyncio.gather(*(exe.run_async({"x": batch}) for batch in batches))
    return await asyncio.gather(*tasks) + [found[names[0]] for found in alone]


if __name__ == "__main__":
    exe = gf.load(sys.argv[1])
    batches = [np.full((2, 8), k, np.float32) for k in range(6)]
    expected = [exe(batch) for batch in batches]  # before the pools: forks find a used executable
    context = multiprocessing.get_context(START)
    with context.Pool(2) as pool:
        assert np.array_equal(pool.starmap(one, [(exe, batch) for batch in batches]), expected)
    with ProcessPoolExecutor(2, context) as pool:
        assert np.array_equal(list(pool.map(exe, batches)), expected)
        assert np.array_equal(asyncio.run(in_tasks(exe, batches, pool)), expected + expected)
    with ThreadPoolExecutor(4) as pool:
        assert np.array_equal(list(pool.map(exe, batches)), expected)
    for backend in ("loky", "threading", "multiprocessing") if START == "spawn" else ():
        jobs = (joblib.delayed(one)(exe, batch) for batch in batches)
        found = joblib.Parallel(n_jobs=2, backend=backend)(jobs)
        assert np.array_equal(found, expected), backend
    assert np.array_equal([exe(batch) for batch in batches], expected)
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    build = ModelBuilder(seed=2)
    x = build.input("x", (2, 8))
    build.output(build.relu(build.node("MatMul", [x, build.weight(8, 64)])))
    path = tmp_path_factory.mktemp("saved") / "net.gfx"
    gf.compile(build.model(), options=gf.Options(threads=2, workers=0)).save(path)
    return path


@pytest.mark.parametrize("start", ["spawn", "fork", "forkserver"])
def test_pools_of_every_kind(start: str, saved: Path, tmp_path: Path) -> None:
    """Fork is of a process whose executable has run, with threads of its own."""
    (tmp_path / "pools.py").write_text(POOLS, encoding="utf-8")
    command = [sys.executable, "-P", "pools.py", str(saved), start]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


# Memory -----------------------------------------------------------------------------------------

PROCESSES = 8

MEMORY = """
import multiprocessing
import re
import sys

import numpy as np

import graphflow as gf

PATH, PROCESSES = sys.argv[1], int(sys.argv[2])


def serve(connection):
    exe = gf.load(PATH, threads=1)
    (x,) = exe.inputs
    exe.run({x.name: np.ones(x.shape, np.float32)})
    connection.send("done")
    connection.recv()


def proportional(process, text):
    with open(f"/proc/{process.pid}/{text}") as file:
        return file.read()


if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    assert gf.load  # imports what loads: else each process has that memory, too
    processes, connections, totals = [], [], []
    for _ in range(PROCESSES):
        here, there = context.Pipe()
        process = context.Process(target=serve, args=(there,))
        process.start()
        assert here.recv() == "done"
        processes.append(process)
        connections.append(here)
        whole = (proportional(one, "smaps_rollup") for one in processes)
        totals.append(sum(int(re.search(r"^Pss: +(\\d+)", text, re.M)[1]) for text in whole))
    file = sum(
        int(size)
        for one in processes
        for size in re.findall(
            rf"{re.escape(PATH)}\\n(?:.*\\n)*?Pss: +(\\d+)", proportional(one, "smaps")
        )
    )
    print(totals[0], totals[-1], file)
    for connection, process in zip(connections, processes):
        connection.send("end")
        process.join()
"""


def kibibytes(path: Path, tmp_path: Path) -> tuple[int, int, int]:
    """Proportional set sizes: of one process, of all, and of the mapped file in all."""
    (tmp_path / "memory.py").write_text(MEMORY, encoding="utf-8")
    command = [sys.executable, "-P", "memory.py", str(path), str(PROCESSES)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    one, all_of_them, file = map(int, re.findall(r"\d+", done.stdout))
    print(f"{path.name}: one {one} KiB, {PROCESSES} {all_of_them} KiB, weights {file} KiB")
    return one, all_of_them, file


def assert_weights_are_there_once(path: Path, tmp_path: Path) -> None:
    size = path.stat().st_size // 1024
    one, all_of_them, file = kibibytes(path, tmp_path)
    assert 0.8 * size <= file <= 1.05 * size
    assert all_of_them - one < (PROCESSES - 1) * size / 2


def test_processes_share_the_memory_of_weights(tmp_path: Path) -> None:
    build = ModelBuilder(seed=2)
    x = build.input("x", (1, 2048))
    for _ in range(2):
        x = build.node("MatMul", [x, build.weight(2048, 2048)])
    build.output(x)
    path = tmp_path / "wide.gfx"
    gf.compile(build.model(), options=gf.Options(threads=1, workers=0)).save(path)
    assert path.stat().st_size > 32 << 20
    assert_weights_are_there_once(path, tmp_path)


@pytest.mark.slow
def test_processes_of_resnet50_share_the_memory_of_weights(tmp_path: Path) -> None:
    model = named("light:resnet50", 1)
    assert model is not None
    path = tmp_path / "resnet50.gfx"
    gf.compile(model).save(path)
    assert path.stat().st_size > 90 << 20
    assert_weights_are_there_once(path, tmp_path)
