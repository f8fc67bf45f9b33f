"""The data in the text of a page."""

import base64
import gzip
import json
import re
from typing import Any


def page_data(page: str) -> Any:
    """The values that a page shows, from its text."""
    found = re.search(r'id="packed-model">([^<]*)<', page)
    assert found is not None
    return json.loads(gzip.decompress(base64.b64decode(found[1])))
