"""Tests of the page of a network whose units repeat: finding nodes, folds, keys, zoom, memory; and
of large networks."""

import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Any

import onnx
import pytest

from graphflow.base.options import Options
from graphflow.base.processors import PROCESSORS
from graphflow.inspect.page import page_html, shown_model
from graphflow.inspect.page.page_data import ShownArrow, ShownModel
from graphflow.models import ModelBuilder, named
from graphflow.models.zoo import EXPORTED
from graphflow.pipeline.compiler import compile_graph
from graphflow.pipeline.request import CompileRequest
from support.models.profiled import profiled
from support.models.shown_networks import shown
from support.targets import USUAL


@cache
def stage_model() -> ShownModel:
    """A network with repeated units, whose kernels have neither steps nor code."""
    return shown("stage")


@pytest.fixture(scope="module")
def stage_page(open_page: Any) -> Any:
    return open_page(page_html(stage_model()))


@pytest.fixture
def stage(stage_page: Any) -> Iterator[Any]:
    """The page of `stage_model`, at its beginning; nothing may go wrong in it."""
    stage_page.turn_back()
    yield stage_page
    assert stage_page.problems == []


def test_the_page_says_where_the_texts_are_that_it_does_not_have(stage: Any) -> None:
    stage.node("conv_8_node").click()
    assert "--dump DIR" in stage.panel("node")
    assert stage.page.locator("#panel .tabs button").count() == 3


def test_the_memory_shows_what_lies_where_and_who_reuses_it(stage: Any) -> None:
    model = stage_model()
    assert model.memory is not None
    stage.page.click("#show-memory")
    text = stage.panel("memory")
    parts = model.memory.parts
    assert f"the {len(parts)} of them" in text and f"of {len(model.memory.steps)}" in text
    assert stage.page.locator(".memory .part").count() == len(parts)
    place = next(k for k, p in enumerate(parts) if p.tensors and p.reuses)
    stage.page.locator(".memory .part").nth(place).click(force=True)
    text = stage.panel("tensor")
    part, before = parts[place], parts[parts[place].reuses[0]]
    assert part.tensors[0] in text and f"from byte {part.offset} on" in text
    assert f"Before, this memory held {before.tensors[0]}" in text
    assert stage.page.locator(".memory .part.chosen").count() == 1


def test_a_page_without_a_run_does_not_offer_one(stage: Any) -> None:
    assert stage.page.locator("#show-run").is_hidden()


def test_an_edge_says_which_pins_were_not_planned(stage: Any) -> None:
    name = next(t.name for t in stage_model().tensors if any(p.because for p in t.pins))
    stage.page.locator(f'[data-tensor="{name}"] .strip').first.click()
    assert "not planned, as the page has enough of them" in stage.panel("tensor")


def layout_name(model: ShownModel, arrow: ShownArrow) -> str:
    assert arrow.edge_type is not None
    return model.layouts[model.edge_types[arrow.edge_type].layout].name


def padding_elements(model: ShownModel, arrow: ShownArrow) -> int:
    assert arrow.edge_type is not None
    return model.layouts[model.edge_types[arrow.edge_type].layout].padding_elements


def test_search_and_filters_find_nodes(stage: Any) -> None:
    model = stage_model()
    found = stage.page.locator("#found")
    stage.page.fill("#search", "conv_9_node")
    assert found.inner_text() == "1"
    stage.page.press("#search", "Enter")
    stage.opened("document.querySelector('#panel h2')?.textContent === 'Conv + Relu'")
    assert found.inner_text() == "1 of 1" and "conv_9_node" in stage.panel("node")
    stage.page.fill("#search", "index map")
    assert found.inner_text() == "0"  # a family, and no name of a layout
    stage.page.fill("#search", "conv nhwc")
    convolutions = {
        place
        for arrow in model.program.arrows
        for place in (arrow.start, arrow.end)
        if layout_name(model, arrow) == "NHWC" and "Conv" in model.program.nodes[place].operators
    }
    assert int(found.inner_text()) >= len(convolutions) > 0
    stage.page.fill("#search", "")
    stage.page.click("[data-filter=conversions]")
    moves = [
        node for node in model.program.nodes if node.kind in ("move", "convert", "fill", "copy")
    ]
    assert found.inner_text() == str(len(moves))
    stage.page.click("[data-filter=conversions]")
    stage.page.click("[data-filter=padding]")
    padded = {
        place
        for arrow in model.program.arrows
        for place in (arrow.start, arrow.end)
        if padding_elements(model, arrow)
    }
    assert found.inner_text() == str(len(padded))
    stage.page.click("[data-filter=padding]")
    stage.page.click("[data-filter=slow]")
    assert 0 < int(found.inner_text()) < len(model.program.nodes)
    assert stage.page.locator(".item.dimmed").count() > 0
    stage.page.press("body", "Escape")
    assert "Where the time goes" in stage.panel("overview")


