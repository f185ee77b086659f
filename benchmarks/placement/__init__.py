"""Plans, their predictions, and what others would do: ``python -m benchmarks placement``."""
