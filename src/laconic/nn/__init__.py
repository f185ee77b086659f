"""Modules for a user's own training loop."""

from laconic.nn.dense_gradients import sum_gradients
from laconic.nn.sharded_embeddings import ShardedEmbeddings

__all__ = ["ShardedEmbeddings", "sum_gradients"]