def units(model: ShownModel) -> list[set[str]]:
    """The operators of each repetition of each block of the program."""
    return [
        {operator for node in model.program.nodes[a:b] for operator in node.operators}
        for found in model.program.blocks
        for a, b in pairwise([*found.starts, found.after])
    ]


def test_the_units_of_a_shuffled_stage_are_found() -> None:
    model = shown("stage")
    [found] = model.imported.blocks
    assert len(found.starts) == 3
    first = model.imported.nodes[found.starts[0]]
    assert first.operators == ("Split.part0",)
    assert [len(b.starts) for b in model.program.blocks] == [3]
    assert all({"Conv", "Relu"} <= operators for operators in units(model))


@pytest.mark.slow
def test_the_units_of_shufflenet_are_found() -> None:
    model = shown("shufflenet_v2")
    for graph in (model.imported, model.program):
        assert [len(found.starts) for found in graph.blocks] == [3, 7, 3]


def test_repeated_blocks_are_folded_and_open(stage: Any) -> None:
    nodes = len(stage_model().program.nodes)
    stage.page.click("#fold-all")
    stage.has_items(nodes - 9 + 1)
    block = stage.page.locator(".item.block").first
    assert "Block of 3 nodes × 3" in block.text_content()
    block.click()
    text = stage.panel("block")
    assert "Repeated block" in text and "of a run" in text
    stage.page.click("#panel button:has-text('repetitions')")
    stage.has_items(nodes - 9 + 3)
    stage.page.click("#panel button:has-text('Show its nodes')")
    stage.has_items(nodes - 9 + 5)
    assert "Block 1 of 3" in stage.page.locator(".frame text").first.text_content()
    stage.page.locator(".frame text").first.click()
    stage.has_items(nodes - 9 + 3)
    stage.page.click("#unfold-all")
    stage.has_items(nodes)


def test_a_search_opens_the_block_of_what_it_finds(stage: Any) -> None:
    stage.page.click("#fold-all")
    stage.opened("document.querySelector('.item.block')")
    before = stage.items()
    stage.page.fill("#search", "conv_11_node")
    stage.page.press("#search", "Enter")
    assert "conv_11_node" in stage.panel("node")
    assert stage.items() > before


def test_every_key_of_the_list_does_what_it_says(stage: Any) -> None:
    page = stage.page

    def scale() -> float:
        return float(page.get_attribute("#picture > g", "transform").split("scale(")[1][:-1])

    fitted = scale()
    page.focus("#picture")
    page.keyboard.press("+")
    nearer = scale()
    page.keyboard.press("-")
    assert nearer > fitted == pytest.approx(scale())
    page.keyboard.press("=")
    page.keyboard.press("0")
    assert scale() == pytest.approx(fitted)
    stage.node("conv_8_node").click()
    page.focus("#picture")
    page.keyboard.press("f")
    stage.opened("document.querySelector('.item.block')")
    assert "Block 1 of 3" in stage.panel("block")
    page.keyboard.press("f")
    stage.opened("!document.querySelector('.item.block')")
    for wanted in ("imported", "both", "program"):
        page.keyboard.press("m")
        stage.opened(f"document.querySelector('[data-graph={wanted}][aria-pressed=true]')")
    page.keyboard.press("/")
    page.keyboard.type("gemm")
    assert page.input_value("#search") == "gemm"  # a letter is no key while something is typed
    page.keyboard.press("Escape")
    assert page.input_value("#search") == ""
    keys = stage.page.locator("#panel kbd").all_inner_texts()
    assert keys == ["/", "Enter", "+", "−", "0", "f", "m", "Esc"]


