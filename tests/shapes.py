"""Shapes are checked in every test: jaxtyping's annotations, by beartype, over the whole package. Imported before it."""

import inspect
import re

import jaxtyping
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
            return thing  # it would be wrapped again, for a millisecond or five, in every call of what it stands in
        # A class may name in text what it imports from nowhere, and a module what it imports for types: jaxtyping passes over both.
        shapes = inspect.isclass(thing) or "TYPE_CHECKING" in thing.__globals__
        shapes = shapes or re.search(r"(Tensor|[aA]rray), ", repr(thing.__annotations__))
        return jaxtyped(thing, typechecker=typechecker) if shapes else plain(thing)

    return decorate


jaxtyping.jaxtyped = checked  # by this name the hook finds it
jaxtyping.install_import_hook("gimbal", "beartype.beartype")
