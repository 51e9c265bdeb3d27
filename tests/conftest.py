"""Shapes are checked in every test: jaxtyping's annotations, by beartype, over the whole package."""

import os

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import inspect
import re

import jaxtyping
import pytest
import torch
from beartype import BeartypeConf, beartype

# pytest-xdist starts as many processes as there are cores; one thread each keeps them out of one another's way.
torch.set_num_threads(1)
torch.set_flush_denormal(True)
jaxtyped, plain = jaxtyping.jaxtyped, beartype(conf=BeartypeConf(violation_type=jaxtyping.TypeCheckError))


def checked(*, typechecker):
    """Shapes are jaxtyping's to check. Its wrapper costs 15 us a call, so what names none is left to beartype alone."""

    def decorate(thing):
        if "<locals>" in thing.__qualname__:
            return thing  # it would be wrapped anew, for a millisecond or five, in every call of what it stands in
        # A class may name in text what it imports from nowhere, and a module what it imports for pyright: jaxtyping passes over both.
        shapes = inspect.isclass(thing) or "TYPE_CHECKING" in thing.__globals__
        shapes = shapes or re.search(r"(Tensor|[aA]rray), ", repr(thing.__annotations__))
        return jaxtyped(thing, typechecker=typechecker) if shapes else plain(thing)

    return decorate


jaxtyping.jaxtyped = checked  # by this name the hook finds it
jaxtyping.install_import_hook("gimbal", "beartype.beartype")

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
