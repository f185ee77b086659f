"""The ways to sum: each is a function of a tensor and the ranks."""
