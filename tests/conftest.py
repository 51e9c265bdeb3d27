"""Shapes are checked in every test: jaxtyping's annotations, by beartype, over the whole package."""

import os

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest
import torch
from jaxtyping import install_import_hook

# pytest-xdist starts as many processes as there are cores; one thread each keeps them out of one another's way.
torch.set_num_threads(1)
torch.set_flush_denormal(True)
_hook = install_import_hook("gimbal", "beartype.beartype")

from gimbal.config import catalogue

# It parses every module once. CPython 3.11 loses count where another thread (a test's server, importing) parses at the same time.
catalogue()


def pytest_collection_modifyitems(items):
    """Slow tests first: several processes then end at about the same time."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.fixture(scope="session", autouse=True)
def one_core():
    """A run that chooses its threads finds one core, so that it leaves the others to the tests beside it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "sched_getaffinity", lambda pid: {0})
        yield


@pytest.fixture
def single_thread():
    """Numbers to the bit: one thread, whatever ran before."""
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(1)
