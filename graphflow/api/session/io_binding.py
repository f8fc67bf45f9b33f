"""`IOBinding`: the inputs and outputs of many runs of a session, bound once.

In: arrays, addresses and `OrtValue`s by name.  Out: `OrtValue`s of the last run.  What always
holds: bound inputs are read where they are, at each run; outputs that have a buffer are written
into it; those that an input of the next run repeats, such as keys and values of a decoder, stay in
the memory of the program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from graphflow.api.session.ort_values import OrtValue, array_at, require_processor
from graphflow.api.session.session_options import RunOptions
from graphflow.base.declaration import NodeArg
from graphflow.base.errors import InvalidModel


class Bindable(Protocol):
    """The session of a binding."""

    def get_inputs(self) -> list[NodeArg]:
        """The inputs that each run gives."""

    def get_overridable_initializers(self) -> list[NodeArg]:
        """The inputs that a run may give in place of an initializer."""

    def known_outputs(self, names: Sequence[str] | None) -> list[str]:
        """The names of outputs; InvalidModel for a name that is none."""

    def results(
        self,
        feeds: Mapping[str, Any],
        out: Mapping[str, Any] | None,
        run_options: RunOptions | None,
        keeps_states: bool = False,
    ) -> dict[str, Any]:
        """All outputs by name; those that `out` names are written into its arrays.  With
        `keeps_states`, other ones may be `StateTensor`s."""


class IOBinding:
    """What `InferenceSession.io_binding` returns.

    An output that is bound without a buffer gets one at the first run, and keeps it while the
    shapes of inputs stay the same, as in onnxruntime.  With other shapes it gets a new one.  A
    state gets none; no later run changes what its `OrtValue` gives.
    """

    def __init__(self, session: Bindable) -> None:
        self._session = session
        self._inputs: dict[str, OrtValue] = {}
        self._outputs: dict[str, OrtValue | None] = {}
        """The value of each bound output; None before the first run, without a buffer."""
        self._own: set[str] = set()
        """The outputs that runs make the buffers of."""
        self._shapes: dict[str, Any] = {}
        """The shapes of inputs of the last run."""

    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        """Bind an input to an array, which each run reads where it is."""
        self.bind_ortvalue_input(name, OrtValue(np.asarray(arr_on_cpu)))

    def bind_input(
        self,
        name: str,
        device_type: str,
        device_id: int,
        element_type: Any,
        shape: Sequence[int],
        buffer_ptr: int,
    ) -> None:
        """Bind an input to the row-major tensor at an address, which the caller keeps alive."""
        require_processor(device_type)
        self.bind_ortvalue_input(name, OrtValue(array_at(buffer_ptr, element_type, shape)))

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Bind an input to a value."""
        session = self._session
        args = (*session.get_inputs(), *session.get_overridable_initializers())
        known = [arg.name for arg in args]
        if name not in known:
            raise InvalidModel(f"there is no input {name!r}; the inputs are {', '.join(known)}")
        self._inputs[name] = ortvalue

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Bind an output to the memory at an address, or to a buffer that the first run makes."""
        require_processor(device_type)
        if buffer_ptr is None:
            self._bind_output(name, None)
            return
        if element_type is None or shape is None:
            raise ValueError(
                "`element_type` and `shape` are to be provided if pre-allocated memory is provided"
            )
        self._bind_output(name, OrtValue(array_at(buffer_ptr, element_type, shape)))

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Bind an output to the memory of a value."""
        self._bind_output(name, ortvalue)

    def _bind_output(self, name: str, value: OrtValue | None) -> None:
        self._session.known_outputs([name])
        self._outputs[name] = value
        if value is None:
            self._own.add(name)
        else:
            self._own.discard(name)

    def synchronize_inputs(self) -> None:
        """Has no effect: all memory is the processor's."""

    def synchronize_outputs(self) -> None:
        """Has no effect: all memory is the processor's."""

    def get_outputs(self) -> list[OrtValue]:
        """The bound outputs of the last run, in the order of their binding; InvalidModel before the
        first run."""
        values = [value for value in self._outputs.values() if value is not None]
        if len(values) < len(self._outputs):
            raise InvalidModel("no run has made the bound outputs; call run_with_iobinding first")
        return values

    def get_outputs_as_ortvaluevector(self) -> list[OrtValue]:
        """The same."""
        return self.get_outputs()

    def copy_outputs_to_cpu(self) -> list[Any]:
        """Copies of the bound outputs, which later runs do not change."""
        return [_copy(value) for value in self.get_outputs()]

    def clear_binding_inputs(self) -> None:
        """Forget the inputs."""
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        """Forget the outputs."""
        self._outputs.clear()
        self._own.clear()

    def run(self, session: Bindable, run_options: RunOptions | None) -> None:
        """Run `session`, which has to be that of this binding."""
        if session is not self._session:
            raise ValueError("IOBinding must be used with the session that created it.")
        if not self._outputs:
            raise InvalidModel("no output is bound; call bind_output before run_with_iobinding")
        feeds = {name: bound.value for name, bound in self._inputs.items()}
        shapes = {name: getattr(value, "shape", None) for name, value in feeds.items()}
        keeps = shapes == self._shapes
        given: dict[str, NDArray[Any]] = {}
        kept: dict[str, NDArray[Any]] = {}
        for name, value in self._outputs.items():
            if value is not None and name not in self._own:
                given[name] = value.in_place()
            elif value is not None and value.is_state:
                # Unless the caller has it too, nothing needs a copy before it is written over.
                self._outputs[name] = None
            elif value is not None and keeps and value.is_tensor():
                kept[name] = value.numpy()
        results = self._run(feeds, given, kept, run_options)
        for name in self._own:
            if name not in kept or kept[name] is not results[name]:
                self._outputs[name] = OrtValue(results[name])
        self._shapes = shapes

    def _run(
        self,
        feeds: Mapping[str, Any],
        given: Mapping[str, NDArray[Any]],
        kept: Mapping[str, NDArray[Any]],
        run_options: RunOptions | None,
    ) -> dict[str, Any]:
        keeps_states = bool(self._own)
        if not kept:
            return self._session.results(feeds, given, run_options, keeps_states)
        try:
            return self._session.results(feeds, {**given, **kept}, run_options, keeps_states)
        except InvalidModel:
            # Values decided the shape of an output, which is another one now; an error of another
            # cause is raised again.
            return self._session.results(feeds, given, run_options, keeps_states)


def _copy(value: OrtValue) -> Any:
    if value.is_state:
        return value.numpy()
    return np.array(value.numpy()) if value.is_tensor() else value.value
