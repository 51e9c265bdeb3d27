"""Reads language models from a directory or the Hub, and says in a sentence what is wrong with one."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from gimbal.config.own import out_of_memory, some
from gimbal.policies.diffusers import not_diffused
from gimbal.policies.images import TYPES
from gimbal.policies.lora import base_of, quiet_bitsandbytes, whole_model

TOKENIZERS = ("tokenizer*", "vocab*", "merges.txt", "*.model", "*.tiktoken")  # files that are one, or a part of one
TINY, AGENT, PLAYER, TEACHER = "gimbal-tiny", "gimbal-tiny-agent", "gimbal-tiny-player", "gimbal-tiny-teacher"
MEMORY, LEDUC = "gimbal-tiny-memory", "gimbal-tiny-leduc"
SHIPPED = (TINY, AGENT, PLAYER, TEACHER, MEMORY, LEDUC)  # the causal language models in the package
MASKED, SCALES, ROUTES = "gimbal-sudoku", "gimbal-scales", "gimbal-routes"  # and the masked ones
HUB_SECONDS = 10.0  # to wait for the Hub


quiet_bitsandbytes()  # before transformers or diffusers import it


def description(path: str) -> Mapping[str, Any]:
    """The config.json of a directory (for an adapter that of its base model); empty if there is none, which loading then reports."""
    try:
        said = json.loads((Path(base_of(path) or path) / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return said if isinstance(said, dict) else {}


def sees(path: str) -> bool:
    """Whether it takes images, of a kind of model that gimbal can give them to."""
    return description(path).get("model_type") in TYPES


def read(path: str, dtype: torch.dtype, fresh: int | None, *, masked: bool = False) -> tuple[Any, Any, Any]:
    """(model, tokenizer, image processor or None) from a directory or the Hub. ``fresh``: draw the weights from this seed. ``masked``:
    a masked language model, not a causal one."""
    # Imported here because it takes a second, and from modules because a type checker would otherwise read every architecture.
    from transformers.models.auto.configuration_auto import AutoConfig
    from transformers.models.auto.modeling_auto import (
        AutoModelForCausalLM,
        AutoModelForImageTextToText,
        AutoModelForMaskedLM,
    )
    from transformers.models.auto.tokenization_auto import AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()  # it would tear the live console
    ours = MASKED if masked else TINY
    check_files(path, ours)
    local = Path(path)
    adapter = (local / "adapter_config.json").is_file()
    if not local.exists():
        hub_has(path, ours)
    try:
        processor = _processor(path) if sees(path) else None
        tokenizer = AutoTokenizer.from_pretrained(path) if processor is None else processor.tokenizer
        kind = AutoModelForCausalLM if processor is None else AutoModelForImageTextToText
        kind = AutoModelForMaskedLM if masked else kind
        if fresh is not None:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(fresh)
                model = kind.from_config(AutoConfig.from_pretrained(path))
            assert tokenizer is not None, "it would have raised"
            if not masked:
                model.generation_config.eos_token_id = tokenizer.eos_token_id
            return model.to(dtype).eval(), tokenizer, processor
        if adapter:
            model, wrong = whole_model(path, kind, dtype=dtype), ""
        else:
            with quiet(logging):
                model, found = kind.from_pretrained(
                    path,
                    dtype=dtype,
                    ignore_mismatched_sizes=True,  # they are told below, by name
                    output_loading_info=True,
                )
            wrong = unfit(found)
    except Exception as error:
        # For missing, malformed and truncated files transformers raises whatever its parsing met: a KeyError, a SafetensorError.
        if out_of_memory(error):
            raise
        where = (
            "" if local.exists() else " (no directory here has that name, so it was looked up on the Hugging Face Hub)"
        )
        what = "masked" if masked else "causal"
        raise ValueError(f"{path}{where} cannot be loaded as a {what} language model: {said(error)}") from error
    if wrong:
        raise ValueError(f"the weights in {path} do not match its config.json: {wrong}")
    if broken := [name for name, x in model.state_dict().items() if not bool(torch.isfinite(x).all())]:
        raise ValueError(f"the weights in {path} are not all finite numbers: {some(broken)}")
    return model.eval(), tokenizer, processor


def _processor(path: str) -> Any:
    from transformers.models.auto.processing_auto import AutoProcessor  # half a second, and text needs none

    return AutoProcessor.from_pretrained(path)


def check_files(path: str, ours: str = TINY) -> None:
    """Refuse a name that cannot be a model, as far as that is known without network access or reading weights. ``ours``: the
    package's model of its kind."""
    if not path.strip():
        raise ValueError(f"policy.model is empty; give policy.model=DIRECTORY, or {ours}")
    local = Path(path)
    adapter = (local / "adapter_config.json").is_file()
    not_diffused(path)
    if local.exists() and not adapter and not (local / "config.json").is_file():
        raise ValueError(f"{path} has no config.json; policy.model must be a transformers model directory")
    if not local.exists() and (local.is_absolute() or path.startswith(".")):
        raise ValueError(f"there is no model directory {path}; give policy.model=DIRECTORY, or {ours}")
    if local.exists() and not adapter and not any(file for kind in TOKENIZERS for file in local.glob(kind)):
        # transformers makes up an empty one for some architectures, and speaks of packages to install for others.
        raise ValueError(f"{path} has no tokenizer; save it next to the weights: tokenizer.save_pretrained({path!r})")


def hub_has(name: str, ours: str = TINY) -> None:
    """Refuse a name that is no directory and not on the Hub at once: transformers would retry for a minute."""
    from huggingface_hub import HfApi, try_to_load_from_cache

    try:
        if not isinstance(try_to_load_from_cache(name, "config.json"), str):  # its path, if it was downloaded before
            HfApi().model_info(name, timeout=HUB_SECONDS)
    except Exception as error:
        # Whatever the Hub's client or its HTTP library raises: there is no such model.
        why = textwrap.shorten(str(error).split(". ")[0], 160, placeholder=" ...")
        raise ValueError(
            f"there is no model directory {name}, and the Hugging Face Hub has no model of that name ({why}); "
            f"give policy.model=DIRECTORY, or {ours}"
        ) from error


@contextmanager
def quiet(logging: Any) -> Iterator[None]:
    """Without transformers' table of mismatches, which the refusal states in a sentence."""
    level = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)


def said(error: Exception) -> str:
    return f"it lacks {error}" if isinstance(error, KeyError) else str(error) or type(error).__name__


def unfit(found: Mapping[str, Any]) -> str:
    """How the weights differ from config.json, by the report of ``from_pretrained``."""
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
