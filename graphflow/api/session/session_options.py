"""The options of sessions and runs, as in onnxruntime: what each means here.

In: what a script sets.  Out: graphflow's `Options` and sizes.  What always holds: an option that
changes what a session computes or returns has that effect or is refused; those that only tune
onnxruntime's own machinery (its arenas, thread pools, graph passes and logs) are kept and have
none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NoReturn

from graphflow.base.errors import GraphflowError, UnsupportedOp
from graphflow.base.fields import replace
from graphflow.base.options import Options

_OURS = "session.graphflow."

SIZE_ENTRY = f"{_OURS}size."
"""Begins the names of configuration entries that state bounds of a symbolic dimension."""

_DENORMALS = "session.set_denormal_as_zero"
_FORMAT = "session.load_model_format"


class GraphOptimizationLevel(IntEnum):
    """How much onnxruntime rewrites a graph; graphflow compiles alike at each level."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(IntEnum):
    """Whether onnxruntime runs nodes beside each other; graphflow shares each kernel instead."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(IntEnum):
    """The order in which onnxruntime runs nodes; graphflow's programs have their own."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


@dataclass(slots=True)
class SessionOptions:
    """The options of a session.

    With an effect are `intra_op_num_threads` (the threads of a run, 0 for all processors),
    `optimized_model_filepath` (the compiled model is saved there, which a session takes too),
    `enable_profiling` with `profile_file_prefix` (`end_profiling` writes a trace), the overrides of
    dimensions, and the entries `session.set_denormal_as_zero` and `session.graphflow.size.NAME`.
    """

    enable_cpu_mem_arena: bool = True
    enable_mem_pattern: bool = True
    enable_mem_reuse: bool = True
    enable_profiling: bool = False
    execution_mode: ExecutionMode = ExecutionMode.ORT_SEQUENTIAL
    execution_order: ExecutionOrder = ExecutionOrder.DEFAULT
    graph_optimization_level: GraphOptimizationLevel = GraphOptimizationLevel.ORT_ENABLE_ALL
    inter_op_num_threads: int = 0
    intra_op_num_threads: int = 0
    log_severity_level: int = -1
    log_verbosity_level: int = 0
    logid: str = ""
    optimized_model_filepath: str = ""
    profile_file_prefix: str = "onnxruntime_profile_"
    use_deterministic_compute: bool = False
    use_per_session_threads: bool = True
    dimensions: dict[str, int] = field(default_factory=dict, init=False)
    """The overrides of symbolic dimensions, by name."""
    entries: dict[str, str] = field(default_factory=dict, init=False)
    """The configuration entries, by key."""

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Set an entry.

        `session.graphflow.size.batch` with `1:8` asks for one program for these extents of the
        dimension `batch`.  GraphflowError for an entry of graphflow's that does not exist, and for
        another model format than ONNX; other entries are kept.
        """
        key, value = str(key), str(value)
        if key.startswith(SIZE_ENTRY):
            _bounds(key, value)
        elif key.startswith(_OURS):
            raise GraphflowError(
                f"there is no entry {key!r}; graphflow's are {SIZE_ENTRY}NAME, with the least and "
                "the greatest extent of the dimension NAME, such as 1:8"
            )
        if key == _FORMAT and value.upper() != "ONNX":
            raise UnsupportedOp(f"{_FORMAT} is {value!r}; graphflow reads ONNX models only")
        self.entries[key] = value

    def get_session_config_entry(self, key: str) -> str:
        """The entry; RuntimeError if it was not set, as in onnxruntime."""
        if key not in self.entries:
            raise RuntimeError(f"SessionOptions does not have configuration with key: {key}")
        return self.entries[key]

    def add_free_dimension_override_by_name(self, name: str, extent: int) -> None:
        """Fix a symbolic dimension."""
        self.dimensions[name] = int(extent)

    def add_free_dimension_override_by_denotation(self, denotation: str, extent: int) -> NoReturn:
        """Refused: dimensions are known by their names."""
        raise UnsupportedOp(
            f"the dimension of denotation {denotation!r} cannot be fixed; fix it by its name with "
            "add_free_dimension_override_by_name"
        )

    def add_initializer(self, name: str, value: Any) -> NoReturn:
        """Refused: weights are packed when a model is compiled."""
        raise UnsupportedOp(
            f"the initializer {name!r} cannot be replaced; write it into the model, or make it an "
            "input"
        )

    def add_external_initializers(self, names: Any, values: Any) -> NoReturn:
        """Refused: weights are read from the files that the model names."""
        raise UnsupportedOp(
            f"the initializers {list(names)} cannot be given apart; save the model with its "
            "external data beside it"
        )

    def register_custom_ops_library(self, path: str) -> NoReturn:
        """Refused: a library for onnxruntime is no kernel for graphflow."""
        raise UnsupportedOp(
            f"the operators of {path} are onnxruntime's; give graphflow kernels with "
            "InferenceSession(gf.compile(model, operators=...))"
        )

    def add_provider(self, name: str, options: Mapping[str, str]) -> None:
        """Has no effect for the processor; UnsupportedOp for other providers."""
        if name != "CPUExecutionProvider":
            raise UnsupportedOp(f"the provider {name!r} is not there; graphflow runs on processors")

    def has_providers(self) -> bool:
        """Whether providers were added; those that can be are the default."""
        return False


@dataclass(slots=True)
class RunOptions:
    """The options of a run: with `terminate` a run that has not begun is refused; the others have
    no effect."""

    log_severity_level: int = -1
    log_verbosity_level: int = 0
    logid: str = ""
    only_execute_path_to_fetches: bool = False
    terminate: bool = False
    entries: dict[str, str] = field(default_factory=dict, init=False)
    """The configuration entries, by key."""

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Keep an entry, which has no effect."""
        self.entries[str(key)] = str(value)

    def get_run_config_entry(self, key: str) -> str:
        """The entry; RuntimeError if it was not set, as in onnxruntime."""
        if key not in self.entries:
            raise RuntimeError(f"RunOptions does not have configuration with key: {key}")
        return self.entries[key]

    def add_active_adapter(self, adapter: Any) -> NoReturn:
        """Refused: adapters replace weights, which are packed when a model is compiled."""
        raise UnsupportedOp("adapters are not built; write the adapted weights into the model")


