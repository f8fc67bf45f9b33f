"""The routes of the server: the Open Inference Protocol over HTTP, and metrics.

In: a repository and limits.  Out: an ASGI application.  What always holds: every response is JSON,
but for metrics and binary tensors; every error is `{"error": …}` with a status that says whose it
is; the application computes nothing that takes long on the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from time import perf_counter
from typing import Any, TypeAlias

import orjson
from numpy.typing import NDArray
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from graphflow.base.errors import GraphflowError
from graphflow.base.version import VERSION
from graphflow.serve.inference_requests import (
    InferenceRequest,
    deadline_seconds,
    read_inference_request,
)
from graphflow.serve.inference_responses import (
    InferenceResponse,
    inference_response,
    wanted_outputs,
)
from graphflow.serve.refused import RefusedRequest, malformed
from graphflow.serve.repository import Repository, model_metadata
from graphflow.serve.request_bodies import JSON_LENGTH, BodyReader, ClientGone, until_gone
from graphflow.serve.serve_limits import ServeLimits
from graphflow.serve.serve_metrics import ServeMetrics
from graphflow.serve.serving import Serving

EXTENSIONS = ["binary_tensor_data", "model_repository"]

_SMALL = 16 << 10
"""Up to so many bytes of JSON are read and written on the event loop, in some 100 microseconds; a
thread costs as much."""

_PART = 256 << 10
"""An answer is sent in parts of so many bytes, each when most of those before have been read."""

_LARGE_AT_A_TIME = 2
"""How many large texts are read or written at the same time: as objects they take twenty times the
memory."""

Handler: TypeAlias = "Callable[[Request], Awaitable[Response]]"


class _PlainJson(Response):
    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return orjson.dumps(content)


class _Answer(Response):
    """A response whose body is in several pieces of memory, which count as held until they are
    sent."""

    def __init__(self, answer: InferenceResponse, bodies: BodyReader) -> None:
        headers = {"content-length": str(answer.nbytes)}
        if answer.json_length is None:
            headers["content-type"] = "application/json"
        else:
            headers["content-type"] = "application/octet-stream"
            headers[JSON_LENGTH] = str(answer.json_length)
        self._answer, self._bodies = answer, bodies
        super().__init__(headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._bodies.hold_answer(self._answer.nbytes):
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            for part, is_last in self._parts():
                await send({"type": "http.response.body", "body": part, "more_body": not is_last})

    def _parts(self) -> Iterator[tuple[bytes, bool]]:
        """Copies of parts of the body: what a client has not read keeps no array."""
        if self._answer.nbytes <= _PART:
            yield b"".join(self._answer.pieces), True
            return
        left = self._answer.nbytes
        for piece in self._answer.pieces:
            for begin in range(0, len(piece), _PART):
                part = bytes(piece[begin : begin + _PART])
                left -= len(part)
                yield part, not left


class ServeRoutes:
    """The handlers of all routes."""

    def __init__(self, repository: Repository, limits: ServeLimits, metrics: ServeMetrics) -> None:
        self._repository = repository
        self._limits = limits
        self._metrics = metrics
        self._bodies = BodyReader(limits)
        self._large = asyncio.Semaphore(_LARGE_AT_A_TIME)
        metrics.held.set_function(lambda: self._bodies.held)

    def routes(self) -> list[Route]:
        """Each path with its handler."""
        model = "/v2/models/{model}"
        # Looked through from the first one on, and inferences are most of what comes.
        handlers: dict[tuple[str, str], Handler] = {
            ("POST", f"{model}/infer"): self.infer,
            ("POST", f"{model}/versions/{{version}}/infer"): self.infer,
            ("GET", "/v2"): self.server,
            ("GET", "/v2/health/live"): self.live,
            ("GET", "/v2/health/ready"): self.ready,
            ("POST", "/v2/repository/index"): self.index,
            ("POST", "/v2/repository/models/{model}/load"): self.load,
            ("POST", "/v2/repository/models/{model}/unload"): self.unload,
            ("GET", "/metrics"): self.metrics,
        }
        for front in (model, model + "/versions/{version}"):
            handlers["GET", front] = self.model
            handlers["GET", f"{front}/ready"] = self.model_ready
        return [
            Route(path, handler, methods=[method]) for (method, path), handler in handlers.items()
        ]

    async def live(self, _: Request) -> Response:
        """200 while the server answers."""
        return _PlainJson({"live": True})

    async def ready(self, _: Request) -> Response:
        """200 while every model is served."""
        return _readiness(self._repository.is_ready)

    async def server(self, _: Request) -> Response:
        """What the server is."""
        return _PlainJson({"name": "graphflow", "version": VERSION, "extensions": EXTENSIONS})

    async def model(self, request: Request) -> Response:
        """The metadata of a model."""
        serving = self._serving(request)
        versions = self._repository.versions(serving.file.name)
        return _PlainJson(model_metadata(serving, versions))

    async def model_ready(self, request: Request) -> Response:
        """200 for a model that is served; 404 for an unknown one."""
        try:
            serving = self._serving(request)
        except RefusedRequest as refused:
            if refused.status != HTTPStatus.SERVICE_UNAVAILABLE:
                raise
            return _readiness(False)
        return _readiness(not serving.is_closed)

    async def index(self, request: Request) -> Response:
        """The models that are there; of those that are served alone if the body says so."""
        only_ready = (await self._bodies.small_object(request)).get("ready") is True
        rows = await self._repository.index()
        return _PlainJson([row for row in rows if not only_ready or row["state"] == "READY"])

    async def load(self, request: Request) -> Response:
        """Load a model from its files."""
        if (await self._bodies.small_object(request)).get("parameters"):
            raise malformed(
                "a model is loaded from the server's own files; parameters are not supported"
            )
        await self._repository.load(request.path_params["model"])
        return _PlainJson({})

    async def unload(self, request: Request) -> Response:
        """Unload a model, when what it accepted is answered."""
        await self._bodies.small_object(request)
        await self._repository.unload(request.path_params["model"])
        return _PlainJson({})

    async def metrics(self, _: Request) -> Response:
        """The metrics of Prometheus."""
        return Response(self._metrics.text(), headers={"content-type": CONTENT_TYPE_LATEST})

    async def infer(self, request: Request) -> Response:
        """Run a model."""
        begin = perf_counter()
        async with self._bodies.read(request) as body:
            length = self._bodies.json_length(request, body)
            text = len(body) if length is None else length
            read = await self._if_large(text, read_inference_request, body, length)
            serving, results = await self._unless_gone(request, self._results(request, read))
            response = await self._response(serving, read, results)
        labels = (serving.file.name, serving.file.version)
        self._metrics.answered.labels(*labels, "200").inc()
        self._metrics.seconds.labels(*labels).observe(perf_counter() - begin)
        return response

    # Parts of an inference --------------------------------------------------------------------

    def _serving(self, request: Request) -> Serving:
        wanted = request.path_params
        return self._repository.serving(wanted["model"], wanted.get("version"))

    async def _results(
        self, request: Request, read: InferenceRequest
    ) -> tuple[Serving, dict[str, NDArray[Any]]]:
        """The outputs of a run, and what made them: what serves the model when the request is
        accepted."""
        seconds = deadline_seconds(read, self._limits.request_seconds)
        while True:
            serving = self._serving(request)
            serving.model.interface.require(read.inputs)
            wanted_outputs(read, serving.output_names)  # refused before it runs
            try:
                return serving, await serving.infer(read.inputs, seconds)
            except RefusedRequest as refused:
                # Another one may have taken its place in the same moment.
                if refused.why != "unloading" or self._serving(request) is serving:
                    raise

    async def _unless_gone(
        self,
        request: Request,
        results: Awaitable[tuple[Serving, dict[str, NDArray[Any]]]],
    ) -> tuple[Serving, dict[str, NDArray[Any]]]:
        """The results; ClientGone as soon as the client closes the connection."""
        work = asyncio.ensure_future(results)
        gone = asyncio.ensure_future(until_gone(request))
        try:
            await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                return work.result()
            raise ClientGone
        finally:
            work.cancel()
            gone.cancel()

    async def _if_large(self, nbytes: int, function: Callable[..., Any], *arguments: Any) -> Any:
        """What a function returns, called in a thread if its work is large."""
        if nbytes <= _SMALL:
            return function(*arguments)
        async with self._large:
            return await asyncio.to_thread(function, *arguments)

    async def _response(
        self, serving: Serving, read: InferenceRequest, results: Mapping[str, NDArray[Any]]
    ) -> Response:
        wanted = wanted_outputs(read, serving.output_names)
        about = {"model_name": serving.file.name, "model_version": serving.file.version}
        if read.id is not None:
            about["id"] = read.id
        plain = sum(results[output.name].nbytes for output in wanted if not output.is_binary)
        answer = await self._if_large(plain, inference_response, about, wanted, results)
        return _Answer(answer, self._bodies)


def _readiness(is_ready: bool) -> Response:
    return _PlainJson({"ready": is_ready}, 200 if is_ready else HTTPStatus.SERVICE_UNAVAILABLE)


def application(
    repository: Repository,
    limits: ServeLimits,
    metrics: ServeMetrics,
    background: Callable[[], Awaitable[None]] | None = None,
) -> Starlette:
    """The ASGI application; `background` runs beside it, from its start to its end."""

    async def refused(_: Request, error: Exception) -> Response:
        assert isinstance(error, RefusedRequest)
        metrics.refused.labels(error.why).inc()
        return _PlainJson({"error": str(error)}, error.status, error.headers)

    async def not_found(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return _PlainJson({"error": str(error.detail)}, error.status_code, error.headers)

    async def failed(_: Request, error: Exception) -> Response:
        """A model that cannot be loaded, or a folder that cannot be read."""
        metrics.refused.labels("cannot_load").inc()
        return _PlainJson({"error": str(error)}, HTTPStatus.BAD_REQUEST)

    async def broken(_: Request, __: Exception) -> Response:
        """What nobody expected; uvicorn logs it."""
        metrics.refused.labels("internal").inc()
        return _PlainJson({"error": "internal error"}, HTTPStatus.INTERNAL_SERVER_ERROR)

    async def gone(_: Request, __: Exception) -> Response:
        metrics.refused.labels("client_gone").inc()
        return Response(status_code=499)  # nobody reads it

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        task = None if background is None else asyncio.ensure_future(background())
        try:
            yield
        finally:
            if task is not None:
                task.cancel()
                await asyncio.wait((task,))
            await repository.close()

    return Starlette(
        routes=ServeRoutes(repository, limits, metrics).routes(),
        exception_handlers={
            RefusedRequest: refused,
            HTTPException: not_found,
            GraphflowError: failed,
            ClientGone: gone,
            Exception: broken,
        },
        lifespan=lifespan,
    )
