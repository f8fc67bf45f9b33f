"""Parsing of the text form of kernels, with the position of each error."""
