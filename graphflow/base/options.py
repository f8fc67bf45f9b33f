"""`Options`: the settings of a compilation and of its runs, as plain values.

In: arguments, or the environment, which only this module reads.  Out: one frozen `Options` that is
passed along.  What always holds: every field is a plain value, so that options can be compared,
printed and stored.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from operator import index
from typing import Any, TypeVar

from graphflow.base.errors import GraphflowError

DEBUG_VARIABLE = "GRAPHFLOW_DEBUG"
CACHES_VARIABLE = "XDG_CACHE_HOME"
KERNELS_VARIABLE = "GRAPHFLOW_CACHE"
HOST_VARIABLE = "GRAPHFLOW_HOST"
NO_CACHE = ("", "off")
MOST_DEBUG = 4
FALLBACKS = ("onnxruntime",)
"""What can run nodes that have no kernel."""

Plain = TypeVar("Plain", bool, int, str)


@dataclass(frozen=True, slots=True)
class Options:
    """Settings that change how a model is compiled or run, never its results.

    `threads` is the number of threads of a run (None: the processors this process may use).
    `debug` says how much is printed: 1 stages and their times, 2 changes and refusals, 3
    constraints and the plan, 4 LLVM IR. `dump` is a folder that gets one file for each stage and
    kernel.  `poison` overwrites undefined padding with a value given at each run, `check_assumes`
    checks at each run what a user asked to assume, `flush_denormals` lets denormal floats count as
    zero, which permits dot products of bfloat16 numbers that do so.  `workers` is the number of
    further processes that make kernels, 0 to make all in this process; None starts as many as
    `threads` and the processors allow if there are many kernels.
    `validate` compares each distinct native kernel with the interpreter of its definition, on
    random inputs, before `compile` returns.  `fallback` runs nodes that have no kernel:
    "onnxruntime"; with None a model that has such nodes is refused.  `timings` is the path of a
    timing table that `tune` filled, whose times replace estimated prices; with None all prices are
    estimated.  `memory_limit` is the most bytes that the tensors of a compiled model may take
    together; None is the memory that this process may use.  A model that needs more is refused
    before it is run.  `cache` is the folder in which kernels and programs are kept for later
    compilations, "off" or "" for none; None leaves it to GRAPHFLOW_CACHE, see `kernel_folder` and
    `program_folder`.
    `programs` is how many programs a model with open shapes keeps, one for each set of shapes and
    values that runs bring; beyond that the least recently used one is dropped, and compiled again
    when a run needs it.  `winograd` lets convolutions of 3×3 weights, or of 3 along sequences, be
    computed in transformed tiles where that is cheaper, with errors of about 2e-6 in norm; without
    it they are plain sums.  `integer_products` lets products of dequantized tensors be sums of
    integers that are scaled once, which may change a quantized result, to at most one step from
    that of the exact sum; without it they are sums of floats.  `excess_precision` lets tensors of
    float16 and bfloat16 that only kernels read be kept in float32, not rounded, where that is
    cheaper.

    Paths may be `os.PathLike`, integers may be any type with `__index__` but bool; they are kept as
    `str` and `int`.  Raises TypeError for a field of another type, GraphflowError for a value that
    is not allowed.
    """

    threads: int | None = None
    debug: int = 0
    dump: str | None = None
    poison: bool = False
    check_assumes: bool = False
    flush_denormals: bool = False
    workers: int | None = None
    validate: bool = False
    fallback: str | None = "onnxruntime"
    timings: str | None = None
    memory_limit: int | None = None
    cache: str | None = None
    programs: int = 16
    winograd: bool = True
    integer_products: bool = True
    excess_precision: bool = False

    def __post_init__(self) -> None:
        for name, (convert, wanted) in _FIELDS.items():
            given = getattr(self, name)
            try:
                object.__setattr__(self, name, convert(given))
            except TypeError:
                raise TypeError(f"Options.{name} is {given!r}; give {wanted}") from None
        if self.threads is not None and self.threads < 1:
            raise GraphflowError(
                f"Options.threads is {self.threads}; it must be at least 1, or None for all "
                "processors that this process may use"
            )
        if self.workers is not None and self.workers < 0:
            raise GraphflowError(
                f"Options.workers is {self.workers}; it must be at least 0 (compile in this "
                "process), or None to let graphflow decide"
            )
        if self.fallback is not None and self.fallback not in FALLBACKS:
            raise GraphflowError(
                f"Options.fallback is {self.fallback!r}; it must be one of {', '.join(FALLBACKS)}, "
                "or None to refuse models with nodes that have no kernel"
            )
        if self.memory_limit is not None and self.memory_limit < 1:
            raise GraphflowError(
                f"Options.memory_limit is {self.memory_limit}; it must be a positive number of "
                "bytes, or None for the memory that this process may use"
            )
        if self.programs < 1:
            raise GraphflowError(
                f"Options.programs is {self.programs}; it must be at least 1, the program of the "
                "latest run"
            )
        if not 0 <= self.debug <= MOST_DEBUG:
            raise GraphflowError(f"Options.debug is {self.debug}; it must be 0 to {MOST_DEBUG}")

    @staticmethod
    def from_environment() -> Options:
        """The defaults, with `debug` from GRAPHFLOW_DEBUG.

        Raises GraphflowError if the variable is set to anything but 0 to 4.
        """
        text = os.environ.get(DEBUG_VARIABLE, "").strip() or "0"
        if not text.isdigit() or int(text) > MOST_DEBUG:
            raise GraphflowError(
                f"the environment sets {DEBUG_VARIABLE}={text}; it must be 0 to {MOST_DEBUG}"
            )
        return Options(debug=int(text))


def _switch(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _number(value: Any) -> int:
    if not is_index(value):
        raise TypeError
    return index(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _path(value: Any) -> str:
    return _text(os.fspath(value))


def _optional(convert: Callable[[Any], Plain]) -> Callable[[Any], Plain | None]:
    return lambda value: None if value is None else convert(value)


_SWITCH = (_switch, "True or False")
_FIELDS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "threads": (_optional(_number), "a number of threads, or None for all"),
    "debug": (_number, f"a level, 0 to {MOST_DEBUG}"),
    "dump": (_optional(_path), "the path of a folder, or None for no dumps"),
    "poison": _SWITCH,
    "check_assumes": _SWITCH,
    "flush_denormals": _SWITCH,
    "workers": (_optional(_number), "a number of processes, or None to let graphflow decide"),
    "validate": _SWITCH,
    "fallback": (_optional(_text), f"one of {', '.join(FALLBACKS)}, or None to refuse such models"),
    "timings": (_optional(_path), "the path of a table that tune filled, or None for estimates"),
    "memory_limit": (
        _optional(_number),
        "a number of bytes, or None for the memory that this process may use",
    ),
    "cache": (
        _optional(_path),
        f'the path of a folder, "off" for no cache, or None for what {KERNELS_VARIABLE} says',
    ),
    "winograd": _SWITCH,
    "integer_products": _SWITCH,
    "excess_precision": _SWITCH,
    "programs": (_number, "a number of programs to keep"),
}
"""For each field of `Options` its conversion (TypeError for another type), and what an error
message asks for."""


def is_index(value: object) -> bool:
    """Whether a value counts as an integer: Python's and numpy's do, bools do not."""
    if isinstance(value, bool):
        return False
    try:
        index(value)  # type: ignore[arg-type]
    except TypeError:
        return False
    return True


def default_timings() -> str:
    """The user's timing table: `graphflow/timings.jsonl` in the folder for caches."""
    return os.path.join(_caches(), "timings.jsonl")


