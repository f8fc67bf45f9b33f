"""Tests of the page in a browser: opened from disk, clicked through, and read."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx
import pytest

import graphflow as gf
from graphflow.base.options import Options
from graphflow.base.processors import PROCESSORS
from graphflow.base.run_profile import (
    OperatorTime,
    PeerProfile,
    RunProfile,
    StepProfile,
)
from graphflow.inspect import changes, difference_page, page_of, report
from graphflow.inspect.page import page_html, shown_model
from graphflow.inspect.page.html_page import ASSETS, LAYOUT_LIBRARY, SCRIPTS
from graphflow.inspect.page.page_data import ShownArrow, ShownBlock, ShownGraph, ShownModel
from graphflow.inspect.page.shown_run import shown_run
from graphflow.models import ModelBuilder
from graphflow.models.zoo import zoo_model
from graphflow.pipeline.compiler import compile_graph
from graphflow.pipeline.request import CompileRequest
from support.models.compiled_networks import compiled_network

HOSTILE = '</script><img src=x onerror="document.title=1"><script>document.title=2</script>'
"""A name that would be markup wherever it is not text."""

WAIT = 20_000
"""The most milliseconds until something is there; the machine may be busy."""


@cache
def shown(name: str) -> ShownModel:
    return shown_model(compiled_network(name))


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


@dataclass
class Opened:
    """A page in the browser, with what went wrong in it and what it asked of the network."""

    page: Any
    problems: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def panel(self, kind: str) -> str:
        """The text of the panel, which must be of this kind."""
        found = self.page.locator(f"#panel [data-panel={kind}]")
        found.wait_for(timeout=WAIT)
        return str(found.inner_text())

    def items(self) -> int:
        return int(self.page.locator(".item").count())

    def node(self, text: str) -> Any:
        """The box in the picture whose label contains a text."""
        return self.page.locator(f'.item[aria-label*="{text}"]').first

    def opened(self, wanted: str) -> None:
        """Wait for a condition in the page."""
        self.page.wait_for_function(wanted, timeout=WAIT)


Opener: TypeAlias = Callable[..., Opened]


@pytest.fixture
def open_page(browser: Any, tmp_path: Path) -> Iterator[Opener]:
    """A function that writes a page to disk and opens it in a browser without network."""
    contexts = []

    def opened(text: str, **options: Any) -> Opened:
        path = tmp_path / "page.html"
        path.write_text(text, encoding="utf-8")
        contexts.append(browser.new_context(offline=True, **options))
        found = Opened(contexts[-1].new_page())
        found.page.on("pageerror", lambda error: found.problems.append(str(error)))
        found.page.on("console", lambda said: found.problems.append(said.text))
        found.page.on("request", lambda request: found.requests.append(request.url))
        found.page.goto(path.as_uri())
        found.page.wait_for_selector("html[data-ready]", timeout=WAIT, state="attached")
        return found

    yield opened
    for context in contexts:
        context.close()


def unpacked(page: str) -> Any:
    """The data in the text of a page."""
    found = re.search(r'id="packed-model">([^<]*)<', page)
    assert found is not None
    return json.loads(gzip.decompress(base64.b64decode(found[1])))


def test_the_page_has_the_data_and_no_reference_to_another_file() -> None:
    page = page_of(compiled_network("probe:concat:58"))
    assert unpacked(page) == json.loads(json.dumps(asdict(shown("probe:concat:58"))))
    assert page == page_html(shown("probe:concat:58"))
    assert not re.findall(r"<(?:link|img|iframe)|\b(?:src|srcset)=|@import|url\((?!#)", page)
    assert "Eclipse Public License" in page


def test_every_script_beside_the_page_is_in_it() -> None:
    scripts = {path.name for path in ASSETS.glob("*.js")}
    assert scripts == {*SCRIPTS, LAYOUT_LIBRARY}
    page = page_html(shown("probe:concat:58"))
    for name in SCRIPTS:
        assert (ASSETS / name).read_text(encoding="utf-8") in page


def test_the_overview_says_where_the_time_goes(open_page: Opener) -> None:
    opened = open_page(page_of(compiled_network("probe:concat:58")))
    text = opened.panel("overview")
    model = shown("probe:concat:58")
    assert model.model in text and model.target in text
    assert "1 kernels only move or fill elements" in text
    assert "Conversion: NCHW16c → NCHW" in text
    assert opened.items() == len(model.program.nodes)
    assert opened.page.locator(".edge").count() == len(model.program.arrows)
    # The page itself, and the worker that it starts from its own text.
    assert {url.split(":")[0] for url in opened.requests} == {"file", "blob"}
    assert opened.problems == []


def test_a_kernel_shows_its_variants_its_price_and_its_text(open_page: Opener) -> None:
    opened = open_page(page_of(compiled_network("probe:concat:58")))
    node = next(n for n in shown("probe:concat:58").program.nodes if n.name == "conv_3_node")
    opened.node("conv_3_node").click()
    text = opened.panel("node")
    assert f"Variant {node.variant}" in text and "of a run" in text
    for other in node.others:
        assert other.name in text
    for title, reason in node.refused:
        assert title in text and reason in text
    assert node.kernel is not None
    kernel = shown("probe:concat:58").kernels[node.kernel]
    shown_text = opened.page.locator("#panel pre")
    assert shown_text.inner_text() == kernel.lowered.strip()
    opened.page.click("#panel button[data-text=schedule]")
    assert shown_text.inner_text() == kernel.schedule.strip()
    opened.page.click("#panel button[data-text=definition]")
    assert shown_text.inner_text() == kernel.definition.strip()
    assert opened.problems == []


def test_a_kernel_shows_what_each_step_changed_and_its_code(open_page: Opener) -> None:
    opened = open_page(page_of(compiled_network("probe:concat:58")))
    model = shown("probe:concat:58")
    kernel = next(model.kernels[n.kernel] for n in model.program.nodes if n.name == "conv_3_node")
    assert kernel.steps
    opened.node("conv_3_node").click()
    opened.page.click("#panel button[data-text=steps]")
    text = opened.page.locator("#panel pre")
    chooser = opened.page.get_by_label("Step", exact=True)
    assert chooser.locator("option").count() == len(kernel.steps)
    for number, step in enumerate(kernel.steps):
        chosen = chooser.locator("option:checked").inner_text()
        assert chosen == f"{number + 1}. {step.step}"
        panel = opened.panel("node")
        assert all(proof in panel for proof in step.proofs)
        added = [line for edit in step.edits for line in edit.added]
        assert [s[2:] for s in text.locator(".added").all_text_contents()] == added
        removed = sum(edit.removed for edit in step.edits)
        assert text.locator(".removed").count() == removed
        assert f"removes {removed} lines (−), adds {len(added)} (+)" in panel or not step.edits
        if number + 1 < len(kernel.steps):
            opened.page.get_by_label("Next step").click()
    assert opened.page.get_by_label("Next step").is_disabled()
    kept = [s[2:] for s in text.locator(".kept, .added").all_text_contents()]
    assert kept == kernel.lowered.splitlines()
    for name in ("ir", "assembly"):
        opened.page.click(f"#panel button[data-text={name}]")
        assert text.text_content() == getattr(kernel, name).strip()
    assert opened.problems == []


def test_the_page_says_where_the_texts_are_that_it_does_not_have(open_page: Opener) -> None:
    model = shown("probe:concat:58")
    short = {s: replace(k, steps=None, ir=None, assembly=None) for s, k in model.kernels.items()}
    opened = open_page(page_html(replace(model, kernels=short)))
    opened.node("conv_3_node").click()
    assert "--dump DIR" in opened.panel("node")
    assert opened.page.locator("#panel .tabs button").count() == 3


def profiled(model: ShownModel) -> ShownModel:
    """The model with a run in which every node but the first takes 10 µs, the first 1 ms."""
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
    peer = PeerProfile("onnxruntime", 0.002, (OperatorTime("FusedConv", 0.002, 7),))
    profile = RunProfile(
        model=model.model,
        target=model.target,
        threads=2,
        runs=10,
        seconds=1.1e-3,
        before=1e-5,
        between=2e-5,
        after=1e-5,
        estimate=model.seconds,
        gflops=100.0,
        gbps=50.0,
        steps=steps,
        peer=peer,
    )
    return replace(model, run=shown_run(profile, model.program.nodes))


def test_the_run_shows_each_step_beside_its_estimate(open_page: Opener) -> None:
    model = profiled(shown("probe:concat:58"))
    assert model.run is not None
    opened = open_page(page_html(model))
    opened.page.click("#show-run")
    text = opened.panel("run")
    assert "1.10 ms a run" in text and "FusedConv" in text
    steps = opened.page.locator("#panel .step-bars li")
    listed = [step.get_attribute("data-step") for step in steps.all()]
    names = [step.name for step in model.run.profile.steps]
    assert listed[0] == names[0] and sorted(filter(None, listed)) == sorted(names)
    opened.page.click("[data-order=order]")
    assert [step.get_attribute("data-step") for step in steps.all()] == names
    widths = steps.locator(".measured").evaluate_all("all => all.map(e => e.style.width)")
    assert widths[0] == "100%" and widths[1:] == ["1%"] * (len(names) - 1)
    assert opened.page.locator(".timeline .part").count() == len(names)
    steps.nth(1).locator("a").click()
    panel = opened.panel("node")
    assert names[1] in panel and "Threads wait 2.0 µs" in panel
    assert "100 GFLOP/s of 100" in panel and "caller" in panel
    assert opened.problems == []


def test_slow_nodes_are_those_that_were_measured_to_be(open_page: Opener) -> None:
    model = profiled(shown("probe:concat:58"))
    opened = open_page(page_html(model))
    opened.page.click("[data-filter=slow]")
    assert opened.page.locator("#found").inner_text() == "1"
    assert model.run is not None
    opened.page.press("#search", "Enter")
    assert model.run.profile.steps[0].name in opened.panel("node")


def test_the_memory_shows_what_lies_where_and_who_reuses_it(open_page: Opener) -> None:
    model = shown("shufflenet_v2")
    assert model.memory is not None
    opened = open_page(page_html(model))
    opened.page.click("#show-memory")
    text = opened.panel("memory")
    parts = model.memory.parts
    assert f"the {len(parts)} of them" in text and f"of {len(model.memory.steps)}" in text
    assert opened.page.locator(".memory .part").count() == len(parts)
    place = next(k for k, p in enumerate(parts) if p.tensors and p.reuses)
    opened.page.locator(".memory .part").nth(place).click(force=True)
    text = opened.panel("tensor")
    part, before = parts[place], parts[parts[place].reuses[0]]
    assert part.tensors[0] in text and f"from byte {part.offset} on" in text
    assert f"Before, this memory held {before.tensors[0]}" in text
    assert opened.page.locator(".memory .part.chosen").count() == 1
    assert opened.problems == []


def test_a_page_without_a_run_does_not_offer_one(open_page: Opener) -> None:
    opened = open_page(page_of(compiled_network("probe:concat:58")))
    assert opened.page.locator("#show-run").is_hidden()


def test_a_conversion_is_red_and_says_why_it_stands(open_page: Opener) -> None:
    opened = open_page(page_of(compiled_network("probe:concat:58")))
    made = next(n for n in shown("probe:concat:58").program.nodes if n.kind == "convert")
    box = opened.node(made.name)
    assert "conversion" in box.get_attribute("class")
    assert re.search(r"µs · .* %", box.text_content())
    box.click()
    assert made.because[1:] in opened.panel("node")


def test_an_edge_shows_shapes_padding_readers_and_proofs(open_page: Opener) -> None:
    opened = open_page(page_of(compiled_network("probe:concat:58")))
    opened.page.locator(".edge.padded .wide").first.click(force=True)
    text = opened.panel("tensor")
    tensor = next(t for t in shown("probe:concat:58").tensors if t.name == "conv_3")
    for said in ("conv_3", "NCHW16c", "1×58×28×28", "1×4×28×28×16", "pad(1)", "undef"):
        assert said in text
    assert tensor.decided_by in text
    for use in tensor.readings:
        assert f"demand on the padding: {use.demand}" in text
        for proof in use.proofs:
            assert f"Proof: {proof}" in text
    for other in tensor.others:
        assert other.name in text
    opened.page.click("#panel a:has-text('conv_3_node') >> nth=0")
    assert "conv_3_node" in opened.panel("node")
    assert opened.problems == []


def test_cancelled_pairs_have_their_proofs(open_page: Opener) -> None:
    opened = open_page(page_of(compiled_network("probe:concat:58")))
    model = shown("probe:concat:58")
    tensor = next(t for t in model.tensors if any(p.reason is None for p in t.pairs))
    opened.page.locator(f'[data-tensor="{tensor.name}"] .strip').first.click()
    text = opened.panel("tensor")
    assert "were cancelled" in text
    for pair in tensor.pairs:
        for proof in pair.proofs:
            assert f"Proof: {proof}" in text


def place_text(layout: Any, tensor: Any, logical: tuple[int, ...]) -> str:
    """What the page has to say about an element."""
    physical = [int(str(index)) for index in layout.physical_index(logical)]
    flat = int(np.ravel_multi_index(physical, layout.physical_shape))
    byte, (vector, lane) = flat * tensor.element_bytes, divmod(flat, tensor.lanes)
    return (
        f"logical {[*logical]} lies at physical {physical}: element {flat} of the box, "
        f"byte {byte}, lane {lane} of vector {vector}"
    )


def test_the_box_marks_the_element_under_the_mouse_in_both_pictures(open_page: Opener) -> None:
    opened = open_page(
        page_of(compiled_network("probe:concat:58")), viewport={"width": 1400, "height": 1000}
    )
    model = shown("probe:concat:58")
    layout = compiled_network("probe:concat:58").plan.edges["conv_3"].edge_type.layout
    tensor = next(t for t in model.tensors if t.name == "conv_3")
    opened.page.locator('[data-tensor="conv_3"] .strip').first.click()
    place = opened.page.locator("[data-role=place]")
    assert place.inner_text() == place_text(layout, tensor, (0, 0, 0, 0))
    for side in ("Logical", "Physical"):
        # Squares of 15 pixels: W across and C down, or 16 lanes across and the blocks down.
        canvas = opened.page.locator(f"[data-side={side}] canvas")
        canvas.hover(position={"x": 3 * (16 if side == "Physical" else 15) + 4, "y": 20})
        logical = (0, 1, 0, 3) if side == "Logical" else (0, 19, 0, 3)
        assert place.inner_text() == place_text(layout, tensor, logical)
    for name, value in (("Logical C", "57"), ("Logical H", "5"), ("Logical W", "9")):
        opened.page.get_by_label(name).fill(value)
        opened.page.get_by_label(name).press("Tab")
    assert place.inner_text() == place_text(layout, tensor, (0, 57, 5, 9))
    # The position in the last block behind that of channel 57.
    canvas = opened.page.locator("[data-side=Physical] canvas")
    canvas.press("ArrowRight")
    assert place.inner_text().startswith("padding pad(1), which holds undef, lies at physical")
    assert opened.problems == []


def layout_name(model: ShownModel, arrow: ShownArrow) -> str:
    assert arrow.edge_type is not None
    return model.layouts[model.edge_types[arrow.edge_type].layout].name


def padding_elements(model: ShownModel, arrow: ShownArrow) -> int:
    assert arrow.edge_type is not None
    return model.layouts[model.edge_types[arrow.edge_type].layout].padding_elements


def test_search_and_filters_find_nodes(open_page: Opener) -> None:
    opened = open_page(page_of(compiled_network("shufflenet_v2")))
    model = shown("shufflenet_v2")
    found = opened.page.locator("#found")
    opened.page.fill("#search", "conv_47_node")
    assert found.inner_text() == "1"
    opened.page.press("#search", "Enter")
    opened.opened("document.querySelector('#panel h2')?.textContent === 'Conv + Relu'")
    assert found.inner_text() == "1 of 1" and "conv_47_node" in opened.panel("node")
    opened.page.fill("#search", "index map")
    assert found.inner_text() == "0"  # a family, and no name of a layout
    opened.page.fill("#search", "conv nhwc")
    convolutions = {
        place
        for arrow in model.program.arrows
        for place in (arrow.start, arrow.end)
        if layout_name(model, arrow) == "NHWC" and "Conv" in model.program.nodes[place].operators
    }
    assert int(found.inner_text()) >= len(convolutions) > 0
    opened.page.fill("#search", "")
    opened.page.click("[data-filter=conversions]")
    moves = [
        node for node in model.program.nodes if node.kind in ("move", "convert", "fill", "copy")
    ]
    assert found.inner_text() == str(len(moves))
    opened.page.click("[data-filter=conversions]")
    opened.page.click("[data-filter=padding]")
    padded = {
        place
        for arrow in model.program.arrows
        for place in (arrow.start, arrow.end)
        if padding_elements(model, arrow)
    }
    assert found.inner_text() == str(len(padded))
    opened.page.click("[data-filter=padding]")
    opened.page.click("[data-filter=slow]")
    assert 0 < int(found.inner_text()) < len(model.program.nodes)
    assert opened.page.locator(".item.dimmed").count() > 0
    opened.page.press("body", "Escape")
    assert "Where the time goes" in opened.panel("overview")
    assert opened.problems == []


def test_the_model_as_imported_leads_to_the_program_and_back(open_page: Opener) -> None:
    opened = open_page(page_of(compiled_network("probe:concat:58")))
    model = shown("probe:concat:58")
    opened.page.click("[data-graph=imported]")
    opened.opened(f"document.querySelectorAll('.item').length === {len(model.imported.nodes)}")
    relu = next(node for node in model.imported.nodes if node.operators == ("Relu",))
    opened.node(relu.name).click()
    text = opened.panel("node")
    assert "Operator of the model as imported" in text and "Runs as\n\nConv + Relu" in text
    opened.page.click("#panel a:has-text('Conv + Relu')")
    opened.opened(f"document.querySelectorAll('.item').length === {len(model.program.nodes)}")
    assert relu.name in opened.panel("node")
    opened.page.click("#panel a:text-is('Relu')")
    opened.opened("document.querySelector('#panel .kind')?.textContent.startsWith('Operator')")
    assert opened.page.get_attribute("[data-graph=imported]", "aria-pressed") == "true"
    assert opened.problems == []


def test_repeated_blocks_are_folded_and_open(open_page: Opener) -> None:
    opened = open_page(page_html(long_model(2)))
    assert opened.items() < 10
    block = opened.page.locator(".item.block").first
    assert "nodes × 2" in block.text_content()
    block.click()
    text = opened.panel("block")
    assert "Repeated block" in text and "of a run" in text
    opened.page.click("#panel button:has-text('repetitions')")
    opened.opened("document.querySelectorAll('.item.block').length > 1")
    opened.page.click("#panel button:has-text('Show its nodes')")
    opened.panel("node")
    opened.page.click("#unfold-all")
    opened.opened(
        f"document.querySelectorAll('.item').length === {len(long_model(2).program.nodes)}"
    )
    opened.page.click("#fold-all")
    opened.opened("document.querySelectorAll('.item').length < 10")
    assert opened.problems == []


def test_a_search_opens_the_block_of_what_it_finds(open_page: Opener) -> None:
    opened = open_page(page_html(long_model(2)))
    before = opened.items()
    name = long_model(2).program.nodes[40].name
    opened.page.fill("#search", name)
    opened.page.press("#search", "Enter")
    assert name in opened.panel("node")
    assert opened.items() > before


def test_the_keyboard_goes_through_the_graph(open_page: Opener) -> None:
    opened = open_page(page_of(compiled_network("probe:concat:58")))
    model = shown("probe:concat:58")
    opened.page.focus("#picture")
    for node in model.program.nodes[:3]:
        opened.page.keyboard.press("ArrowDown")
        assert node.name in opened.panel("node")
    opened.page.keyboard.press("ArrowUp")
    assert model.program.nodes[1].name in opened.panel("node")
    opened.page.keyboard.press("Enter")
    assert opened.page.evaluate("document.activeElement.id") == "panel"
    opened.page.keyboard.press("/")
    assert opened.page.evaluate("document.activeElement.id") == "search"


def test_the_picture_zooms_and_moves(open_page: Opener) -> None:
    opened = open_page(page_of(compiled_network("shufflenet_v2")))
    page = opened.page

    def view() -> tuple[float, ...]:
        """Where the graph begins, in pixels, and its scale."""
        numbers = page.get_attribute("#picture > g", "transform")
        return tuple(map(float, re.findall(r"-?[\d.]+", numbers)))

    first = view()
    page.focus("#picture")
    page.keyboard.press("+")
    assert view()[2] > first[2]
    page.mouse.move(300, 400)
    page.mouse.wheel(0, 500)
    page.wait_for_timeout(100)
    assert view()[2] < first[2]
    page.keyboard.press("0")
    fitted = view()
    page.mouse.down()
    page.mouse.move(340, 420, steps=4)
    page.mouse.up()
    assert view() == pytest.approx((fitted[0] + 40, fitted[1] + 20, fitted[2]))
    assert "Where the time goes" in opened.panel("overview")  # a drag opens nothing
    page.click("#zoom-in")
    before = view()
    page.click("#minimap", position={"x": 85, "y": 20})
    assert view()[1] > before[1] and view()[2] == before[2]
    assert opened.problems == []


def test_names_of_models_are_text_and_never_markup(open_page: Opener) -> None:
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


def test_two_plans_are_compared_on_the_graph(open_page: Opener) -> None:
    request = CompileRequest(
        zoo_model("probe:concat:58", 0),
        target=PROCESSORS["broadwell-guest"],
        options=Options(threads=1),
    )
    before, after = report(compile_graph(request)), report(compiled_network("probe:concat:58"))
    opened = open_page(difference_page(before, after))
    text = opened.panel("difference")
    found = changes(before, after)
    assert f"{len({change.name for change in found if change.kind != 'summary'})} tensors" in text
    for change in found:
        assert change.name in text and (change.before or "–") in text
        assert (change.after or "–") in text
    opened.page.click("[data-filter=changed]")
    assert int(opened.page.locator("#found").inner_text()) > 0
    opened.page.press("#search", "Enter")
    assert "Changes" in opened.panel("node")
    assert opened.page.locator("[data-filter=slow]").count() == 0
    assert not opened.page.locator("#graphs").is_visible()
    assert opened.problems == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_follows_the_scheme_of_the_reader(open_page: Opener, scheme: str) -> None:
    opened = open_page(page_of(compiled_network("probe:concat:58")), color_scheme=scheme)
    color = opened.page.evaluate("getComputedStyle(document.body).backgroundColor")
    brightness = sum(map(int, re.findall(r"\d+", color)[:3])) / 3
    assert (brightness > 128) == (scheme == "light")


@cache
def long_model(copies: int) -> ShownModel:
    """The nodes of a network, so many times in a row: only their names are others."""
    model = shown("shufflenet_v2")
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
    return replace(model, program=program)


def test_two_thousand_nodes_are_quick(open_page: Opener) -> None:
    model = long_model(30)
    assert len(model.program.nodes) > 2_000
    text = page_html(model)
    assert len(text) < 5_000_000
    opened = open_page(text)
    ready = opened.page.evaluate("performance.now()")
    opened.page.click("#unfold-all")
    opened.opened(f"document.querySelectorAll('.item').length === {len(model.program.nodes)}")
    unfolded = opened.page.evaluate("performance.now()") - ready
    opened.page.fill("#search", "conv_47_node/17")
    opened.page.press("#search", "Enter")
    assert "conv_47_node/17" in opened.panel("node")
    assert opened.problems == []
    print(f"{len(text)} bytes, ready in {ready:.0f} ms, unfolded in {unfolded:.0f} ms")
