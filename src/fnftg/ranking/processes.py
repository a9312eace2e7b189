"""Ranking with several processes: each embeds and ranks a share, and all receive the whole result."""

from __future__ import annotations

import atexit
import os
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed

from fnftg.arrays import AnyArray


@dataclass(frozen=True)
class Processes:
    """The number of processes and the rank of this one."""

    rank: int = 0
    count: int = 1

    @classmethod
    def started(cls) -> Processes:
        """Return the processes that torchrun started, or this one alone."""
        count = int(os.environ.get("WORLD_SIZE", "1"))
        if count == 1:
            return cls()
        if not torch.distributed.is_initialized():
            torch.distributed.init_process_group("gloo")
            atexit.register(torch.distributed.destroy_process_group)  # its threads must end before Python does
            torch.set_num_threads(max(1, (os.cpu_count() or 1) // int(os.environ.get("LOCAL_WORLD_SIZE", count))))
        return cls(torch.distributed.get_rank(), count)

    def share(self, size: int, rank: int | None = None) -> slice:
        """Return the part of range(size) that a process works on, by default this one."""
        rank = self.rank if rank is None else rank
        return slice(size * rank // self.count, size * (rank + 1) // self.count)

    def gathered(self, own: AnyArray, size: int) -> AnyArray:
        """Gather the shares of all processes, in order, given the share of this one: (size, …)."""
        if self.count == 1:
            return own
        shares = [self.share(size, rank) for rank in range(self.count)]
        longest = max(share.stop - share.start for share in shares)
        padded = np.zeros((longest, *own.shape[1:]), own.dtype)
        padded[: len(own)] = own
        received = [torch.empty(padded.shape, dtype=torch.from_numpy(padded).dtype) for _ in shares]
        torch.distributed.all_gather(received, torch.from_numpy(padded))
        return np.concatenate(
            [part.numpy()[: share.stop - share.start] for part, share in zip(received, shares, strict=True)]
        )
