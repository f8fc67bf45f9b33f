"""`InferenceSession`: onnxruntime's session over an executable.

In: an ONNX model, a saved model or an executable, and onnxruntime's arguments.  Out: results in its
order.  What always holds: names are checked before anything runs, and errors name them.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from graphflow.api.executable import Executable, load
from graphflow.api.session.io_binding import IOBinding
from graphflow.api.session.node_args import node_args
from graphflow.api.session.ort_values import OrtValue
from graphflow.api.session.providers import PROVIDER, Providers, check_providers
from graphflow.api.session.session_options import (
    RunOptions,
    SessionOptions,
    compile_options,
    require_nothing_to_compile,
    stated_sizes,
)
from graphflow.base.collecting import imported_module
from graphflow.base.declaration import ModelMetadata, NodeArg
from graphflow.base.element_types import dtype_of_tensor
from graphflow.base.errors import GraphflowError, InvalidModel, RunError
from graphflow.base.fields import replace
from graphflow.runtime import StateTensor, given_array, is_container

_INTERNAL = ("disabled_optimizers", "enable_fallback", "read_config_from_model")
"""Arguments that onnxruntime's session has without documenting them; they have no effect here."""

Callback = Callable[[Any, Any, str], object]


class MissingInputs(InvalidModel, ValueError):
    """A run lacks inputs: a ValueError, as in onnxruntime."""


