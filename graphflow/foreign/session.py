"""Running a section in onnxruntime.

In: a `Section`.  Out: a `Session` that runs it.  Importing onnxruntime takes time, so only
`opening` imports this module, when a program has a section.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from math import prod
from typing import Any, TypeAlias

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from onnx import helper

from graphflow.base.errors import GraphflowError, UnsupportedOp
from graphflow.foreign.section import Section

LOOPS = frozenset({"Loop", "Scan", "SequenceMap"})
"""Operators that may run for longer than anybody waits, so that Ctrl-C has to end them."""

PATIENCE = 2.0
"""Seconds that an interrupted run gets to end its node."""

Results: TypeAlias = "list[Any]"


class Session:
    """A section in onnxruntime, with a given number of threads."""

    def __init__(self, section: Section, threads: int) -> None:
        """Raises UnsupportedOp if onnxruntime refuses the section."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 4
        # Threads that spin behind a run would take the processors from the kernels that follow.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._section = section
        try:
            self._session = onnxruntime.InferenceSession(
                section.model, options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:
            # onnxruntime's errors have no common base below Exception.
            reasons = "; ".join(map(str, section.nodes))
            raise UnsupportedOp(
                f"neither graphflow nor onnxruntime runs {reasons}; onnxruntime says: {error}. "
                "Pass them to `compile(operators=...)`, or rewrite the model without them"
            ) from error

        given, made = self._session.get_inputs(), self._session.get_outputs()
        self._has_loops = any(node.op in LOOPS for node in section.nodes)
        self._typed = any("float8" in t.type or "bfloat16" in t.type for t in (*given, *made))

    def run(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs and outgoing objects by name; GraphflowError if onnxruntime fails."""
        wanted = [*self._section.outputs, *self._section.objects_out]
        names = (*self._section.inputs, *self._section.objects_in)
        given = {name: values[name] for name in names}
        run = self._run_typed if self._typed else self._run
        try:
            if self._has_loops and threading.current_thread() is threading.main_thread():
                results = _interruptible(lambda options: run(wanted, given, options))
            else:
                results = run(wanted, given, None)
        except Exception as error:
            raise GraphflowError(
                f"onnxruntime, which runs {self._section.title}, failed: {error}"
            ) from error
        return dict(zip(wanted, results, strict=True))

    def _run(
        self, wanted: list[str], given: dict[str, Any], options: onnxruntime.RunOptions | None
    ) -> Results:
        results: Results = self._session.run(wanted, given, options)
        return results

    def _run_typed(
        self, wanted: list[str], given: dict[str, Any], options: onnxruntime.RunOptions | None
    ) -> Results:
        """Run with dtypes that numpy itself does not have, which `InferenceSession.run` refuses."""
        values = {name: _ort_value(np.asarray(array)) for name, array in given.items()}
        return [
            _array(value) for value in self._session.run_with_ort_values(wanted, values, options)
        ]


def _interruptible(run: Callable[[onnxruntime.RunOptions], Results]) -> Results:
    """The results of `run` on a thread of its own, which Ctrl-C ends before its next node.

    Python handles signals in its main thread only, and not while that is in native code.  A body
    without nodes cannot be ended; after `PATIENCE` its thread is left alone, which reads nothing.
    """
    options = onnxruntime.RunOptions()
    running: Future[Results] = Future()

    def work() -> None:
        try:
            running.set_result(run(options))
        except BaseException as error:
            running.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    try:
        return running.result()
    except KeyboardInterrupt:
        options.terminate = True
        wait([running], PATIENCE)
        raise


def _ort_value(array: NDArray[Any]) -> Any:
    array = np.ascontiguousarray(array)
    if array.dtype.isbuiltin == 1:
        return onnxruntime.OrtValue.ortvalue_from_numpy(array)
    bits = array.view(f"u{array.dtype.itemsize}")
    element = helper.np_dtype_to_tensor_dtype(array.dtype)
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, element)


def _array(value: Any) -> NDArray[Any]:
    """A tensor as a new array, also for element types that onnxruntime cannot convert to numpy."""
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(value.element_type()))
    if dtype.isbuiltin == 1:
        result: NDArray[Any] = value.numpy()
        return result
    shape = tuple(value.shape())
    memory = (ctypes.c_char * (prod(shape) * dtype.itemsize)).from_address(value.data_ptr())
    return np.frombuffer(bytearray(memory), dtype).reshape(shape)
