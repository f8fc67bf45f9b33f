"""One stage of the compiler: a function with a name, which is timed and shown.

In: the arguments of the function.  Out: its result.  What always holds: an error that leaves a
stage names it, and memory that runs out in it is a GraphflowError too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, ParamSpec, TypeVar

from graphflow.base.errors import GraphflowError
from graphflow.base.trace import CHANGES_LEVEL, Trace

Given = ParamSpec("Given")
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Stage(Generic[Given, Found]):
    """The function `run`, by name.

    `show` makes text of its result, which is printed from debug level `level` on.
    """

    name: str
    run: Callable[Given, Found]
    show: Callable[[Found], str] | None = None
    level: int = CHANGES_LEVEL

    def then(self, serve: Callable[[Found], None]) -> Stage[Given, Found]:
        """This stage, which ends after `serve` was called with its result: the time of that, and
        its errors, are those of the stage."""

        def run(*args: Given.args, **kwargs: Given.kwargs) -> Found:
            found = self.run(*args, **kwargs)
            serve(found)
            return found

        return replace(self, run=run)

    def traced(self, trace: Trace) -> Callable[Given, Found]:
        """The function, with its time and the text of its result in `trace`."""

        def call(*args: Given.args, **kwargs: Given.kwargs) -> Found:
            try:
                with trace.stage(self.name):
                    found = self.run(*args, **kwargs)
            except GraphflowError as error:
                error.add_note(f"in stage {self.name}")
                raise
            except MemoryError as error:
                raise GraphflowError(
                    f"memory ran out in stage {self.name} ({error or 'no details'}); the model "
                    "needs a machine with more memory, or smaller input_shapes"
                ) from error
            show = self.show
            if show is not None:
                trace.result(self.name, lambda: show(found), self.level)
            return found

        return call
