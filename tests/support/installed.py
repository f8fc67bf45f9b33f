"""Fresh environments with what `.ci/release` built, and processes in them."""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from support.pages import INSTALLS, code_blocks, with_output
from support.paths import ROOT, TESTS

DIST = ROOT / "dist"

TUTORIAL = ROOT / "docs" / "tutorial.md"

PROJECT = "graphflow-compiler"
"""The name that the tutorial installs."""

ELSEWHERE = ("GRAPHFLOW_CACHE", "PYTHONPATH", "VIRTUAL_ENV")
"""Variables of the tests that a new user does not have."""


def built(pattern: str) -> Path:
    """The one file in dist/ of a pattern; AssertionError where .ci/release did not run."""
    found = sorted(DIST.glob(pattern))
    assert len(found) == 1, f"dist/ has {len(found)} files {pattern}; run .ci/release"
    return found[0]


@dataclass(frozen=True, slots=True)
class Installed:
    """An environment `.venv` in a folder, with a folder for caches beside it."""

    folder: Path

    @property
    def variables(self) -> dict[str, str]:
        """What an activated environment sets, its own caches, and a browser that does nothing."""
        kept = {name: value for name, value in os.environ.items() if name not in ELSEWHERE}
        environment = self.folder / ".venv"
        return kept | {
            "BROWSER": "true",
            "PATH": f"{environment / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "VIRTUAL_ENV": str(environment),
            "XDG_CACHE_HOME": str(self.folder / "cache"),
        }

    def run(self, *command: str, folder: Path, **variables: str) -> str:
        """What a command prints; AssertionError with all that it says if it fails."""
        done = self.process(*command, folder=folder, **variables)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def process(
        self, *command: str, folder: Path, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """A command that has ended."""
        return subprocess.run(
            command,
            cwd=folder,
            env=self.variables | variables,
            capture_output=True,
            text=True,
            check=False,
        )

    def page(self, page: Path, folder: Path, given: str = "") -> str:
        """The text of a page with the outputs that it has when it is run, after the statements of
        `given`."""
        command = ("python", "-P", "-m", "support.pages", str(page), given)
        printed = self.run(*command, folder=folder, PYTHONPATH=str(TESTS))
        return with_output(page, json.loads(printed))


def installed(package: str, folder: Path) -> Installed:
    """The environment that the commands of the tutorial make, with `package` for its project."""
    (commands,) = (block.code for block in code_blocks(TUTORIAL) if INSTALLS.search(block.code))
    assert PROJECT in commands
    done = Installed(folder)
    done.run("bash", "-euc", commands.replace(PROJECT, f"'{package}'"), folder=folder)
    return done
