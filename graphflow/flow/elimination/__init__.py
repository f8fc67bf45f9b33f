"""Bucket elimination: exact minimization of sums of tables, which know nothing of graphs."""
