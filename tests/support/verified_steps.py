"""A mode of the tests in which every kernel is verified after every step of a schedule.

What always holds while it is on: a step that leaves a kernel that is not well formed, has a loop
whose kind is not safe, or computes indices beyond 64 bits raises a `VerifyError` that names it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from graphflow.base.errors import VerifyError
from graphflow.schedule import require_sound
from graphflow.schedule.steps.base_schedule import BaseSchedule


@contextmanager
def verified_steps() -> Iterator[None]:
    """While the context lasts, `Schedule.apply` verifies what the primitive made."""
    plain = BaseSchedule.apply

    def apply(self: Any, primitive: Any, *arguments: Any, **options: Any) -> Any:
        done = plain(self, primitive, *arguments, **options)
        if done.func is not self.func:
            try:
                require_sound(done.func)
            except VerifyError as error:
                raise VerifyError(f"{done.steps[-1]} left this behind: {error}") from error
        return done

    setattr(BaseSchedule, "apply", apply)  # noqa: B010
    try:
        yield
    finally:
        setattr(BaseSchedule, "apply", plain)  # noqa: B010
