"""DCT-MP on real data: what thresholds at a model split cost in accuracy, and what they save in bytes.

``python -m laconic.bench.thresholding --data DIR``
"""