class InferenceSession:
    """A model that is ready to run, with onnxruntime's interface.

    `path_or_bytes` is the path of an ONNX file or of a file that `Executable.save` wrote, the bytes
    of an ONNX file, or an `Executable`, which `compile` made with arguments that onnxruntime lacks.
    An executable keeps its threads; a saved model takes those of the options.
    Results, names and errors are as onnxruntime documents them; docs/onnxruntime.md lists the
    options that have an effect.  `executable` explains, reports and saves the model.
    """

    def __init__(
        self,
        path_or_bytes: str | os.PathLike[str] | bytes | Executable,
        sess_options: SessionOptions | None = None,
        providers: Providers | None = None,
        provider_options: Sequence[Mapping[Any, Any]] | None = None,
        **internal: Any,
    ) -> None:
        if unknown := sorted(internal.keys() - set(_INTERNAL)):
            raise TypeError(f"InferenceSession takes no arguments {', '.join(unknown)}")
        check_providers(providers, provider_options)
        self._options = SessionOptions() if sess_options is None else sess_options
        self._begin = time.monotonic_ns()
        self._last: Mapping[str, Any] | None = None
        if isinstance(path_or_bytes, Executable):
            self._open_executable(path_or_bytes)
        elif isinstance(path_or_bytes, str | os.PathLike) and is_container(Path(path_or_bytes)):
            threads = self._options.intra_op_num_threads or None
            self._open_executable(load(os.fspath(path_or_bytes), threads=threads))
        elif isinstance(path_or_bytes, str | os.PathLike | bytes):
            self._open_onnx(path_or_bytes)
        else:
            raise TypeError(f"Unable to load from type '{type(path_or_bytes)}'")
        self._dtypes = {
            arg.name: dtype_of_tensor(arg.type) for arg in (*self._inputs, *self._overridable)
        }
        self._required = frozenset(
            arg.name for arg in self._inputs if not arg.type.startswith("optional")
        )
        self._results = tuple(arg.name for arg in self._outputs)
        self._runs = _BoundRuns(self.executable)
        if self._options.optimized_model_filepath:
            self._save(self._options.optimized_model_filepath)

    def _open_executable(self, exe: Executable) -> None:
        require_nothing_to_compile(self._options)
        self.executable = exe
        self._onnx: Any = None
        required, declared = set(exe.required), exe.declaration
        inputs = node_args(exe.inputs)
        self._inputs = tuple(arg for arg in inputs if arg.name in required)
        self._overridable = tuple(arg for arg in inputs if arg.name not in required)
        self._outputs = node_args(exe.outputs, declared.outputs if declared else ())
        self._metadata = ModelMetadata(graph_name=exe.title) if not declared else declared.metadata

    def _open_onnx(self, source: str | os.PathLike[str] | bytes) -> None:
        dimensions = self._options.dimensions
        model = _read(source, dimensions) if dimensions else source
        self.executable = self._compiled(model, ())
        declared = self.executable.declaration
        assert declared is not None, "an ONNX model declares its inputs and outputs"
        self._inputs, self._outputs = declared.inputs, declared.outputs
        self._overridable, self._metadata = declared.overridable, declared.metadata
        # A run that gives one needs the model as it is now.
        self._onnx = (model if dimensions else _read(source, {})) if declared.overridable else None

    @cached_property
    def _with_defaults(self) -> Executable:
        """The executable in which the overridable initializers are defaults of inputs."""
        return self._compiled(self._onnx, [arg.name for arg in self._overridable])

    def _compiled(self, model: Any, overridable: Sequence[str]) -> Executable:
        made: Executable = imported_module("graphflow.api.compilation").compile(
            model,
            overridable=tuple(overridable),
            sizes=stated_sizes(self._options),
            options=compile_options(self._options),
        )
        return made

    def _save(self, path: str) -> None:
        try:
            self.executable.save(path)
        except InvalidModel as error:
            raise InvalidModel(
                f"optimized_model_filepath: {error}; fix the symbolic dimensions with "
                "add_free_dimension_override_by_name, or state their bounds with the entries "
                "session.graphflow.size.NAME"
            ) from error

    # What is asked ------------------------------------------------------------------------------

    def get_inputs(self) -> list[NodeArg]:
        """The inputs that each run gives."""
        return _given(self._inputs)

    def get_outputs(self) -> list[NodeArg]:
        """The outputs, in the order of results."""
        return _given(self._outputs)

    def get_overridable_initializers(self) -> list[NodeArg]:
        """The inputs that a run may give in place of an initializer."""
        return _given(self._overridable)

    def get_modelmeta(self) -> ModelMetadata:
        """What the model's file says about it."""
        return self._metadata

    def get_session_options(self) -> SessionOptions:
        """The options that the session was made with."""
        return self._options

    def get_providers(self) -> list[str]:
        """The provider: the processor."""
        return [PROVIDER]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """The options of the provider, which has none."""
        return {PROVIDER: {}}

    def set_providers(
        self,
        providers: Providers | None = None,
        provider_options: Sequence[Mapping[Any, Any]] | None = None,
    ) -> None:
        """Check the arguments, and warn of providers that are not there; the session stays."""
        check_providers(providers, provider_options)

    def disable_fallback(self) -> None:
        """Has no effect: no run falls back to another provider."""

    def enable_fallback(self) -> None:
        """Has no effect: no run falls back to another provider."""

    # Running ------------------------------------------------------------------------------------

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: RunOptions | None = None,
    ) -> list[Any]:
        """The outputs of these names, in their order; of all outputs, if none are named.

        An input is an array, an object that exports DLPack, an `OrtValue`, or a list, which becomes
        an array of the input's dtype.  Raises MissingInputs for inputs that are not given,
        InvalidModel for other names, shapes and dtypes, and RunError for a run that is to be
        terminated.
        """
        names = self.known_outputs(output_names) if output_names else self._results
        results = self.results(input_feed, None, run_options)
        return [results[name] for name in names]

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """The same with `OrtValue`s, in and out."""
        return [OrtValue(y) for y in self.run(output_names, input_dict_ort_values, run_options)]

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callback,
        user_data: Any = None,
        run_options: RunOptions | None = None,
    ) -> None:
        """Run in another thread, which calls `callback(results, user_data, error)` at the end.

        `error` is the message of an error, and then the results are empty; else it is empty.  Names
        are checked before the run is begun.
        """
        names = self.known_outputs(output_names)
        self._require_inputs(input_feed)

        def work() -> None:
            found, message = list[Any](), ""
            try:
                found = self.run(names, input_feed, run_options)
            except Exception as error:
                message = str(error) or type(error).__name__
            callback(found, user_data, message)

        _workers().submit(work)

    def io_binding(self) -> IOBinding:
        """A binding of inputs and outputs, for `run_with_iobinding`."""
        return IOBinding(self)

    def run_with_iobinding(
        self, iobinding: IOBinding, run_options: RunOptions | None = None
    ) -> None:
        """Run on the bound inputs, and write into the bound outputs."""
        iobinding.run(self, run_options)

    def results(
        self,
        feeds: Mapping[str, Any],
        out: Mapping[str, Any] | None,
        run_options: RunOptions | None,
        keeps_states: bool = False,
    ) -> dict[str, Any]:
        """All outputs by name; those that `out` names are written into its arrays.

        With `keeps_states`, other ones may be `StateTensor`s, which stay what they are.
        """
        if run_options is not None and run_options.terminate:
            raise RunError("Exiting due to terminate flag being set to true.")
        self._require_inputs(feeds)
        given = {name: self._value(name, value) for name, value in feeds.items()}
        if self._options.enable_profiling:
            self._last = given
        exe = self.executable
        if self._onnx is not None and any(arg.name in given for arg in self._overridable):
            exe = self._with_defaults
        if keeps_states and exe is self.executable:
            return self._runs.run(given, out)
        return _run_with_arrays(exe, given, out)

    def known_outputs(self, names: Sequence[str] | None) -> list[str]:
        """The names of outputs, of all for None; InvalidModel for a name that is none."""
        for name in names or ():
            if name not in self._results:
                raise InvalidModel(
                    f"Invalid output name: {name}; the outputs are {', '.join(self._results)}"
                )
        return list(names or self._results)

    def _require_inputs(self, feeds: Mapping[str, Any]) -> None:
        if feeds.keys() == self._required:
            return
        if missing := [arg.name for arg in self._inputs if arg.name in self._required - set(feeds)]:
            raise MissingInputs(
                f"Required inputs ({missing}) are missing from input feed ({list(feeds)})."
            )
        for name in feeds:
            if name not in self._dtypes:
                raise InvalidModel(
                    f"Invalid input name: {name}; the inputs are {', '.join(self._dtypes)}"
                )

    def _value(self, name: str, value: Any) -> Any:
        """What the executable is given for an input."""
        if type(value) is np.ndarray or isinstance(value, StateTensor):
            return value
        if isinstance(value, OrtValue):
            return value.value
        if hasattr(value, "__dlpack__") or hasattr(value, "__array__"):
            return given_array(name, value)
        dtype = self._dtypes[name]
        return value if dtype is None else _listed(name, value, dtype)

    # Profiling ----------------------------------------------------------------------------------

    def get_profiling_start_time_ns(self) -> int:
        """When the session was made, in nanoseconds of `time.monotonic_ns`."""
        return self._begin

    def end_profiling(self) -> str:
        """Measure the steps of the last run's inputs, and write them as a trace.

        Returns the name of the file, in Chrome's trace format.  GraphflowError without
        `enable_profiling`, before the first run, and for a saved model.
        """
        if not self._options.enable_profiling or self._last is None:
            raise GraphflowError(
                "nothing was profiled; set SessionOptions.enable_profiling and run the session "
                "before end_profiling"
            )
        bench = import_module("graphflow.bench")
        exe = _of_shapes(self.executable, self._last)
        given = {**exe.values, **self._last}
        profile = bench.profile_run(exe.compiled, exe.program, given)
        moment = time.strftime("%Y-%m-%d_%H-%M-%S")
        path = f"{self._options.profile_file_prefix}_{moment}.json"
        Path(path).write_text(json.dumps(bench.chrome_trace(profile)), encoding="utf-8")
        return path

    def __repr__(self) -> str:
        return f"<InferenceSession of {self.executable!r}>"


