"""Statements of a kernel, their time stamps, and the elements that they access, by hand."""

from graphflow.arith import IslBudget, Var, equal, less_than
from graphflow.effects import relations_of, statements_of
from graphflow.tir import If, Reduce, Store, parse

KERNEL = parse("""
@primfunc
def kernel(x: f32[8], y: out[f32[8]]):
    for i in serial(0, 8):
        t = alloc(f32[2])
        t[i % 2] = x[i]
        if i < 5:
            y[i] = t[i % 2]
        else:
            y[i] = select(i == 7, x[0], f32(1.0))
    for j in serial(0, 8):
        if data(x[j] < f32(0.0)):
            y[j] += x[j]
""")


def test_statements_have_paths_domains_and_time_stamps() -> None:
    model = statements_of(KERNEL)
    loop, _, store, branch, first, _ = model.statements[:6]
    i = Var("i")
    assert [str(part) for part in store.time] == ["0", "i", "2"]
    assert isinstance(branch.stmt, If) and branch.holds(first) and not branch.holds(store)
    assert first.domain.where == less_than(i, 5)
    assert model.at(first.path) is first and loop.stop == 6
    assert [s.number for s in model.inside(branch)] == [3, 4, 5]


def test_accesses_know_conditions_and_copies() -> None:
    model = statements_of(KERNEL)
    stored = next(a for a in model.accesses if str(a) == "t[i % 2]")
    assert stored.copies == (Var("i"),) and stored.access.certain
    other = next(a for a in model.accesses if str(a) == "x[0]")
    assert equal(Var("i"), 7) in getattr(other.domain.where, "members", ())
    update = next(a for a in model.accesses if isinstance(a.statement.stmt, Reduce) and a.access.op)
    assert not update.access.certain and str(update) == "y[j]"


def test_each_iteration_has_its_own_copy_of_what_it_allocates() -> None:
    relations = relations_of(KERNEL)
    write = next(
        a
        for a in relations.model.accesses
        if isinstance(a.statement.stmt, Store) and a.access.writes
    )
    with IslBudget() as context:
        elements = relations.elements(context, write)
        assert elements.is_injective()
    assert relations_of(KERNEL) is relations


def test_a_let_is_to_analyses_the_statements_that_it_performs() -> None:
    func = parse("""
        @primfunc
        def kernel(x: f32[8], y: out[f32[8]]):
            for i in serial(0, 8):
                with let(x[i] * f32(2.0)) as t:
                    y[i] = t[()]
        """)
    model = statements_of(func)
    titles = [statement.title for statement in model.statements[1:4]]
    assert titles == ["the let t", "the allocation of t", "the store to t[()]"]
    assert [(str(a), a.access.kind.value) for a in model.accesses] == [
        ("x[i]", "read"), ("t[]", "write"), ("t[]", "read"), ("y[i]", "write"),
    ]  # fmt: skip
    assert all(a.copies == (Var("i"),) for a in model.accesses[1:3])
