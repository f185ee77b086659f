"""Dense gradients: the sum over ranks, for a loss that is a mean over the global batch.

``DistributedDataParallel`` averages the ranks' gradients, which is a mean of means: wrong as soon
as ranks have different numbers of samples. With this hook and a loss that every rank divides by the
*global* number of samples, uneven and empty ranks weigh what they should::

    model = DistributedDataParallel(model)
    model.register_comm_hook(None, laconic.sum_gradients)
"""

# DDP reads the hook's annotations, so they must not become strings
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

__all__ = ["sum_gradients"]


def sum_gradients(group: Any, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:  # type: ignore[name-defined]
    """Return a bucket's sum over all ranks: a hook of ``DistributedDataParallel``.

    Its state is a process group; None: the default group.

    >>> model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
    >>> model.register_comm_hook(None, laconic.sum_gradients)
    >>> model(torch.tensor([[1.0, 2.0], [3.0, 4.0]])).sum().backward()
    >>> model.module.weight.grad
    tensor([[4., 6.]])
    """
    work = dist.all_reduce(bucket.buffer(), group=group, async_op=True)
    return work.get_future().then(lambda done: done.value()[0])  # type: ignore[no-any-return]
