"""Where tensors live and how many threads work on them."""

from __future__ import annotations

import os
import resource

import torch


def prepare(threads: int) -> torch.device:
    """Set torch's threads (0: one less than there are cores, at most 3) and find the device.

    Small models gain little beyond 3 threads, and with as many threads as cores every other busy process, the reward worker first,
    makes all of them wait: 40 times slower was seen. Denormal numbers, which Adam's second moments reach, cost tens of times a
    normal multiplication on many CPUs, so they are flushed to 0. Processes that torchrun started on one machine divide its cores.
    """
    cores = len(os.sched_getaffinity(0)) // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    torch.set_num_threads(threads or max(1, min(4, cores) - 1))
    torch.set_flush_denormal(True)
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def peak_memory_mb() -> float:
    """The most main memory this process has held, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
