"""Indices that data decides: gathers, scatters, ranking, compaction, suppression."""
