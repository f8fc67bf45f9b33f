"""A run of a model as the page shows it, with times that are made up."""

from graphflow.base.fields import replace
from graphflow.base.run_profile import OperatorTime, PeerProfile, RunProfile, StepProfile
from graphflow.inspect.page.page_data import ShownModel
from graphflow.inspect.page.shown_run import shown_run


def profiled(model: ShownModel) -> ShownModel:
    """The model with a run in which every step takes 10 µs, but the first one 1 ms."""
    nodes = [n for n in model.program.nodes if n.kernel is not None]
    steps = tuple(
        StepProfile(
            name=node.name,
            operators="+".join(node.operators),
            variant=node.variant,
            kernel=node.kernel or "",
            seconds=1e-5 if number else 1e-3,
            estimate=node.seconds,
            waiting=2e-6,
            imbalance=0.25,
            flops=1_000_000,
            bytes=4096,
            spans=((1e-4 * number, 1e-4 * number + 1e-5), None),
        )
        for number, node in enumerate(nodes)
    )
    between, around = 2e-5, 1e-5
    profile = RunProfile(
        model=model.model,
        target=model.target,
        threads=2,
        runs=10,
        seconds=sum(step.seconds for step in steps) + between + 2 * around,
        before=around,
        between=between,
        after=around,
        estimate=model.seconds,
        gflops=100.0,
        gbps=50.0,
        steps=steps,
        peer=PeerProfile("onnxruntime", 0.002, (OperatorTime("FusedConv", 0.002, 7),)),
    )
    return replace(model, run=shown_run(profile, model.program.nodes))
