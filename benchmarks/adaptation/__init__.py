"""``python -m benchmarks adapt``: bounds by table and by iteration, the guard and the economy, against the SC'24 paper."""
