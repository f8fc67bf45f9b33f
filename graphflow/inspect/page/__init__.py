"""The decisions about a model as one HTML page that a browser opens from disk, without network.

In: a `Compiled` model, or two reports.  Out: `ShownModel`, plain values that the page shows, and
the page's text.  What always holds: everything shown was recorded by the compiler's stages; texts
of the model are never markup.
"""

from graphflow.inspect.page.html_page import difference_page, page_html, page_of
from graphflow.inspect.page.shown_model import shown_model

__all__ = ["difference_page", "page_html", "page_of", "shown_model"]
