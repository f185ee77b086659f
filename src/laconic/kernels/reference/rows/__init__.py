"""Rows of tables: sums, updates, the largest entries."""
