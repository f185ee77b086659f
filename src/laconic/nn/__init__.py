"""Modules for a user's own training loop."""

from laconic.nn.dense_gradients import sum_gradients
from laconic.nn.rehearsed_embeddings import RehearsedEmbeddings
from laconic.nn.sharded_embeddings import ShardedEmbeddings

__all__ = ["RehearsedEmbeddings", "ShardedEmbeddings", "sum_gradients"]