def _given(args: Iterable[NodeArg]) -> list[NodeArg]:
    """Arguments for a script, which may write into the shapes that it asks for."""
    return [replace(arg, shape=[*arg.shape]) for arg in args]


def _read(source: Any, dimensions: Mapping[str, int]) -> Any:
    """A model as it is now, with these extents of dimensions; this imports ONNX."""
    reading = imported_module("graphflow.api.session.opened_model")
    return reading.opened_model(source, dimensions)


class _BoundRuns:
    """Runs of a session's bindings, whose states stay in place."""

    def __init__(self, exe: Executable) -> None:
        self._exe = exe
        self._bound = exe.bind(keep=True)
        self._turn = threading.Lock()

    def run(self, given: Mapping[str, Any], out: Mapping[str, Any] | None) -> dict[str, Any]:
        """The outputs; states are `StateTensor`s, unless another thread's run has the memory."""
        if not self._turn.acquire(blocking=False):
            return _run_with_arrays(self._exe, given, out)
        try:
            return self._bound.run(given, out=out)
        finally:
            self._turn.release()

    def __reduce__(self) -> tuple[type[_BoundRuns], tuple[Executable]]:
        return _BoundRuns, (self._exe,)


def _run_with_arrays(
    exe: Executable, given: Mapping[str, Any], out: Mapping[str, Any] | None
) -> dict[str, Any]:
    """An ordinary run, which is given copies of states."""
    arrays = {
        name: value.copy() if isinstance(value, StateTensor) else value
        for name, value in given.items()
    }
    return exe.run(arrays, out=out)


@cache
def _workers() -> ThreadPoolExecutor:
    """The threads of `run_async`; each run has as many further ones as its options say."""
    return ThreadPoolExecutor(thread_name_prefix="graphflow-run-async")


def _listed(name: str, value: Any, dtype: np.dtype[Any]) -> Any:
    """A list as an array of an input's dtype; InvalidModel if numbers would change kind."""
    try:
        array = np.asarray(value)
        if np.can_cast(array.dtype, dtype, "same_kind"):
            return np.array(value, dtype)
    except (OverflowError, TypeError, ValueError) as error:
        raise InvalidModel(f"input {name!r} is no array of {dtype}: {error}") from error
    raise InvalidModel(f"input {name!r} is a list of {array.dtype}; give an array of {dtype}")


def _of_shapes(exe: Executable, feeds: Mapping[str, Any]) -> Executable:
    """The executable of the program for the shapes of a run."""
    shapes = {name: np.shape(feeds[name]) for name in exe.deciding if name in feeds}
    for one in exe.specializations:
        known = one.program.inputs.shapes
        if known.admit(shapes, known.elements_in(feeds)):
            return one
    raise AssertionError("a run has a program")