def kernel_folder(cache: str | None) -> str | None:
    """The folder of the kernel cache for `Options.cache`; None for no folder.

    With None the environment decides: GRAPHFLOW_CACHE has the meaning of the option, and if it is
    not set, kernels are in `graphflow/kernels` in the user's folder for caches.
    """
    wanted = os.environ.get(KERNELS_VARIABLE) if cache is None else cache
    if wanted is None:
        return os.path.join(_caches(), "kernels")
    return None if wanted in NO_CACHE else wanted


def program_folder(cache: str | None) -> str | None:
    """The folder in which whole programs are kept for `Options.cache`; None for no folder.

    It is `graphflow/programs` in the user's folder for caches, or `programs` in the folder that the
    option or the environment names.
    """
    kernels = kernel_folder(cache)
    if kernels is None:
        return None
    is_default = cache is None and os.environ.get(KERNELS_VARIABLE) is None
    return os.path.join(_caches() if is_default else kernels, "programs")


def rates_file() -> str:
    """The file in the user's folder for caches that keeps what `graphflow calibrate` measured."""
    return os.path.join(_caches(), "processors.json")


def assumed_host() -> str | None:
    """The processor whose caches and rates the environment puts in place of the host's, by name.

    None if GRAPHFLOW_HOST is empty or not set.
    """
    return os.environ.get(HOST_VARIABLE) or None


def _caches() -> str:
    """The folder of graphflow among this user's caches."""
    folder = os.environ.get(CACHES_VARIABLE, "")
    if not os.path.isabs(folder):  # the XDG specification says that a relative path is ignored
        folder = os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(folder, "graphflow")
