"""Tests of the page in a browser: opened from disk, clicked through, and read."""

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest
from msgspec import to_builtins

import graphflow as gf
from graphflow.base.fields import replace
from graphflow.base.options import Options
from graphflow.base.processors import PROCESSORS
from graphflow.inspect import changes, difference_page, page_of, report
from graphflow.inspect.page import page_html
from graphflow.inspect.page.html_page import ASSETS, LAYOUT_LIBRARY, SCRIPTS
from graphflow.inspect.page.page_data import ShownArrow, ShownBlock, ShownGraph, ShownModel
from graphflow.models import ModelBuilder
from graphflow.models.zoo import zoo_model
from graphflow.pipeline.compiler import compile_graph
from graphflow.pipeline.request import CompileRequest
from support.models.compiled_networks import compiled_network
from support.models.profiled import profiled
from support.models.shown_networks import shown
from support.shown_pages import page_data

CONCAT = "probe:concat:58"

HOSTILE = '</script><img src=x onerror="document.title=1"><script>document.title=2</script>'
"""A name that would be markup wherever it is not text."""


@cache
def concat_model() -> ShownModel:
    """A network with a conversion, with a measured run."""
    return profiled(shown(CONCAT))


@pytest.fixture(scope="module")
def concat_page(open_page: Any) -> Any:
    return open_page(page_html(concat_model()))


@pytest.fixture
def concat(concat_page: Any) -> Iterator[Any]:
    """The page of `concat_model`, at its beginning; nothing may go wrong in it."""
    concat_page.turn_back()
    yield concat_page
    assert concat_page.problems == []


def hostile_model() -> onnx.ModelProto:
    """A kernel, its output and its weight with names that are markup."""
    build = ModelBuilder(seed=1)
    build.output(build.relu(build.conv(build.input("x", (1, 3, 8, 8)), 5, 3)))
    model = build.model()
    model.graph.name = HOSTILE
    for node in model.graph.node:
        node.name = HOSTILE + node.op_type
        for names in (node.input, node.output):
            for k, name in enumerate(names):
                names[k] = name if name == "x" else HOSTILE + name
    for value in (*model.graph.output, *model.graph.initializer):
        value.name = HOSTILE + value.name
    del model.graph.value_info[:]
    return model


def test_the_page_has_the_data_and_no_reference_to_another_file() -> None:
    page = page_of(compiled_network(CONCAT))
    assert page_data(page) == json.loads(json.dumps(to_builtins(shown(CONCAT))))
    assert page == page_html(shown(CONCAT))
    assert not re.findall(r"<(?:link|img|iframe)|\b(?:src|srcset)=|@import|url\((?!#)", page)
    assert "Eclipse Public License" in page


def test_every_script_beside_the_page_is_in_it() -> None:
    scripts = {path.name for path in ASSETS.glob("*.js")}
    assert scripts == {*SCRIPTS, LAYOUT_LIBRARY}
    page = page_html(shown(CONCAT))
    for name in SCRIPTS:
        assert (ASSETS / name).read_text(encoding="utf-8") in page


def test_the_overview_says_where_the_time_goes(concat: Any) -> None:
    text = concat.panel("overview")
    model = concat_model()
    assert model.model in text and model.target in text
    assert "2 kernels only move or fill elements" in text
    assert "Conversion: NCHW16c → NCHW" in text
    assert concat.items() == len(model.program.nodes)
    assert concat.page.locator(".edge").count() == len(model.program.arrows)
    # The page itself, and the worker that it starts from its own text.
    assert {url.split(":")[0] for url in concat.requests} == {"file", "blob"}


