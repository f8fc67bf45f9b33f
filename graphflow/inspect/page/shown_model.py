"""A compiled model as the page shows it.

In: a `Compiled` model.  Out: a `ShownModel`.  What always holds: the same model and options give
the same values.
"""

from __future__ import annotations

from graphflow.base.run_profile import RunProfile
from graphflow.inspect.page.page_data import ShownModel
from graphflow.inspect.page.shown_imported import shown_imported, with_blocks
from graphflow.inspect.page.shown_kernels import shown_kernels
from graphflow.inspect.page.shown_layouts import ShownEdgeTypes
from graphflow.inspect.page.shown_memory import shown_memory
from graphflow.inspect.page.shown_program import shown_program
from graphflow.inspect.page.shown_run import shown_run
from graphflow.inspect.page.shown_tensors import shown_tensors
from graphflow.inspect.report_totals import summary_line
from graphflow.pipeline.compiler import Compiled


def shown_model(compiled: Compiled, profile: RunProfile | None = None) -> ShownModel:
    """Everything that the page shows, with the measured steps of a run if there are some."""
    edge_types = ShownEdgeTypes()
    tensors = shown_tensors(compiled, edge_types)
    program = shown_program(compiled, edge_types)
    imported = shown_imported(compiled, program.nodes, tensors)
    program = with_blocks(program, imported)
    return ShownModel(
        model=compiled.name,
        target=compiled.target.name,
        summary=summary_line(compiled),
        seconds=compiled.plan.seconds,
        layouts=edge_types.shown_layouts(),
        edge_types=edge_types.shown(),
        tensors=tensors,
        program=program,
        imported=imported,
        kernels=shown_kernels(compiled, program.nodes),
        memory=shown_memory(compiled),
        run=None if profile is None else shown_run(profile, program.nodes),
    )
