"""Tensors that are mostly zero, and sketches of them."""
