"""Where tensors live and how many threads work on them."""

from __future__ import annotations

import os
import resource

import torch


def chosen(share: int = 1) -> int:
    """The threads of a run that leaves them open: one less than there are cores, at most 3. ``share`` runs divide the cores, as
    processes do that torchrun started on one machine.

    Small models gain little beyond 3 threads, and with as many threads as cores every other busy process, the reward worker first,
    makes all of them wait: 40 times slower was seen. A run saves the number: sums in another order round otherwise, and so its
    results depend on it.
    """
    cores = len(os.sched_getaffinity(0)) // (share * int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    return max(1, min(4, cores) - 1)


def prepare(threads: int) -> torch.device:
    """Set torch's threads (0 chooses) and find the device.

    Denormal numbers, which Adam's second moments reach, cost tens of times a normal multiplication on many CPUs, so they are
    flushed to 0.
    """
    torch.set_num_threads(threads or chosen())
    torch.set_flush_denormal(True)
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def peak_memory_mb() -> float:
    """The most main memory this process has held, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
