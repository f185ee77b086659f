"""``python -m benchmarks placement``: predicted against measured bytes and time, and plans against what others would do."""
