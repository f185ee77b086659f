"""DCT-MP on real data: what thresholds at a model split cost in accuracy, and what they save in bytes.

``python -m benchmarks.thresholding --data DIR``
"""
