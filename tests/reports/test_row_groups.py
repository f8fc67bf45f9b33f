"""Tests of the rows of the table: groups by block, and what is left out of them."""

from typing import Any

from graphflow.reports import ROW_FILTERS, DecisionRow, Decisions, reported_decisions, row_groups


def row(name: str, place: int | None, **known: Any) -> DecisionRow:
    plain: dict[str, Any] = {
        "operator": "Relu", "shape": "8", "where": "stored", "layout": "row-major", "padding": "",
        "variant": "v", "conversions": (), "seconds": 1e-6, "copies_seconds": 0.0, "bytes": 32,
        "is_foreign": False,
    }  # fmt: skip
    return DecisionRow(tensor=name, place=place, **{**plain, **known})


def table(rows: tuple[DecisionRow, ...], *blocks: tuple[tuple[int, ...], int]) -> Decisions:
    operators = tuple("ABAB"[place % 2] for place in range(12))
    return Decisions("title", rows, operators, blocks, "summary")


def groups(
    rows: tuple[DecisionRow, ...], *blocks: tuple[tuple[int, ...], int]
) -> list[tuple[Any, ...]]:
    found = row_groups(table(rows, *blocks), rows)
    return [(g.heading, "".join(row.tensor for row in g.rows), g.alike) for g in found]


def test_rows_without_blocks_are_one_group_in_the_order_of_the_program() -> None:
    rows = (row("w", None), row("b", 1), row("a", 0), row("c", 1))
    assert groups(rows) == [("", "abcw", ())]


def test_repetitions_that_are_alike_are_left_out_and_named() -> None:
    rows = (
        row("x", 0),
        *(row(name, 1 + place) for place, name in enumerate("abcdef")),
        row("y", 7),
    )
    assert groups(rows, ((1, 3, 5), 7)) == [
        ("", "x", ()),
        ("block 1, 1 of 3, 2.0 µs: B, A", "ab", (("c", "d"), ("e", "f"))),
        ("", "y", ()),
    ]


def test_every_difference_but_names_and_prices_is_shown() -> None:
    for known, differs in (
        ({"seconds": 2e-6}, False),
        ({"bytes": 64}, False),
        ({"conversions": ("converted to NHWC for r, 1.0 µs: x",)}, True),
        ({"layout": "NHWC"}, True), ({"padding": "pad(0) = undef"}, True), ({"shape": "9"}, True),
        ({"operator": "Neg"}, True), ({"variant": "w"}, True), ({"where": "register"}, True),
    ):  # fmt: skip
        rows = (row("a", 0), row("b", 1), row("c", 2, **known), row("d", 3))
        found = groups(rows, ((0, 2), 4))
        assert [names for _, names, _ in found] == (["ab", "cd"] if differs else ["ab"]), known
        if differs:
            assert found[1][0].startswith("block 1, 2 of 2, ") and ":" not in found[1][0]


def test_equal_rows_of_neighbouring_blocks_are_both_shown() -> None:
    rows = tuple(row(name, place) for place, name in enumerate("abcdefgh"))
    found = groups(rows, ((0, 2), 4), ((4, 6), 8))
    assert [(names, len(alike)) for _, names, alike in found] == [("ab", 1), ("ef", 1)]


def test_a_heading_counts_neighbouring_operators() -> None:
    rows = tuple(row(name, place) for place, name in enumerate("abc"))
    known = Decisions("t", rows, ("Conv", "Conv", "Add"), (((0,), 3),), "s")
    assert row_groups(known, rows)[0].heading == "block 1, 1 of 1, 3.0 µs: 2 Conv, Add"


def test_filters() -> None:
    rows = (
        row("a", 0, conversions=("moved",)),
        row("b", 1, padding="p"),
        row("c", 2, is_foreign=True),
    )
    found = {name: [r.tensor for r in rows if keeps(r)] for name, keeps in ROW_FILTERS.items()}
    assert found == {"conversions": ["a"], "padding": ["b"], "foreign": ["c"]}


def test_a_price_has_the_copies_and_nothing_has_none() -> None:
    assert row("a", 0, copies_seconds=2e-6).price == 3e-6
    assert row("a", 0, seconds=None, copies_seconds=2e-6).price == 2e-6
    assert row("a", 0, seconds=None).price is None


def edge(name: str, **known: Any) -> dict[str, Any]:
    plain = {
        "name": name, "operator": None, "producer": None, "logical_shape": [], "sizes": [],
        "where": "stored", "layout": "row-major", "bytes": 4, "variant": None, "regions": [],
        "conversions": [],
    }  # fmt: skip
    return {**plain, **known}


def test_a_copy_for_several_readers_is_one_line_and_has_one_price() -> None:
    made = {"kind": "convert", "edge_type": "NHWC", "bytes": 8, "seconds": 2e-6, "because": "why"}
    moved = {**made, "kind": "move", "seconds": 9e-6}
    nodes: list[dict[str, Any]] = [
        {"name": "x", "kind": "input", "operators": [], "seconds": None},
        {"name": "n", "kind": "kernel", "operators": ["A", "B"], "seconds": 1e-6},
    ]
    for node, tensor in zip(nodes, "xy", strict=True):
        node.update(inputs=[], outputs=[{"tensor": tensor}])
    counts = dict.fromkeys(
        ("edges", "conversions", "boundary_conversions", "inner_conversions", "fills",
         "cancelled_pairs", "refused_pairs", "vectorized_share", "foreign_nodes",
         "measured_prices", "estimated_prices"), 0,
    )  # fmt: skip
    report = {
        "model": "m", "target": "t", "pinned": [], "seconds": 1.0, "unpinned_seconds": None,
        "gap": 0, "whole": None, "sharing": None, "next_best": None, "summary": counts,
        "program": {"nodes": nodes, "blocks": []},
        "edges": [
            edge("x", logical_shape=[8, 3],
                 sizes=[{"axis": 0, "name": "batch", "least": 1, "most": 8}]),
            edge("r", operator="A", producer="n", where="register", layout=None),
            edge("y", operator="B", producer="n", conversions=[
                {**made, "consumer": "p"}, {**made, "consumer": "q"}, {**moved, "consumer": "p"}]),
        ],
    }  # fmt: skip
    x, inner, y = reported_decisions(report).rows
    assert (x.operator, x.shape, x.seconds, x.place) == ("input", "batch×3", None, 0)
    assert (inner.operator, inner.shape, inner.seconds, inner.place) == ("A", "scalar", None, 1)
    assert (y.operator, y.seconds, y.price) == ("B", 1e-6, 3e-6)
    assert y.conversions == ("converted to NHWC for p, q, 2.0 µs: why", "moved by p: why")
