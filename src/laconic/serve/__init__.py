"""Serving: a model in low precision behind the Open Inference Protocol, watched by its exact shadow."""