def test_a_kernel_shows_its_variants_its_price_and_its_text(concat: Any) -> None:
    node = next(n for n in concat_model().program.nodes if n.name == "conv_3_node")
    concat.node("conv_3_node").click()
    text = concat.panel("node")
    assert f"Variant {node.variant}" in text and "of a run" in text
    for other in node.others:
        assert other.name in text
    for title, reason in node.refused:
        assert title in text and reason in text
    assert node.kernel is not None
    kernel = concat_model().kernels[node.kernel]
    shown_text = concat.page.locator("#panel pre")
    assert shown_text.inner_text() == kernel.lowered.strip()
    concat.page.click("#panel button[data-text=schedule]")
    assert shown_text.inner_text() == kernel.schedule.strip()
    concat.page.click("#panel button[data-text=definition]")
    assert shown_text.inner_text() == kernel.definition.strip()


def test_a_kernel_shows_what_each_step_changed_and_its_code(concat: Any) -> None:
    model = concat_model()
    kernel = next(model.kernels[n.kernel] for n in model.program.nodes if n.name == "conv_3_node")
    assert kernel.steps
    concat.node("conv_3_node").click()
    concat.page.click("#panel button[data-text=steps]")
    text = concat.page.locator("#panel pre")
    chooser = concat.page.get_by_label("Step", exact=True)
    assert chooser.locator("option").count() == len(kernel.steps)
    for number, step in enumerate(kernel.steps):
        chosen = chooser.locator("option:checked").inner_text()
        assert chosen == f"{number + 1}. {step.step}"
        panel = concat.panel("node")
        assert all(proof in panel for proof in step.proofs)
        added = [line for edit in step.edits for line in edit.added]
        assert [s[2:] for s in text.locator(".added").all_text_contents()] == added
        removed = sum(edit.removed for edit in step.edits)
        assert text.locator(".removed").count() == removed
        assert f"removes {removed} lines (−), adds {len(added)} (+)" in panel or not step.edits
        if number + 1 < len(kernel.steps):
            concat.page.get_by_label("Next step").click()
    assert concat.page.get_by_label("Next step").is_disabled()
    kept = [s[2:] for s in text.locator(".kept, .added").all_text_contents()]
    assert kept == kernel.lowered.splitlines()
    for name in ("ir", "assembly"):
        concat.page.click(f"#panel button[data-text={name}]")
        assert text.text_content() == getattr(kernel, name).strip()


def test_the_run_shows_each_step_beside_its_estimate(concat: Any) -> None:
    model = concat_model()
    assert model.run is not None
    concat.page.click("#show-run")
    text = concat.panel("run")
    assert "1.08 ms a run" in text
    steps = concat.page.locator("#panel .step-bars li")
    listed = [step.get_attribute("data-step") for step in steps.all()]
    names = [step.name for step in model.run.profile.steps]
    assert listed[0] == names[0] and sorted(filter(None, listed)) == sorted(names)
    concat.page.click("[data-order=order]")
    assert [step.get_attribute("data-step") for step in steps.all()] == names
    widths = steps.locator(".measured").evaluate_all("all => all.map(e => e.style.width)")
    assert widths[0] == "100%" and widths[1:] == ["1%"] * (len(names) - 1)
    assert concat.page.locator(".timeline .part").count() == len(names)
    steps.nth(1).locator("a").click()
    panel = concat.panel("node")
    assert names[1] in panel and "Threads wait 2.0 µs" in panel
    assert "100 GFLOP/s of 100" in panel and "caller" in panel


def test_the_run_says_what_is_not_in_its_steps_and_what_onnxruntime_takes(concat: Any) -> None:
    run = concat_model().run
    assert run is not None
    concat.page.click("#show-run")
    concat.panel("run")
    rows = [row.inner_text().split("\t") for row in concat.page.locator("#panel tr").all()]
    found = {row[0].strip(): [cell.strip() for cell in row[1:]] for row in rows}
    assert found[f"{len(run.profile.steps)} steps"] == ["1.04 ms", "96 %"]
    assert found["before them: the call, waking threads"] == ["10 µs", "0.9 %"]
    assert found["between them: barriers"] == ["20 µs", "1.9 %"]
    assert found["after them: the return, checks"] == ["10 µs", "0.9 %"]
    assert found["FusedConv"] == ["2.00 ms", "100 %", "7"]
    for time in run.operators:
        assert found[time.operator][2] == str(time.count)
    # The bars of both tables are on one scale, that of the slowest operator, FusedConv.
    widths = concat.page.locator("#panel td .bar > div").evaluate_all(
        "all => all.map(e => parseFloat(e.style.width))"
    )
    times = [*(t.seconds for t in run.operators), 0.002]
    assert widths == pytest.approx([100 * seconds / 0.002 for seconds in times], abs=0.01)


