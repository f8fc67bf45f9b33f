"""Random graphs of stages as kernels, random steps on them, and their bounds by enumeration."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from random import Random

from graphflow.arith import Domain, evaluate, holds
from graphflow.effects import KernelStatements, StatementAccess, statements_of
from graphflow.schedule import Schedule, compute_at, divide_loop, mult_loops, reorder_loops
from graphflow.tir import Block, Buffer, For, PrimFunc, loops_of, parse, walk

MOST_STAGES = 6

Env = tuple[tuple[str, int], ...]
"""Values of loop variables, from the outermost loop in."""


@dataclass
class _Stage:
    """A stage that is drawn: the extents of what it stores, and its reads as text."""

    name: str
    shape: list[int]
    reads: list[tuple[str, list[str]]] = field(default_factory=list)
    taps: int = 0
    """The extent of its loop over a reduction; 0 for none."""


def stage_graph(seed: int) -> PrimFunc:
    """A kernel of 2 to 6 stages in blocks `b0`, …: elementwise, stencils, strides, corners, sums.

    Stages read the input or stages before them; a stage may have several readers.
    """
    dice = Random(seed)
    rank = dice.choice((1, 1, 2))
    count = dice.randint(2, MOST_STAGES)
    # From the last stage back, so that extents follow from what is read.
    stages = [_Stage(f"S{k}", [0] * rank) for k in range(count)]
    source = _Stage("x", [1] * rank)
    outputs = [count - 1]
    for k in reversed(range(count)):
        stage = stages[k]
        if k == count - 1 or not any(stage.shape):
            stage.shape = [dice.randint(2, 7 if rank == 1 else 4) for _ in range(rank)]
            outputs += [] if k == count - 1 else [k]
        stage.taps = dice.choice((0, 0, 2, 3))
        # Mostly the stage before, so that there are chains.
        for number in range(dice.choice((1, 1, 2))):
            before = stages[:k]
            other = before[-1] if before and number == 0 else dice.choice((*before, source))
            stage.reads.append(_read(dice, stage, k, other, number == 0))
    return parse(_text(stages, source, [stages[k].name for k in outputs]))


def _read(dice: Random, stage: _Stage, k: int, other: _Stage, first: bool) -> tuple[str, list[str]]:
    indices = []
    for axis, extent in enumerate(stage.shape):
        step = dice.choice((1, 1, 1, 2))
        move = dice.choice((0, 0, 1, 2, 3))
        text, last = f"{step}*i{k}_{axis} + {move}", step * (extent - 1) + move
        if axis == 0 and stage.taps and first:
            text, last = f"{text} + r{k}", last + stage.taps - 1
        if dice.random() < 0.15:  # mirrored
            text = f"{last} - ({text})"
        other.shape[axis] = max(other.shape[axis], last + 1)
        indices.append(text)
    return other.name, indices


def _text(stages: list[_Stage], source: _Stage, outputs: list[str]) -> str:
    params = [f"x: i32{source.shape}"]
    params += [f"{s.name}: out[i32{s.shape}]" for s in stages if s.name in outputs]
    lines = ["@primfunc", f"def k({', '.join(params)}):"]
    lines += [f"    {s.name} = alloc(i32{s.shape})" for s in stages if s.name not in outputs]
    for k, stage in enumerate(stages):
        lines.append(f'    with block("b{k}"):')
        pad = "        "
        for axis, extent in enumerate(stage.shape):
            lines.append(f"{pad}for i{k}_{axis} in serial(0, {extent}):")
            pad += "    "
        own = f"{stage.name}[{', '.join(f'i{k}_{axis}' for axis in range(len(stage.shape)))}]"
        value = " + ".join(f"{name}[{', '.join(at)}]" for name, at in stage.reads)
        if stage.taps:
            lines += [f"{pad}{own} = i32({k})", f"{pad}for r{k} in serial(0, {stage.taps}):"]
            lines.append(f"{pad}    {own} += {value}")
        else:
            lines.append(f"{pad}{own} = {value} * i32(3) + i32({k})")
    return "\n".join(lines) + "\n"


def scheduled(func: PrimFunc, seed: int, steps: int = 7, attach: bool = True) -> Schedule:
    """The kernel after so many random steps; those that are refused stand among the refusals."""
    dice = Random(-seed - 1)
    s = Schedule.of(func)
    for number in range(steps):
        loops = [loop.var.name for loop in loops_of(s.func.body)]
        blocks = [b.name for b in walk(s.func.body) if isinstance(b, Block)]
        kind = dice.choice(("divide", "fuse", "reorder", *(["attach"] * 3 if attach else ())))
        loop = dice.choice(loops)
        if kind == "attach":
            block = dice.choice(blocks)
            behind = [var for var in loops if loops.index(var) > _last_loop(s.func, block)]
            s = s.attempt(compute_at, block, dice.choice(behind)) if behind else s
        elif kind == "divide":
            factor, tail = dice.choice((2, 3, 4)), dice.choice(("guard", "guard", "cut"))
            s = s.attempt(divide_loop, loop, factor, (f"{loop}o{number}", f"{loop}i{number}"), tail)
        else:
            pair = _nested(s.func, loop)
            if pair and kind == "fuse":
                s = s.attempt(mult_loops, *pair, f"f{number}")
            elif pair:
                s = s.attempt(reorder_loops, pair[::-1])
    return s


def _last_loop(func: PrimFunc, block: str) -> int:
    """The position of the last loop of a block among all loops."""
    order = [loop.var.name for loop in loops_of(func.body)]
    stage = next(b for b in walk(func.body) if isinstance(b, Block) and b.name == block)
    return order.index([*loops_of(stage.body)][-1].var.name)


def _nested(func: PrimFunc, name: str) -> tuple[str, str] | None:
    loop = next(loop for loop in loops_of(func.body) if loop.var.name == name)
    inner = loop.body[0] if len(loop.body) == 1 else None
    return (name, inner.var.name) if isinstance(inner, For) else None


@dataclass
class Enumerated:
    """What is needed, by running through all instances."""

    reads: dict[Buffer, set[tuple[Env, tuple[int, ...]]]]
    """For each buffer the elements that needed instances read, with the loops around the reads."""
    instances: dict[Buffer, set[Env]]
    """The needed instances of the writes of each buffer, by path and own loops."""


def enumerate_bounds(func: PrimFunc, attached: Mapping[str, str]) -> Enumerated:
    """The needed elements and instances, were each buffer computed at the loop given for it."""
    model = statements_of(func)
    found = Enumerated({}, {})
    writes = [a for a in model.accesses if a.access.writes]
    order: list[Buffer] = []
    while len(order) < len({w.access.buffer for w in writes}):
        rest = [w.access.buffer for w in reversed(writes) if w.access.buffer not in order]
        order.append(next(b for b in rest if _readers(model, b) <= {*order, b}))
    for buffer in order:
        needed: dict[tuple[int, ...], set[Env]] = {}
        for env, element in found.reads.get(buffer, ()):
            path = _cut(env, attached.get(buffer.name), model.of(buffer)[0].copies)
            needed.setdefault(element, set()).add(path)
        own = [w for w in writes if w.access.buffer == buffer]
        for write in own:
            for point in points_of(write.domain):
                element = tuple(evaluate(e, point) for e in write.access.indices)
                paths = {()} if buffer in func.outputs else needed.get(element, set())
                for path in paths:
                    if any(point.get(_var(point, n), v) != v for n, v in path):
                        continue
                    known = {n for n, _ in path}
                    env = (*path, *((v.name, x) for v, x in point.items() if v.name not in known))
                    found.instances.setdefault(buffer, set()).add(env)
                    for read in _reads(model, write):
                        if holds(read.domain.where, point):
                            at = tuple(evaluate(e, point) for e in read.access.indices)
                            found.reads.setdefault(read.access.buffer, set()).add((env, at))
    return found


def _var(point: Mapping, name: str):
    return next((v for v in point if v.name == name), None)


def _reads(model: KernelStatements, write: StatementAccess) -> Iterator[StatementAccess]:
    """The reads of the same statement; no stage has a condition on data."""
    for access in model.accesses:
        if not access.access.writes and access.statement is write.statement:
            yield access


def _readers(model: KernelStatements, buffer: Buffer) -> set[Buffer]:
    writes = [a for a in model.accesses if a.access.writes]
    return {w.access.buffer for w in writes for r in _reads(model, w) if r.access.buffer == buffer}


def _cut(env: Env, loop: str | None, copies) -> Env:
    names = [name for name, _ in env]
    if loop is not None:
        return env[: names.index(loop) + 1]
    return env[: max((names.index(v.name) for v in copies), default=-1) + 1]


def points_of(domain: Domain) -> Iterator[dict]:
    """The points of a domain, one after the other."""

    def below(place: int, point: dict) -> Iterator[dict]:
        if place == len(domain.axes):
            if holds(domain.where, point):
                yield dict(point)
            return
        axis = domain.axes[place]
        for value in range(evaluate(axis.start, point), evaluate(axis.stop, point)):
            yield from below(place + 1, {**point, axis.var: value})

    yield from below(0, {})
