"""Tests of random quantized models: within a step of onnxruntime's, and mostly equal; with open
sizes the bits of the programs of each shape."""

from collections import Counter

from support.fuzz.open_quantized_fuzz import run_open_quantized
from support.fuzz.quantized_fuzz import every_layer, run_quantized
from support.models.quantized_models import random_quantized_model


def test_random_quantized_models_agree_within_a_step() -> None:
    counts = Counter[str]()
    for seed in (3, 7, 11):  # some 4 s each, most of it in LLVM
        found = run_quantized(seed)
        assert found.failure is None, f"seed {seed}: {found.failure}"
        counts += found.counts
    assert counts["equal"] > 0.95 * counts["elements"]
    assert counts["folded"] >= 2


def test_one_program_for_a_batch_and_a_height_gives_the_same_bits() -> None:
    counts = Counter[str]()
    for seed in (10, 12):
        found = run_open_quantized(seed)
        assert found.failure is None, f"seed {seed}: {found.failure}"
        counts += found.counts
    assert counts["one_program"] == 2 and counts["runs"] >= 5


def test_each_layer_can_be_computed_from_what_the_one_before_gave() -> None:
    whole, cut = every_layer(random_quantized_model(1).model)
    stored = [n.output[0] for n in whole.graph.node if n.op_type == "QuantizeLinear"]
    assert {info.name for info in whole.graph.output} >= {*stored}
    assert {info.name for info in cut.graph.input} == {"x", *(f"{name}.given" for name in stored)}