def test_slow_nodes_are_those_that_were_measured_to_be(concat: Any) -> None:
    model = concat_model()
    concat.page.click("[data-filter=slow]")
    assert concat.page.locator("#found").inner_text() == "1"
    assert model.run is not None
    concat.page.press("#search", "Enter")
    assert model.run.profile.steps[0].name in concat.panel("node")


def test_a_conversion_is_red_and_says_why_it_stands(concat: Any) -> None:
    made = next(n for n in concat_model().program.nodes if n.kind == "convert")
    box = concat.node(made.name)
    assert "conversion" in box.get_attribute("class")
    assert re.search(r"µs · .* %", box.text_content())
    box.click()
    assert made.because[1:] in concat.panel("node")


def test_an_edge_shows_shapes_padding_readers_and_proofs(concat: Any) -> None:
    concat.page.locator('.edge[data-tensor="conv_3"] .wide').first.click(force=True)
    text = concat.panel("tensor")
    tensor = next(t for t in concat_model().tensors if t.name == "conv_3")
    for said in ("conv_3", "NCHW16c", "1×58×28×28", "1×4×28×28×16", "pad(1)", "undef"):
        assert said in text
    assert tensor.decided_by in text
    for use in tensor.readings:
        assert f"demand on the padding: {use.demand}" in text
        for proof in use.proofs:
            assert f"Proof: {proof}" in text
    for other in tensor.others:
        assert other.name in text
    concat.page.click("#panel a:has-text('conv_3_node') >> nth=0")
    assert "conv_3_node" in concat.panel("node")


def test_cancelled_pairs_have_their_proofs(concat: Any) -> None:
    model = concat_model()
    tensor = next(t for t in model.tensors if any(p.reason is None for p in t.pairs))
    concat.page.locator(f'[data-tensor="{tensor.name}"] .strip').first.click()
    text = concat.panel("tensor")
    assert "were cancelled" in text
    for pair in tensor.pairs:
        for proof in pair.proofs:
            assert f"Proof: {proof}" in text


def test_an_edge_shows_what_a_pin_costs_and_changes(concat: Any) -> None:
    tensor = next(t for t in concat_model().tensors if t.name == "conv_3")
    concat.page.locator('[data-tensor="conv_3"] .strip').first.click()
    first, *_ = tensor.pins
    assert first.seconds is not None and first.layout == "NHWC"
    pin = concat.page.locator('[data-pin="NHWC"]')
    more = f"a run takes {first.seconds * 1e6:.2f} µs more; changed with it: 1 kernel"
    assert more in pin.inner_text()
    pin.locator("summary").click()
    text = pin.inner_text()
    for change in first.changes:
        assert change.name in text and (change.before or "–") in text
        assert (change.after or "–") in text
    pin.locator("a:has-text('(conv_3_node)')").click()
    assert "conv_3_node" in concat.panel("node")


def place_text(layout: Any, tensor: Any, logical: tuple[int, ...]) -> str:
    """What the page has to say about an element."""
    physical = [int(str(index)) for index in layout.physical_index(logical)]
    flat = int(np.ravel_multi_index(physical, layout.physical_shape))
    byte, (vector, lane) = flat * tensor.element_bytes, divmod(flat, tensor.lanes)
    return (
        f"logical {[*logical]} lies at physical {physical}: element {flat} of the box, "
        f"byte {byte}, lane {lane} of vector {vector}"
    )


