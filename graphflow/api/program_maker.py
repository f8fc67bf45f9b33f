"""Programs of one model are compiled, for the shapes and values of one run after another.

In: a request with open shapes, and what a run decides of it.  Out: a compiled model.  What always
holds: compilations share their worker processes, the contents of initializers and the kernels of
programs that are kept; a model that the caller changed meanwhile is refused.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphflow.api.compiled_model import Loaded, loaded
from graphflow.api.model import Model, Values
from graphflow.api.releasing import LARGE, contents_digest, parted_from_weights
from graphflow.base.arguments import Shapes
from graphflow.base.errors import InvalidModel
from graphflow.base.fields import replace
from graphflow.base.sizes import Size
from graphflow.frontends import ReadModel
from graphflow.graph import Array
from graphflow.pipeline.clearing import clear_caches
from graphflow.pipeline.compiler import Compiled, Shared, compile_graph
from graphflow.pipeline.request import CompileRequest
from graphflow.runtime import Initial


class ProgramMaker:
    """Compiles the model of a request, which has the shapes and values that are fixed."""

    def __init__(self, request: CompileRequest) -> None:
        self._request, self._shared = request, Shared()
        self._contents: dict[int, Array] = {}
        """The initializers by number that compilations share: those that are not large."""
        self._digests: dict[int, bytes] = {}
        """Those of the others, by number, where somebody else has the proto."""

    def made(
        self, shapes: Shapes, values: Values, sizes: tuple[Size, ...], earlier: Sequence[Model]
    ) -> Loaded:
        """The program for these shapes, values and sizes; it shares kernels and packed constants
        with those of the `earlier` ones that were compiled in this process.

        Errors are those of the compiler's stages; InvalidModel if a proto has other weights than
        before.
        """
        request = replace(
            self._request,
            input_shapes={**self._request.input_shapes, **shapes},
            input_values={**self._request.input_values, **values},
            sizes=sizes,
        )
        compiled_here = [model for model in earlier if isinstance(model, Loaded)]
        rest, weights = self._compiled(request, [model.compiled for model in compiled_here])
        return loaded(rest, compiled_here, weights)

    def forget(self) -> None:
        """Forget what compilations remember, as the next one will have mostly other questions."""
        clear_caches()

    def _compiled(
        self, request: CompileRequest, earlier: Sequence[Compiled]
    ) -> tuple[Compiled, Initial]:
        """The compiled model without its large constants, and the constants of its program."""
        contents = dict(self._contents)
        shared = replace(self._shared, contents=contents)
        rest, weights = parted_from_weights(
            compile_graph(request, shared, earlier), comparable=True
        )
        large = {number for number, array in contents.items() if array.nbytes >= LARGE}
        model = request.model
        if isinstance(model, ReadModel) and not model.is_own:
            for number in large - model.contents.keys():
                digest = contents_digest(contents[number])
                if self._digests.setdefault(number, digest) != digest:
                    name = model.proto.graph.initializer[number].name
                    raise InvalidModel(
                        f"initializer {name} of the given ModelProto has other contents than when "
                        "the first program was compiled, and a further one needs them; compile the "
                        "changed model by itself, or give graphflow.compile a copy of the proto"
                    )
        for number in contents.keys() - large:
            self._contents.setdefault(number, contents[number])
        return rest, weights
