"""The profile: how often rows are looked up, counted in one pass and kept in a Parquet file.

Begin with ``profile``, the pass, and ``access``, its result.
"""