def test_the_box_marks_the_element_under_the_mouse_in_both_pictures(concat: Any) -> None:
    model = concat_model()
    layout = compiled_network(CONCAT).plan.edges["conv_3"].edge_type.layout
    tensor = next(t for t in model.tensors if t.name == "conv_3")
    concat.page.locator('[data-tensor="conv_3"] .strip').first.click()
    place = concat.page.locator("[data-role=place]")
    assert place.inner_text() == place_text(layout, tensor, (0, 0, 0, 0))
    for side in ("Logical", "Physical"):
        # Squares of 15 pixels: W across and C down, or 16 lanes across and the blocks down.
        canvas = concat.page.locator(f"[data-side={side}] canvas")
        canvas.hover(position={"x": 3 * (16 if side == "Physical" else 15) + 4, "y": 20})
        logical = (0, 1, 0, 3) if side == "Logical" else (0, 19, 0, 3)
        assert place.inner_text() == place_text(layout, tensor, logical)
    for name, value in (("Logical C", "57"), ("Logical H", "5"), ("Logical W", "9")):
        concat.page.get_by_label(name).fill(value)
        concat.page.get_by_label(name).press("Tab")
    assert place.inner_text() == place_text(layout, tensor, (0, 57, 5, 9))
    # The position in the last block behind that of channel 57.
    canvas = concat.page.locator("[data-side=Physical] canvas")
    canvas.press("ArrowRight")
    assert place.inner_text().startswith("padding pad(1), which holds undef, lies at physical")


def test_the_model_as_imported_leads_to_the_program_and_back(concat: Any) -> None:
    model = concat_model()
    concat.page.click("[data-graph=imported]")
    concat.has_items(len(model.imported.nodes))
    relu = next(node for node in model.imported.nodes if node.operators == ("Relu",))
    concat.node(relu.name).click()
    text = concat.panel("node")
    assert "Operator of the model as imported" in text and "Runs as\n\nConv + Relu" in text
    concat.page.click("#panel a:has-text('Conv + Relu')")
    concat.has_items(len(model.program.nodes))
    assert relu.name in concat.panel("node")
    concat.page.click("#panel a:text-is('Relu')")
    concat.opened("document.querySelector('#panel .kind')?.textContent.startsWith('Operator')")
    assert concat.page.get_attribute("[data-graph=imported]", "aria-pressed") == "true"


def test_both_graphs_beside_each_other_mark_what_belongs_together(concat: Any) -> None:
    model = concat_model()
    concat.page.click("[data-graph=both]")
    concat.has_items(len(model.program.nodes) + len(model.imported.nodes))
    boxes = [view.bounding_box() for view in concat.page.locator(".graph-view").all()]
    assert boxes[0]["x"] + boxes[0]["width"] <= boxes[1]["x"] + 1 and boxes[1]["width"] > 300
    twins = concat.page.locator("[data-view=imported] .item.twin")
    fused = next(n for n in model.program.nodes if n.operators == ("Conv", "Relu"))
    concat.page.click(f'[data-view=program] .item[aria-label*="{fused.name}"]')
    operators = [node.name for node in model.imported.nodes if node.name in fused.origins]
    labels = [twin.get_attribute("aria-label") for twin in twins.all()]
    assert len(labels) == 2 and all(map(str.endswith, labels, operators))
    twins.last.click()
    back = concat.page.locator("[data-view=program] .item.twin")
    assert back.count() == 1 and fused.name in back.get_attribute("aria-label")
    assert twins.count() == 0 and concat.page.locator(".item.chosen").count() == 1
    concat.page.click("#panel a:has-text('Conv + Relu')")  # both stay
    assert concat.page.get_attribute("[data-graph=both]", "aria-pressed") == "true"
    assert fused.name in concat.panel("node")


def test_a_large_graph_begins_folded(open_page: Any) -> None:
    model = long_model(shown(CONCAT), 15)
    opened = open_page(page_html(model))
    assert len(model.program.nodes) > 60 and opened.items() < 10
    assert "nodes × 15" in opened.page.locator(".item.block").text_content()
    assert opened.problems == []


