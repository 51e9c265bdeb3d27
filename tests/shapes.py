"""Shapes are checked in every test: jaxtyping's annotations, by beartype, over the whole package. Imported before it."""

import dataclasses
import functools
import inspect
import re
import types

import jaxtyping
import torch
from beartype import BeartypeConf, beartype
from jaxtyping._decorator import _destring_annotation
from jaxtyping._storage import pop_shape_memo, push_shape_memo

# pytest-xdist starts as many processes as there are cores; one thread each keeps them out of one another's way.
torch.set_num_threads(1)
torch.set_flush_denormal(True)
jaxtyped, plain = jaxtyping.jaxtyped, beartype(conf=BeartypeConf(violation_type=jaxtyping.TypeCheckError))


def checked(*, typechecker):
    """Shapes are jaxtyping's to check. What names none is left to beartype alone."""

    def decorate(thing):
        if inspect.isclass(thing):
            inherited = hasattr(thing.__init__, "once")  # and wrapped there
            if dataclasses.is_dataclass(thing) and not inherited:
                thing.__init__ = once(thing.__init__)
            return thing
        if not inspect.isfunction(thing):
            return jaxtyped(thing, typechecker=typechecker)
        if "<locals>" in thing.__qualname__:
            return thing  # it would be wrapped again, for a millisecond or five, in every call of what it stands in
        # A module may name in text what it imports for types only: `once` passes over it, beartype would not.
        shapes = "TYPE_CHECKING" in thing.__globals__ or re.search(r"(Tensor|[aA]rray), ", repr(thing.__annotations__))
        if not shapes:
            return plain(thing)
        return jaxtyped(thing, typechecker=typechecker) if inspect.isgeneratorfunction(thing) else once(thing)

    return decorate


def once(function):
    """As jaxtyping checks a function, but arguments once and not twice, and without binding them to their names, for which only sizes
    like "{n}" ask. A small update spends half of its time on shapes with jaxtyping's own wrapper, and a quarter with this."""
    defaults, closure = function.__defaults__, function.__closure__
    copy = types.FunctionType(function.__code__, function.__globals__, function.__name__, defaults, closure)
    for name in ("__kwdefaults__", "__qualname__", "__module__"):
        setattr(copy, name, getattr(function, name))
    hints = function.__annotations__.items()
    copy.__annotations__ = {name: _destring_annotation(hint, function.__globals__) for name, hint in hints}
    inner = plain(copy)

    @functools.wraps(function)
    def wrapped(*args, **kwargs):
        push_shape_memo({})
        try:
            return inner(*args, **kwargs)
        finally:
            pop_shape_memo()

    wrapped.once = True
    return wrapped


jaxtyping.jaxtyped = checked  # by this name the hook finds it
jaxtyping.install_import_hook("gimbal", "beartype.beartype")

from gimbal.config import catalogue

# It parses every module once. CPython 3.11 loses count where another thread (a test's server, importing) parses at the same time.
catalogue()
