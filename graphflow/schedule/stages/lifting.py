"""Lifting marked stages out of a kernel: what they state, and the kernel without them.

In: a kernel whose parameters are copied into caches, or out of them, by blocks marked `preproc` and
`postproc`.  Out: for each such parameter the layout of its cache and what the stages state of the
padding; and the kernel that takes the parameter in this layout.

What always holds: a stage copies every element of its parameter to a position of its own, and
nothing but stages accesses the parameter or writes the cache of an input.  The stages are analysed
as they are, so it does not matter by which steps they were made.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal as Literals
from typing import cast

from msgspec import Struct

from graphflow import arith, tir
from graphflow.base.dtypes import FLOATING
from graphflow.base.errors import ScheduleError
from graphflow.base.fields import replace
from graphflow.layout import IndexMap, Layout, logical_vars, physical_vars, solve_indices
from graphflow.schedule.buffers.layouts import PadValue, padding_stage
from graphflow.schedule.conditions.conditions import simplify
from graphflow.schedule.facts.padding import padding_stages
from graphflow.schedule.places import obligations, places
from graphflow.schedule.steps.frame import Rewrite

MARKS = {True: tir.BlockNote.PREPROC, False: tir.BlockNote.POSTPROC}
"""The annotation of a stage, by whether its parameter is an input."""

CROP = re.compile(r"copy|crop(?:\((.*)\))?")
"""The texts of the mark of a stage that copies an output out, with what it says of the padding."""


class Marked(Struct, frozen=True):
    """What the marked stages of one parameter state.

    `cache` holds the parameter in `layout`.  `pad` is what the padding of the cache holds, for an
    input after its stages, for an output before it is cropped: None where nothing may access it,
    `Undef` where it holds anything.  `written` says that a stage stores `pad` (so it is for every
    padded input); otherwise the crop of an output claims it.
    """

    cache: tir.Buffer
    layout: Layout
    pad: tir.Literal | tir.Undef | None
    written: bool
    proofs: tuple[arith.Proof, ...]


def is_marked(func: tir.PrimFunc) -> bool:
    """Whether a kernel has stages that can be lifted out."""
    blocks = (stmt for stmt in func.body if isinstance(stmt, tir.Block))
    return any(block.note(mark) is not None for block in blocks for mark in MARKS.values())


def marked_stage(func: tir.PrimFunc, buffer: str) -> Marked | None:
    """What the marked stages of a parameter state; None where no marked stage copies it.

    UnliftableStages where the stages cannot be lifted: where they do more than copy and pad, do not
    reach every element, or something else accesses the parameter, and where no fact can state the
    padding.  Other ScheduleErrors where what they state is no statement, or is wrong.
    """
    param = places.find_buffer(func, buffer)
    try:
        return _marked(func, param)
    except (UnliftableStages, WrongMark):
        raise
    except ScheduleError as error:
        raise UnliftableStages(str(error)) from error


def _marked(func: tir.PrimFunc, param: tir.Buffer) -> Marked | None:
    reading = param in func.inputs
    blocks = _blocks(func, param, MARKS[reading])
    if not blocks:
        return None
    cache = _cache(func, param, blocks)
    _in_order(func, param, cache, blocks, reading)
    copies, pads = _statements(func, param, cache, blocks)
    layout, proofs = _layout(param, cache, copies)
    later = [part for part in pads if not all(part.before(copy) for copy in copies)]
    proofs = (*proofs, *(_away(part, layout, cache) for part in later))
    pad = _one_value(cache, pads)
    written = isinstance(pad, tir.Literal) and not all(part.assumed for part in pads)
    if not reading:
        crop = _cropped(blocks[0], param)
        if crop is not None and crop != pad and written:
            raise WrongMark(
                f"{blocks[0].name} says that {cache.name} is padded with {crop}, and a stage "
                f"writes {pad} there"
            )
        pad = pad if crop is None else crop
    return Marked(cache, layout, pad, written, proofs)


class UnliftableStages(ScheduleError):
    """Why the stages of a parameter stay in the kernel, which computes the same with them."""


class WrongMark(ScheduleError):
    """A mark states nothing, or the opposite of what a stage does."""


class _Part(Struct, frozen=True):
    """One case of a statement of a stage: `value` is stored at `place` for the points of `domain`.

    `number` counts the statements of the stages in program order.
    """

    number: int
    place: tuple[arith.IndexExpr, ...]
    value: tir.Expr
    domain: arith.Domain
    assumed: bool = False
    """Whether the stage assumes that the value is there, and does not store it."""

    def before(self, other: _Part) -> bool:
        """Whether this statement is done before the other one begins, which then overwrites it."""
        shared = {a.var for a in self.domain.axes} & {a.var for a in other.domain.axes}
        return self.number < other.number and not shared


def _blocks(func: tir.PrimFunc, param: tir.Buffer, mark: tir.BlockNote) -> list[tir.Block]:
    """The marked blocks that access the parameter; ScheduleError if others do besides."""
    found: list[tir.Block] = []
    other: list[tir.Stmt] = []
    for stmt in func.body:
        if any(a.buffer == param for a in tir.accesses((stmt,))):
            is_marked = isinstance(stmt, tir.Block) and stmt.note(mark) is not None
            (found if is_marked else other).append(stmt)  # type: ignore[arg-type]
    if found and other:
        raise ScheduleError(
            f"{param.name} is touched outside the stages marked {mark} too, so these cannot be "
            "lifted out"
        )
    return found


def _cache(func: tir.PrimFunc, param: tir.Buffer, blocks: list[tir.Block]) -> tir.Buffer:
    """The buffer that the stages copy the parameter into, or out of."""
    touched = {a.buffer for a in tir.accesses(tuple(blocks))} - {param}
    allocated = {s.buffer for s in func.body if isinstance(s, tir.Allocate)}
    if len(touched) != 1 or not touched <= allocated:
        names = ", ".join(sorted(b.name for b in touched)) or "nothing"
        raise ScheduleError(
            f"the stage {blocks[0].name} copies between {param.name} and {names}; it can be lifted "
            "out where that is one buffer, allocated outside all loops"
        )
    return touched.pop()


def _in_order(
    func: tir.PrimFunc, param: tir.Buffer, cache: tir.Buffer, blocks: list[tir.Block], reading: bool
) -> None:
    """ScheduleError unless an input is cached before anything reads the cache, and an output copied
    after everything wrote it."""
    stages = [*blocks, *padding_stages(func, cache)]
    own = [k for k, stmt in enumerate(func.body) if stmt in stages]
    if len(own) != len(stages):
        raise ScheduleError(f"a stage that pads {cache.name} stands inside another statement")
    for k, stmt in enumerate(func.body):
        if k in own:
            continue
        kinds = {a.kind for a in tir.accesses((stmt,)) if a.buffer == cache}
        if reading and kinds - {tir.AccessKind.READ}:
            raise ScheduleError(
                f"{cache.name} is written outside the stages that copy {param.name}"
            )
        if reading and kinds and k < max(own):
            raise ScheduleError(f"{cache.name} is read before {param.name} is copied into it")
        if not reading and kinds - {tir.AccessKind.READ} and k > func.body.index(blocks[0]):
            raise ScheduleError(f"{cache.name} is written after it is copied to {param.name}")


def _statements(
    func: tir.PrimFunc, param: tir.Buffer, cache: tir.Buffer, blocks: list[tir.Block]
) -> tuple[list[_Part], list[_Part]]:
    """The statements that copy between parameter and cache, and those that pad the cache."""
    copies: list[_Part] = []
    pads: list[_Part] = []
    stages = [*blocks, *padding_stages(func, cache)]
    for number, site in enumerate(tir.sites(tuple(stmt for stmt in func.body if stmt in stages))):
        stmt = site.stmt
        if isinstance(stmt, tir.Assume):
            pads += _assumed(number, site, cache)
        if not isinstance(stmt, tir.Store | tir.Reduce):
            continue
        for value, domain in _cases(stmt.value, site.domain):
            part = _Part(number, stmt.indices, value, domain)
            moved = isinstance(value, tir.Load) and {stmt.buffer, value.buffer} == {param, cache}
            if isinstance(stmt, tir.Reduce) or site.guards or not (moved or stmt.buffer == cache):
                raise ScheduleError(f"a stage does more than to copy and pad {param.name}")
            (copies if moved else pads).append(part)
    if not copies:
        raise ScheduleError(f"no statement copies between {param.name} and {cache.name}")
    return copies, pads


def _assumed(number: int, site: tir.Site, cache: tir.Buffer) -> Iterator[_Part]:
    """What a stage assumes to be in the cache, where that is one constant."""
    stmt = cast(tir.Assume, site.stmt)
    match stmt.claim:
        case tir.Comparison(
            op="eq", left=tir.Load(buffer=buffer) as load, right=tir.Literal() as value
        ):
            if buffer == cache and tir.is_predicate(stmt.unless) and not site.guards:
                where = site.domain.given(arith.negation(cast(arith.Predicate, stmt.unless)))
                yield _Part(number, load.indices, value, where, assumed=True)


def _cases(value: tir.Expr, domain: arith.Domain) -> Iterator[tuple[tir.Expr, arith.Domain]]:
    """The two sides of a select on an index condition, each with its points; else the value."""
    if isinstance(value, tir.Select) and tir.is_predicate(value.condition):
        yield value.if_true, domain.given(value.condition)  # type: ignore[arg-type]
        yield value.if_false, domain.given(arith.negation(value.condition))  # type: ignore[arg-type]
    else:
        yield value, domain


def _layout(
    param: tir.Buffer, cache: tir.Buffer, copies: list[_Part]
) -> tuple[Layout, tuple[arith.Proof, ...]]:
    """The layout that the copying statements give the cache, with proofs that it is one.

    The pieces of a loop that was cut copy by the same map.  ScheduleError where they are not proven
    to copy each element, to a position of its own.
    """
    copy, (element, place) = copies[0], _ends(copies[0], cache)
    names = logical_vars(len(param.shape))
    known = solve_indices(dict(zip(names, element, strict=True)), copy.domain.ranges())
    lost = [str(a.var) for a in copy.domain.axes if a.var not in known and not _once(a.var, copy)]
    if lost:
        raise ScheduleError(
            f"the loop {lost[0]} cannot be found again from the indices of {param.name}"
        )
    ranges = {v: (0, n - 1) for v, n in zip(names, param.shape, strict=True)}
    values = {a.var: known.get(a.var, a.start) for a in copy.domain.axes}
    outputs = tuple(arith.simplify_index(arith.substitute(e, values), ranges) for e in place)
    rename: dict[arith.Var, arith.IndexExpr] = {}

    def index_map(*inputs: arith.Var) -> tuple[arith.IndexExpr, ...]:
        rename.update(zip(names, inputs, strict=True))
        return tuple(arith.substitute(e, rename) for e in outputs)

    found = IndexMap.from_function(len(names), index_map, param.shape)
    layout = Layout.of(found, param.shape, cache.shape, cache.separators)
    held = f"{cache.name} holds {param.name} as {layout.describe()}"
    proofs = [
        obligations.require(found.check(param.shape), f"{cache.name} has a place for each element")
    ]
    images = []
    for one in copies:
        element, place = _ends(one, cache)
        there = layout.physical_index(element)
        same = arith.conjunction(arith.equal(a, b) for a, b in zip(there, place, strict=True))
        proofs.append(obligations.require(arith.prove(same, one.domain), held))
        images.append(arith.Image(one.domain, element))
    whole = arith.images_cover(images, arith.TRUE, names, param.shape)
    proofs.append(obligations.require(whole, f"every element of {param.name} is copied"))
    return layout, tuple(proofs)


def _ends(
    copy: _Part, cache: tir.Buffer
) -> tuple[tuple[arith.IndexExpr, ...], tuple[arith.IndexExpr, ...]]:
    """The element of the parameter and the position in the cache that a copy is between."""
    load = copy.value
    assert isinstance(load, tir.Load)
    ends = (load.indices, copy.place)
    return ends[::-1] if load.buffer == cache else ends


def _once(var: arith.Var, copy: _Part) -> bool:
    """Whether a loop around the copy runs once."""
    low, high = copy.domain.ranges()[var]
    return low is not None and low == high


def _away(part: _Part, layout: Layout, cache: tir.Buffer) -> arith.Proof:
    """A proof that a statement stores to padding alone."""
    padding = arith.negation(layout.is_logical(part.place))
    return obligations.require(
        arith.prove(padding, part.domain), f"what is stored to {cache.name} besides is its padding"
    )


def _one_value(cache: tir.Buffer, pads: list[_Part]) -> tir.Literal | tir.Undef | None:
    """The only constant stored to the padding; `Undef` if nothing else is, None without a store.

    Undefined elements may hold the constant as well, so one constant beside `undef` is enough.
    """
    values = dict.fromkeys(part.value for part in pads)
    odd = [v for v in values if not isinstance(v, tir.Literal | tir.Undef)]
    if odd:
        raise UnliftableStages(
            f"the padding of {cache.name} holds {tir.expr_text(odd[0])}, which is no constant and "
            "not undef; a graph cannot state that"
        )
    constants = [v for v in values if isinstance(v, tir.Literal)]
    if len(constants) > 1:
        stated = " and ".join(f"{v.value}" for v in constants)
        raise ScheduleError(
            f"the padding of {cache.name} holds {stated}; a variant states one value a buffer"
        )
    if constants:
        return constants[0]
    return tir.Undef(cache.dtype) if values else None


def _cropped(block: tir.Block, param: tir.Buffer) -> tir.Literal | tir.Undef | None:
    """What the mark of a crop claims of the padding; None where it claims nothing."""
    text = block.note(tir.BlockNote.POSTPROC) or ""
    match = CROP.fullmatch(text)
    if match is None:
        raise WrongMark(
            f'{block.name} is marked postproc="{text}"; it is "copy", "crop", or "crop(…)" '
            "with what the padding holds"
        )
    if match[1] is None:
        return None
    if match[1] == "undef":
        return tir.Undef(param.dtype)
    try:
        number = float(match[1])
    except ValueError:
        raise WrongMark(
            f'{block.name} is marked "{text}"; a crop states a number or undef'
        ) from None
    whole = param.dtype not in FLOATING
    return tir.Literal(int(number) if whole else number, param.dtype)


def state_padding(
    func: tir.PrimFunc, buffer: str, value: float | int | Literals["undef"]
) -> Rewrite:
    """`a = crop(c)` → the same, marked with what the padding of c then holds: a number, or "undef".

    The mark changes nothing in the kernel.  It is a claim, which is proven when the stage is
    lifted.  ScheduleError where no stage copies the buffer out.
    """
    param = places.find_buffer(func, buffer)
    blocks = _blocks(func, param, MARKS[False]) if param in func.outputs else []
    if len(blocks) != 1:
        raise ScheduleError(f"no stage of {func.name} is marked to copy an output {buffer} out")
    notes = {**dict(blocks[0].annotations), MARKS[False]: f"crop({value})"}
    marked = replace(blocks[0], annotations=tuple(notes.items()))
    _cropped(marked, param)
    new = places.exchange_at(func, blocks[0].name, (marked,))
    return Rewrite(new, (obligations.structural("a mark states something and does nothing"),))


# The kernel without its stages --------------------------------------------------------------------


def lift_stages(
    func: tir.PrimFunc, buffer: str, place: Layout | None = None, pad_value: PadValue = None
) -> Rewrite:
    """`c = pad(a); S[c]` → `S[a]`, and `S[c]; a = crop(c)` → `S[a]`, a in the layout of the cache.

    The interface changes: the caller must pass an input in this layout, padded as the stages padded
    it, which becomes an assumption; it gets an output in the cache's layout.  A number `pad_value`
    is written to the padding of an output by a stage at the end.  With `place`, that layout is used
    instead of the cache's: it must have a position for every element of the cache's box.
    ScheduleError where no marked stage copies the buffer, or where one does more than that.

    Makes the stage that states or writes the padding, if there is one, in the role `padding`.
    """
    found = marked_stage(func, buffer)
    if found is None:
        raise ScheduleError(f"no stage of {func.name} is marked to copy {buffer}")
    param, layout = places.find_buffer(func, buffer), found.layout
    target = layout if place is None else place
    proofs = found.proofs if target == layout else (*found.proofs, _contained(layout, target))
    new = replace(param, shape=target.physical_shape, separators=target.separators)
    reading = param in func.inputs
    gone = _blocks(func, param, MARKS[reading])
    stages = padding_stages(func, found.cache)
    replaced = reading or not found.written or isinstance(pad_value, int | float)
    if replaced:
        gone += stages
    kept = tuple(
        stmt
        for stmt in func.body
        if stmt not in gone and not (isinstance(stmt, tir.Allocate) and stmt.buffer == found.cache)
    )
    body = _exchanged(kept, found.cache, new, layout, target)
    params = tuple(replace(p, buffer=new) if p.buffer == param else p for p in func.params)
    bare = replace(func, params=params, body=body)
    stage: tuple[tir.Block, ...] = ()
    if reading:
        stage = padding_stage(bare, new, target, _pad_value(found.pad), False)
        body = (*stage, *body)
    elif isinstance(pad_value, int | float):
        stage = padding_stage(bare, new, target, pad_value, True)
        body = (*body, *stage)
    done = simplify(replace(bare, body=body)).func
    claim = f"{buffer} is touched by its stages alone, which copy it to {layout.describe()}"
    made = {"padding": tuple(block.name for block in stage)}
    return Rewrite(done, (*proofs, obligations.structural(claim)), made=made)


def _pad_value(pad: tir.Literal | tir.Undef | None) -> PadValue:
    match pad:
        case None:
            return None
        case tir.Undef():
            return "undef"
        case tir.Literal():
            return pad.value


def _contained(layout: Layout, target: Layout) -> arith.Proof:
    """A proof that every element of the cache's box has a position in the box of `target`."""
    names = physical_vars(len(layout.physical_shape))
    there = target.physical_index(layout.logical_index(names))
    ranges = {v: (0, n - 1) for v, n in zip(names, layout.physical_shape, strict=True)}
    there = tuple(arith.simplify_index(e, ranges) for e in there)
    inside = arith.conjunction(
        arith.within(e, 0, n) for e, n in zip(there, target.physical_shape, strict=True)
    )
    domain = arith.Domain()
    for var, extent in zip(names, layout.physical_shape, strict=True):
        domain = domain.inside(var, 0, extent)
    return obligations.require(
        arith.prove(inside, domain),
        f"{layout.describe()} lies inside {list(target.physical_shape)}",
    )


def _exchanged(
    body: tir.Body, cache: tir.Buffer, new: tir.Buffer, layout: Layout, target: Layout
) -> tir.Body:
    """`body` with the cache, in `layout`, replaced by the parameter `new`, in `target`."""

    def at(indices: tuple[arith.IndexExpr, ...]) -> tuple[arith.IndexExpr, ...]:
        if target == layout:
            return indices
        return target.physical_index(layout.logical_index(indices))

    def noted(stmt: tir.Stmt) -> tir.Stmt:
        if isinstance(stmt, tir.Block) and stmt.note(tir.BlockNote.PADDING_OF) == cache.name:
            notes = {**dict(stmt.annotations), tir.BlockNote.PADDING_OF: new.name}
            return replace(stmt, annotations=tuple(notes.items()))
        return stmt

    return tir.map_body(tir.redirect_accesses(body, cache, new, at), noted)
