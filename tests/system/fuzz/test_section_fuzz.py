"""Random graphs of sections between operators that move elements agree with onnxruntime."""

from support.fuzz.section_fuzz import copied_for_sections, section_model


def test_sections_between_views_agree_with_onnxruntime() -> None:
    assert any(copied_for_sections(section_model(seed), seed) for seed in range(40))