def test_the_keyboard_goes_through_the_graph(concat: Any) -> None:
    model = concat_model()
    concat.page.focus("#picture")
    for node in model.program.nodes[:3]:
        concat.page.keyboard.press("ArrowDown")
        assert node.name in concat.panel("node")
    concat.page.keyboard.press("ArrowUp")
    assert model.program.nodes[1].name in concat.panel("node")
    concat.page.keyboard.press("Enter")
    assert concat.page.evaluate("document.activeElement.id") == "panel"
    concat.page.keyboard.press("/")
    assert concat.page.evaluate("document.activeElement.id") == "search"


def test_all_that_can_be_clicked_is_reached_by_the_tab_key(concat: Any) -> None:
    concat.page.focus("#search")
    reached = []
    for _ in range(60):
        concat.page.keyboard.press("Tab")
        reached.append(
            concat.page.evaluate(
                "(e => e.id || e.dataset.graph || e.dataset.filter || e.className?.baseVal"
                " || e.className || e.tagName)(document.activeElement)"
            )
        )
    wanted = ["program", "imported", "both", "conversions", "padding", "slow", "fold-all"]
    wanted += ["unfold-all", "zoom-out", "zoom-in", "zoom-fit", "show-memory", "show-run"]
    assert reached[: len(wanted)] == wanted
    assert "picture" in reached and "link" in reached


def test_names_of_models_are_text_and_never_markup(open_page: Any) -> None:
    exe = gf.compile(hostile_model(), threads=1)
    opened = open_page(exe.page())
    assert opened.page.title() == f"{exe.compiled.name} – graphflow"
    assert opened.page.locator("img").count() == 0
    opened.page.locator(".item.kernel").first.click()
    assert HOSTILE in opened.panel("node")
    opened.page.locator(".item.kernel .strip").first.click()
    assert HOSTILE in opened.panel("tensor")
    opened.page.fill("#search", HOSTILE[:20])
    opened.page.press("#search", "Enter")
    assert HOSTILE in opened.panel("node")
    assert opened.page.title() == f"{exe.compiled.name} – graphflow"
    assert opened.page.locator("img").count() == 0 and opened.problems == []


def test_two_plans_are_compared_on_the_graph(open_page: Any) -> None:
    request = CompileRequest(
        zoo_model(CONCAT, 0),
        target=PROCESSORS["broadwell-guest"],
        options=Options(threads=1, winograd=False),
    )
    before, after = report(compile_graph(request)), report(compiled_network(CONCAT))
    prices = [{"name": "conv_2_node", "seconds": s} for s in (2e-4, 1.5e-4)]
    before, after = (
        {**one, "program": {"nodes": [node]}}
        for one, node in zip((before, after), prices, strict=True)
    )
    opened = open_page(difference_page(before, after))
    text = opened.panel("difference")
    found = changes(before, after)
    assert f"{len({change.name for change in found if change.kind != 'summary'})} tensors" in text
    less = (before["seconds"] - after["seconds"]) * 1e6
    assert f"a run, {less:.0f} µs less than the first" in text
    assert "Written by conv_3_node" in text
    opened.page.click("#panel summary:has-text('constants differ')")
    text = opened.panel("difference")
    for change in found:
        assert change.name in text
        if change.name != "seconds":  # 728 µs, not 0.000728
            assert (change.before or "–") in text and (change.after or "–") in text
    opened.page.click("[data-filter=changed]")
    assert int(opened.page.locator("#found").inner_text()) > 0
    opened.page.press("#search", "Enter")
    assert "Changes" in opened.panel("node")
    opened.page.press("body", "Escape")
    opened.page.click("#panel tr:has-text('−50 µs') a")
    assert "150 µs" in opened.panel("node")
    assert not opened.page.locator("#graphs").is_visible()
    assert opened.problems == []


COLORS = """selector => {
  const element = document.querySelector(selector), style = getComputedStyle(element);
  const solid = (node) => {
    const color = getComputedStyle(node).backgroundColor;
    return color === "rgba(0, 0, 0, 0)" && node.parentElement ? solid(node.parentElement) : color;
  };
  return [style.color, solid(element)];
}"""
"""The colour of a text, and what it stands on."""


