"""Tests of bindings: the same code runs with onnxruntime and with graphflow."""

from typing import Any

import numpy as np
import pytest

import graphflow as gf
from graphflow.base.errors import InvalidModel, UnsupportedOp
from support.models.session_models import MODULES, rows, session, small_net, where_nonzero

with_both = pytest.mark.parametrize("ort", MODULES, ids=lambda module: module.__name__)


def expected(x: Any) -> Any:
    return session(gf, small_net()).run(["y"], {"x": x})[0]


def same(found: Any, x: Any) -> bool:
    return np.allclose(found, expected(x), rtol=1e-5, atol=1e-6)


@with_both
def test_bound_inputs_are_read_and_bound_outputs_written_at_each_run(ort: Any) -> None:
    sess, x = session(ort, small_net()), rows(2)
    binding = sess.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_output("y")
    sess.run_with_iobinding(binding)
    (value,) = binding.get_outputs()
    (copied,) = binding.copy_outputs_to_cpu()
    first, place = expected(x), value.data_ptr()
    assert same(copied, x) and value.shape() == [2, 8]
    x += 1
    sess.run_with_iobinding(binding)
    assert binding.get_outputs()[0].data_ptr() == place
    assert same(value.numpy(), x) and np.allclose(copied, first, rtol=1e-5, atol=1e-6)


@with_both
def test_outputs_go_into_memory_of_the_caller(ort: Any) -> None:
    sess, x = session(ort, small_net()), rows(2)
    y, z = np.zeros((2, 8), np.float32), ort.OrtValue.ortvalue_from_shape_and_type((2, 8), "f")
    given = ort.OrtValue.ortvalue_from_numpy(x)
    binding = sess.io_binding()
    binding.bind_input("x", given.device_name(), 0, np.float32, given.shape(), given.data_ptr())
    binding.bind_output("y", "cpu", 0, np.float32, y.shape, y.__array_interface__["data"][0])
    binding.bind_ortvalue_output("z", z)
    binding.synchronize_inputs()
    sess.run_with_iobinding(binding)
    binding.synchronize_outputs()
    assert same(y, x) and np.array_equal(np.maximum(z.numpy(), 0), y)
    assert [v.data_ptr() for v in binding.get_outputs()][1] == z.data_ptr()
    given.update_inplace(x + 1)
    assert len(binding.get_outputs_as_ortvaluevector()) == 2
    sess.run_with_iobinding(binding)
    assert same(y, x)


@with_both
def test_an_output_is_the_input_of_the_next_run(ort: Any) -> None:
    """As keys and values of a decoder are, which are bound anew for each token."""
    sess, x = session(ort, small_net()), rows(2)
    binding = sess.io_binding()
    for _ in range(3):
        binding.bind_ortvalue_input("x", ort.OrtValue.ortvalue_from_numpy(x))
        binding.bind_output("y")
        sess.run_with_iobinding(binding)
        wanted, x = expected(x), np.ascontiguousarray(binding.get_outputs()[0].numpy()[:, :4])
        assert np.allclose(x, wanted[:, :4], rtol=1e-5, atol=1e-6)
    binding.clear_binding_outputs()
    with pytest.raises(Exception, match="output"):
        sess.run_with_iobinding(binding)
    binding.bind_output("z")
    binding.bind_cpu_input("x", rows(5))
    sess.run_with_iobinding(binding)
    assert binding.get_outputs()[0].shape() == [5, 8]
    binding.clear_binding_inputs()
    with pytest.raises(Exception, match="x"):
        sess.run_with_iobinding(binding)


def test_buffers_follow_shapes() -> None:
    """onnxruntime keeps a buffer that does not fit any more, and fails."""
    sess = session(gf, small_net())
    binding = sess.io_binding()
    binding.bind_output("y")
    for count in (2, 3, 3, 2):
        binding.bind_cpu_input("x", rows(count))
        sess.run_with_iobinding(binding)
        assert same(binding.get_outputs()[0].numpy(), rows(count))
    found = session(gf, where_nonzero())
    binding, x = found.io_binding(), np.float32([1, 0, 2, 0, 0, 0])
    binding.bind_cpu_input("x", x)
    binding.bind_output("i")
    for last in (0, 5, 6):
        x[5] = last
        found.run_with_iobinding(binding)
        assert binding.copy_outputs_to_cpu()[0].tolist() == [np.flatnonzero(x).tolist()]


def test_what_does_not_fit_is_refused_by_name() -> None:
    sess = session(gf, small_net())
    binding = sess.io_binding()
    for call in (lambda: binding.bind_cpu_input("q", rows(2)), lambda: binding.bind_output("q")):
        with pytest.raises(InvalidModel, match="q"):
            call()
    with pytest.raises(UnsupportedOp, match="'cuda'"):
        binding.bind_output("y", "cuda")
    with pytest.raises(ValueError, match="to be provided"):
        binding.bind_output("y", "cpu", 0, None, None, 64)
    binding.bind_output("y")
    with pytest.raises(InvalidModel, match="no run has made"):
        binding.get_outputs()
    with pytest.raises(ValueError, match="session that created it"):
        session(gf, where_nonzero()).run_with_iobinding(binding)
    binding.bind_cpu_input("x", rows(2))
    binding.bind_ortvalue_output("y", gf.OrtValue.ortvalue_from_shape_and_type((3, 8), np.float32))
    with pytest.raises(InvalidModel, match=r"float32\[3, 8\] for the output 'y'"):
        sess.run_with_iobinding(binding)
