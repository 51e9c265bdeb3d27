import gc
import os

import pytest

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def pytest_configure(config):
    """In every process that runs tests; pytest-xdist's first one only hands them out. Nothing that is imported goes away again:
    the collector passes over it, which otherwise takes a tenth of all time."""
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        gc.disable()
        import shapes  # noqa: F401


@pytest.hookimpl(optionalhook=True)  # without pytest-xdist there is no such hook
def pytest_xdist_auto_num_workers():
    """One more than there are cores. With as many, `make test` used 870 of the 1,240 seconds that two cores had: tests wait for
    processes that start, end or hang."""
    return (os.cpu_count() or 1) + 1


def pytest_collection_finish(session):
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items):
    """Slow tests first: several processes then end at about the same time."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.fixture(scope="session", autouse=True)
def one_core():
    """A run that chooses its threads finds one core, so that it leaves the others to the tests beside it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "sched_getaffinity", lambda pid: {0})
        patch.setattr("gimbal.waiting.AFTER", 600.0)  # what a slow machine adds to stderr is no part of what is tested
        yield


@pytest.fixture
def single_thread():
    """Numbers bit for bit: one thread, whatever ran before."""
    import torch

    torch.set_num_threads(1)
    yield
    torch.set_num_threads(1)