def require_nothing_to_compile(wanted: SessionOptions) -> None:
    """Raise GraphflowError for options that change a compilation: the model is compiled already."""
    stated = [f"the dimension {name}" for name in wanted.dimensions]
    stated += [key for key in wanted.entries if key.startswith(SIZE_ENTRY)]
    stated += [_DENORMALS] * (wanted.entries.get(_DENORMALS) == "1")
    if stated:
        raise GraphflowError(
            f"the model is compiled already, and {', '.join(stated)} would change that; give a "
            "session the ONNX model, or compile with sizes, input_shapes or "
            "Options(flush_denormals=True)"
        )


def compile_options(wanted: SessionOptions) -> Options:
    """The options of the compilation of a session's model."""
    return replace(
        Options.from_environment(),
        threads=wanted.intra_op_num_threads or None,
        flush_denormals=wanted.entries.get(_DENORMALS) == "1",
    )


def stated_sizes(wanted: SessionOptions) -> dict[str, tuple[int, int]]:
    """The bounds of symbolic dimensions that entries state, by name."""
    return {
        key.removeprefix(SIZE_ENTRY): _bounds(key, value)
        for key, value in wanted.entries.items()
        if key.startswith(SIZE_ENTRY)
    }


def _bounds(key: str, value: str) -> tuple[int, int]:
    least, _, most = value.partition(":")
    try:
        return int(least), int(most or least)
    except ValueError:
        raise GraphflowError(
            f"the entry {key} is {value!r}; give the least and the greatest extent, such as 1:8"
        ) from None
