"""Tests of the HTML that notebooks show."""

import pickle
from html.parser import HTMLParser

from graphflow.base.notebook import MOST_ROWS, Explanation, folded, shown, table

VOID = {"br", "hr", "img", "meta"}


class Reader(HTMLParser):
    """The texts of a piece of HTML; fails where its elements are not closed in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: object) -> None:
        assert tag not in {"script", "link", *VOID}
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.texts.append(data)


def test_texts_are_escaped() -> None:
    name = "<b>&\"x'</b>"
    html = shown(name, folded(name, table((name,), [(name,)])))
    assert Reader(html).texts == [name] * 4


def test_long_tables_are_cut_and_say_so() -> None:
    texts = Reader(table(("n",), ((n,) for n in range(MOST_ROWS + 5)))).texts
    assert texts == ["n", *map(str, range(MOST_ROWS)), "… and 5 more"]


def test_an_explanation_is_a_string() -> None:
    text = Explanation("y: float32[2]\n  because   1 < 2")
    assert text == "y: float32[2]\n  because   1 < 2" and isinstance(text, str)
    assert pickle.loads(pickle.dumps(text)) == text
    assert Reader(text._repr_html_()).texts == ["y: float32[2]", "  because   1 < 2"]
