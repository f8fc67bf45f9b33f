"""Test that the code of docs/onnxruntime.md runs, and that its tables name what there is."""

import re

import graphflow as gf
from support.pages import run_page
from support.paths import ROOT

PAGE = ROOT / "docs" / "onnxruntime.md"


def test_the_script_of_the_page_runs() -> None:
    ((_, printed),) = run_page(PAGE)
    assert printed == "image tensor(float) [1, 3, 64, 64]\n"


def test_the_tables_name_every_option_of_a_session() -> None:
    named = set(re.findall(r"`([\w.]+)`", PAGE.read_text(encoding="utf-8")))
    options = {name for name in dir(gf.SessionOptions) if not name.startswith("_")}
    ours = {"dimensions", "entries"}
    machinery = {
        "add_free_dimension_override_by_denotation",
        "add_provider",
        "add_session_config_entry",
        "get_session_config_entry",
        "has_providers",
        "use_per_session_threads",
    }
    assert options - named == machinery | ours
