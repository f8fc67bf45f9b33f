"""A browser for the picture that the tutorial ends with."""

from support.browsers import browser

__all__ = ["browser"]
