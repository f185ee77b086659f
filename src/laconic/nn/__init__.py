"""Modules for a user's own training loop."""

from laconic.nn.dense_gradients import sum_gradients
from laconic.nn.divided_mlp import DividedMlp, RehearsedDividedMlp
from laconic.nn.rehearsed_embeddings import RehearsedEmbeddings
from laconic.nn.rehearsed_split import RehearsedSplit
from laconic.nn.sharded_embeddings import ShardedEmbeddings
from laconic.nn.split import Split

__all__ = [
    "DividedMlp",
    "RehearsedDividedMlp",
    "RehearsedEmbeddings",
    "RehearsedSplit",
    "ShardedEmbeddings",
    "Split",
    "sum_gradients",
]
