"""The version number of graphflow."""

VERSION = "0.1.0"
