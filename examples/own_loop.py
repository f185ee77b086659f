"""A training loop of your own over the compressed exchange.

python examples/own_loop.py                                   # one rank
torchrun --nproc-per-node 2 examples/own_loop.py              # two
laconic lab --hosts 2 --mbps 200 -- python examples/own_loop.py   # two, over a slow wire
"""

import os

import torch
import torch.distributed as dist
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.nn.parallel import DistributedDataParallel

import laconic

DIM, BATCH, STEPS = 16, 512, int(os.environ.get("STEPS", "50"))
TABLES = [
    laconic.Table("user", rows=50_000, dim=DIM, sharding="row"),
    laconic.Table("item", rows=20_000, dim=DIM, sharding="row"),
    laconic.Table("country", rows=200, dim=DIM, sharding="replicated"),
]


class Scorer(torch.nn.Module):
    """Any torch module over embeddings of shape (samples, tables, dim)."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(len(TABLES) * DIM, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)
        )

    def forward(self, embeddings: torch.Tensor) -> torch.Tensor:
        return self.layers(embeddings.flatten(1)).squeeze(1)


def make_batch(step: int, rank: int) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """One id for every table and sample; people like items of their own parity."""
    generator = torch.Generator().manual_seed(1000 * step + rank)
    ids = {table.name: (torch.rand(BATCH, generator=generator) ** 3 * table.rows).long() for table in TABLES}
    label = ((ids["user"] + ids["item"]) % 2 == 0).float()
    return ids, label


def main() -> None:
    distributed = "WORLD_SIZE" in os.environ and int(os.environ["WORLD_SIZE"]) > 1
    if distributed:
        dist.init_process_group("gloo")
    rank = dist.get_rank() if distributed else 0

    # By default rows are sent within 0.15 % of their range, gradients within 0.06 of their RMS,
    # without bias.
    embeddings = laconic.ShardedEmbeddings(TABLES, optimizer=laconic.RowwiseAdagrad(lr=0.05))

    torch.manual_seed(0)
    scorer = Scorer()
    model = DistributedDataParallel(scorer) if distributed else scorer
    # The loss below is divided by the global batch, so gradients are summed: losslessly, in fewer
    # bytes.
    dense = laconic.register_ddp(model, reduction="sum") if distributed else None
    optimizer = torch.optim.Adagrad(scorer.parameters(), lr=0.05)

    batch = make_batch(0, rank)
    for step in range(STEPS):
        ids, label = batch
        batch = make_batch(step + 1, rank)
        rows = embeddings.start(ids)  # begin to fetch
        if step + 1 < STEPS:
            embeddings.prefetch(batch[0])  # the next batch's ids travel meanwhile
        logits = model(rows.wait())
        loss = binary_cross_entropy_with_logits(logits, label, reduction="sum") / rows.global_samples
        optimizer.zero_grad()
        loss.backward()  # gradients of rows go back to their owners, which update them
        optimizer.step()
        embeddings.optimizer.step()
        if rank == 0 and (step + 1) % 10 == 0:
            print(f"step {step + 1}: loss of rank 0 {loss.item():.4f}")

    if rank == 0:
        print(embeddings.report())
        if dense is not None:
            print(dense.report())
    if distributed:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
