"""What a server counts and measures, in the text format of Prometheus.

In: what happens to requests.  Out: the text of `/metrics`.  What always holds: names that clients
send are no label, so nobody can make the number of time series grow.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_TIMES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_MODEL = ("model", "version")


class ServeMetrics:
    """The time series of one server."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self.answered = Counter(
            "graphflow_requests",
            "Inference requests by the status of their response",
            (*_MODEL, "status"),
            registry=registry,
        )
        self.refused = Counter(
            "graphflow_refused", "Requests without a result, by reason", ("why",), registry=registry
        )
        self.seconds = Histogram(
            "graphflow_request_seconds",
            "From a request that was read to its response",
            _MODEL,
            buckets=_TIMES,
            registry=registry,
        )
        self.run_seconds = Histogram(
            "graphflow_run_seconds", "Runs of a model", _MODEL, buckets=_TIMES, registry=registry
        )
        self.run_rows = Histogram(
            "graphflow_run_rows",
            "Rows in a run, of all requests that share it",
            _MODEL,
            buckets=_ROWS,
            registry=registry,
        )
        self.waiting = Gauge(
            "graphflow_waiting_requests", "Requests that wait for a run", _MODEL, registry=registry
        )
        self.ready = Gauge(
            "graphflow_model_ready", "1 for a model that is served", _MODEL, registry=registry
        )
        self.changed = Gauge(
            "graphflow_model_file_changed",
            "1 if the file of a model is not the one any more that is served",
            _MODEL,
            registry=registry,
        )
        self.held = Gauge(
            "graphflow_held_bytes", "Bytes of the bodies of requests in work", registry=registry
        )

    def text(self) -> bytes:
        """All time series."""
        return generate_latest(self._registry)
