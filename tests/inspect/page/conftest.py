"""A browser for the tests of the page."""

from support.browsers import browser

__all__ = ["browser"]
