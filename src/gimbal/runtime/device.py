"""The device for tensors and the number of threads."""

from __future__ import annotations

import os
import resource

import torch


def chosen(share: int = 1) -> int:
    """The number of threads for a run that leaves it open: the cores minus one, at most 3. ``share`` runs divide the cores, as
    do torchrun's processes on one machine.

    Small models gain little beyond 3 threads, and with as many threads as cores any other busy process, such as the reward worker,
    makes all of them wait: up to 40 times slower. A run saves the number, because sums in another order round differently and
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
    """This process's peak main memory, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