def test_the_picture_zooms_and_moves(stage: Any) -> None:
    page = stage.page

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
    assert "Where the time goes" in stage.panel("overview")  # a drag opens nothing
    page.click("#zoom-in")
    before = view()
    page.click(".minimap >> nth=0", position={"x": 85, "y": 20})
    assert view()[1] > before[1] and view()[2] == before[2]


def deep_network() -> onnx.ModelProto:
    """667 residual units of three convolutions each: 2,000 kernels."""
    build = ModelBuilder(seed=0, name="deep_network")
    x = build.relu(build.conv(build.input("x", (1, 3, 8, 8)), 22, 3, pads=[1] * 4))
    for _ in range(667):
        y = build.relu(build.conv(x, 22, 1))
        y = build.relu(build.conv(y, 22, 3, pads=[1] * 4))
        x = build.relu(build.add(x, build.conv(y, 22, 1, gain=0.1)))
    build.output(x)
    return build.model()


LARGE = {
    "densenet121": lambda: named("light:densenet121", 1),
    "bert": lambda: named("zoo:bert"),
    "2000 nodes": deep_network,
}


def large_model(name: str) -> ShownModel:
    shapes = {k: v.shape for k, v in EXPORTED["bert"].feeds(0).items()} if name == "bert" else {}
    request = CompileRequest(
        LARGE[name](), target=PROCESSORS[USUAL], options=Options(threads=2), input_shapes=shapes
    )
    return profiled(shown_model(compile_graph(request)))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", LARGE)
def test_the_page_of_a_large_network_is_small_and_quick(open_page: Any, name: str) -> None:
    model = large_model(name)
    text = page_html(model)
    assert len(text.encode()) < 5_000_000
    opened = open_page(text)
    seconds, used = opened.page.evaluate("performance.now()") / 1e3, opened.processor_seconds()
    print(f"{name}: {len(text)} bytes, ready in {seconds:.2f} s, {used:.2f} s of a processor")
    assert used < 2  # as long as it takes where nothing else runs
    click_through(opened, model)
    assert opened.problems == []


def click_through(opened: Any, model: ShownModel) -> None:
    """Open every view of the page, and read in each what only this view says."""
    page, nodes = opened.page, model.program.nodes
    assert model.model in opened.panel("overview")
    assert opened.items() < 60 < len(nodes)
    page.locator(".item.block").first.click()
    assert "Repeated block" in opened.panel("block")
    page.click("#show-run")
    assert "FusedConv" in opened.panel("run")
    page.click("#show-memory")
    assert model.memory is not None
    assert f"the {len(model.memory.parts)} of them" in opened.panel("memory")
    # The slowest node, by the run that was measured.
    page.click("[data-filter=slow]")
    page.press("#search", "Enter")
    assert "Measured in a run" in opened.panel("node")
    for tab in page.locator("#panel .tabs [data-text]").all():
        tab.click()
        assert page.locator("#panel pre").inner_text().strip()
    page.locator("#panel section:has(h3:text-is('Writes')) a").first.click()
    assert "Why this layout" in opened.panel("tensor")
    assert page.locator("#panel .boxes canvas").count() == 2
    page.click("[data-filter=slow]")
    for name in ("conversions", "padding"):
        page.click(f"[data-filter={name}]")
        count = int(page.locator("#found").inner_text())
        if count:
            page.press("#search", "Enter")
            opened.panel("node")
        page.click(f"[data-filter={name}]")
    last = next(node for node in reversed(nodes) if node.kernel is not None)
    page.fill("#search", last.name)
    page.press("#search", "Shift+Enter")
    assert last.name in opened.panel("node")
    page.fill("#search", "")
    page.click("#unfold-all")
    opened.has_items(len(nodes))
    page.click("#fold-all")
    opened.opened("document.querySelector('.item.block')")
    for graph in ("imported", "both", "program"):
        page.click(f"[data-graph={graph}]")
        opened.opened(f"document.querySelector('[data-graph={graph}][aria-pressed=true]')")
    page.click("#zoom-fit")
    page.click("#show-overview")
    assert "Where the time goes" in opened.panel("overview")