def brightness(color: str) -> float:
    """The relative luminance of a colour, as WCAG 2 defines it."""
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4
        for c in (int(number) / 255 for number in re.findall(r"\d+", color)[:3])
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(concat: Any, selector: str) -> float:
    text, ground = map(brightness, concat.page.evaluate(COLORS, selector))
    return (max(text, ground) + 0.05) / (min(text, ground) + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_follows_the_scheme_of_the_reader(concat: Any, scheme: str) -> None:
    concat.page.emulate_media(color_scheme=scheme)
    _, ground = concat.page.evaluate(COLORS, "body")
    assert (brightness(ground) > 0.5) == (scheme == "light")
    concat.page.locator('[data-tensor="conv_3"] .strip').first.click()
    selectors = ["h1", "#target-name", "#search", "#fold-all", "#legend li", "#panel h2"]
    selectors += ["#panel h3", "#panel .kind", "#panel .proof", "#panel .warning", "#panel .link"]
    selectors += ["#panel .chip", "#panel .chip.neutral", "#panel th", "[data-graph=program]"]
    low = {s: contrast(concat, s) for s in selectors if contrast(concat, s) < 4.5}
    assert low == {}


def test_a_canvas_follows_a_change_of_the_scheme(concat: Any) -> None:
    concat.page.locator('[data-tensor="conv_3"] .strip').first.click()
    canvas = "document.querySelector('[data-side=Physical] canvas').toDataURL()"
    light = concat.page.evaluate(canvas)
    concat.page.emulate_media(color_scheme="dark")
    concat.opened(f"{canvas} !== {light!r}")
    concat.page.emulate_media(color_scheme="light")
    concat.opened(f"{canvas} === {light!r}")


def test_a_printed_page_has_the_graph_and_the_whole_panel_in_dark_on_white(concat: Any) -> None:
    concat.node("conv_3_node").click()
    concat.page.emulate_media(media="print", color_scheme="dark")
    concat.page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    for hidden in (".tools", ".minimap >> nth=0"):
        assert concat.page.locator(hidden).is_hidden()
    for selector in ("#panel h2", "#panel p", "#panel pre", "#legend li", "h1"):
        text, ground = concat.page.evaluate(COLORS, selector)
        assert brightness(ground) > 0.9 > 0.3 > brightness(text)
    for cut in ("#panel", "#panel pre", "body"):
        assert concat.page.locator(cut).evaluate("e => e.scrollHeight <= e.clientHeight + 2"), cut
    # The picture is as wide as the paper and lies whole above the panel.
    picture, panel = (concat.page.locator(s).bounding_box() for s in ("#picture", "#panel"))
    assert picture["y"] + picture["height"] <= panel["y"]
    graph = concat.page.locator("#picture > g").bounding_box()
    assert graph["x"] >= picture["x"] and graph["height"] <= picture["height"]


def long_model(model: ShownModel, copies: int) -> ShownModel:
    """The nodes of a network, so many times in a row: only their names are others."""
    base = model.program
    inner = [k for k, node in enumerate(base.nodes) if node.kind not in ("input", "output")]
    first, last = inner[0], inner[-1]
    size = last + 1 - first
    nodes = [base.nodes[0]]
    arrows = []
    for copy in range(copies):
        nodes += [replace(n, name=f"{n.name}/{copy}") for n in base.nodes[first : last + 1]]
        for arrow in base.arrows:
            ends = (arrow.start + copy * size, min(arrow.end, last) + copy * size)
            if ends[0] < ends[1]:
                arrows.append(ShownArrow(*ends, arrow.tensor, arrow.edge_type))
    after = first + size * copies
    block = ShownBlock(tuple(range(first, after, size)), after)
    program = ShownGraph(tuple(nodes), tuple(arrows), (block,))
    return replace(model, program=program, imported=ShownGraph((), (), ()))
