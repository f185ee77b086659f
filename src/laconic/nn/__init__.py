"""Modules for a user's own training loop."""

from laconic.nn.dense_gradients import sum_gradients
from laconic.nn.divided_mlp import DividedMlp, LocalDividedMlp
from laconic.nn.sharded_embeddings import ShardedEmbeddings
from laconic.nn.split import LocalSplit, Split, SplitLayer

__all__ = [
    "DividedMlp",
    "LocalDividedMlp",
    "LocalSplit",
    "ShardedEmbeddings",
    "Split",
    "SplitLayer",
    "sum_gradients",
]
