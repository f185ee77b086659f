"""What a failed collective means to the user."""

from __future__ import annotations

import re

import torch.distributed as dist

from laconic.errors import CommError

__all__ = ["is_lost_peer", "lost_peer"]

_SIGNS = (
    "gloo", "Gloo", "Connection closed by peer", "Connection reset by peer", "Broken pipe", "Timed out waiting",
)  # fmt: skip


def is_lost_peer(error: BaseException) -> bool:
    """Whether an error of torch means that another rank or the way to it is gone."""
    text = str(error)
    return isinstance(error, dist.DistError) or any(sign in text for sign in _SIGNS)


def lost_peer(where: str, rank: int, error: BaseException) -> CommError:
    """Say what a failed collective means to the user."""
    text = (
        str(error).strip().removeprefix("Got the following error when running the callback: RuntimeError: ")
    )
    cause = re.sub(r"\[[^]]*\.\w+:\d+\] ", "", text.splitlines()[0]) if text else type(error).__name__
    return CommError(
        f"{where}: rank {rank} lost a peer ({cause.split('. This is typically')[0]}); a rank or a link is down, "
        "see the first error of the other ranks; continue from the last checkpoint with --resume"
    )
