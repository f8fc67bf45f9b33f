"""Sessions of onnxruntime, for the results that tests compare with."""

import onnx
import onnxruntime


def peer_session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """A session that says nothing but errors, of one thread: to start the others, which spin before
    they end, takes ten times the time of a session of one node (3.9 ms and 0.4)."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
