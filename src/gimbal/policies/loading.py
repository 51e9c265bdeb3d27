"""What can be wrong with a model's directory or name, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

TINY = "gimbal-tiny"  # the model shipped in the package
HUB_SECONDS = 10.0  # for the hub to say whether it has a model


def hub_has(name: str) -> None:
    """Refuse at once a name that is no directory and that the hub cannot give: transformers would ask again for a minute."""
    from huggingface_hub import HfApi, try_to_load_from_cache

    try:
        if not isinstance(try_to_load_from_cache(name, "config.json"), str):  # where it lies, if it was fetched before
            HfApi().model_info(name, timeout=HUB_SECONDS)
    except (
        Exception
    ) as error:  # of the hub's client or of the HTTP library under it: each means that there is no such model to be had
        why = " ".join(str(error).split())[:120]
        raise ValueError(
            f"there is no model directory {name}, and the Hugging Face hub gives no model of that name ({why}); "
            f"give policy.model=DIRECTORY, or {TINY}"
        ) from error


@contextmanager
def quiet(logging: Any) -> Iterator[None]:
    """Without transformers' table of what did not fit, which the refusal says in a sentence."""
    level = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)


def said(error: Exception) -> str:
    return f"it lacks {error}" if isinstance(error, KeyError) else str(error) or type(error).__name__


def unfit(found: Mapping[str, Any]) -> str:
    """What a model's description and its weights do not have in common, by what ``from_pretrained`` says of its loading."""
    shapes = [
        f"{name} is {list(theirs)} in the file and {list(ours)} in config.json"
        for name, theirs, ours in found["mismatched_keys"]
    ]
    said = {
        "no weights for": some(sorted(found["missing_keys"])),  # they would be drawn at random, and trained from there
        "no place for": some(sorted(found["unexpected_keys"])),
        "another shape": some(sorted(shapes)),
    }
    return "; ".join(f"{what} {names}" for what, names in said.items() if names)


def some(names: Sequence[str], most: int = 3) -> str:
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest
