"""Laconic: distributed training of recommendation models on ordinary networks."""
