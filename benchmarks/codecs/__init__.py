"""``python -m benchmarks codecs``: ratio, speed and error of every codec."""
