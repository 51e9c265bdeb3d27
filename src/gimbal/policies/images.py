"""Images in prompts: where they are, the tokens that stand for them, and their pixels.

A row carries the paths of its images and no pixels: the trainer and the sampler read the files, and each keeps those it used last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from gimbal.records import Task, is_chat

TYPES = ("llava",)  # model types whose images are rows of pixel_values, and whose positions count tokens
KEPT = 256  # images whose pixels are kept
NEVER = -1e4  # the logit of a token that nobody may draw; finite, so that p log p of it is 0


def images_of(task: Task) -> tuple[str, ...]:
    """The paths in its column images; () where it has none."""
    found = task.columns.get("images")
    if found is None:
        return ()
    paths = [found] if isinstance(found, str) else found
    if not isinstance(paths, Sequence) or not all(isinstance(path, str) for path in paths):
        raise ValueError(
            f"the column images of task {task.id} is {found!r:.60}; it must be a list of paths of image files"
        )
    return tuple(paths)


class Images:
    """What a transformers processor makes of prompts with images."""

    def __init__(self, processor: Any) -> None:
        self.processor = processor
        self._read = lru_cache(KEPT)(self._pixels)

    def encode(self, task: Task, text: str, *, special: bool = False) -> list[int]:
        """The prompt's tokens, those that stand for images among them. ``special``: with the tokenizer's own around them."""
        paths = images_of(task)
        mark = self.processor.image_token
        if (named := text.count(mark)) != len(paths):
            raise ValueError(
                f"the prompt of task {task.id} has {named} places for images, and its column images has {len(paths)}: write {mark} "
                "where each belongs, or give a chat whose content has parts of the type image"
            )
        shown = {"images": [self._open(path) for path in paths]} if paths else {}
        return self.processor(text=[text], add_special_tokens=special, **shown)["input_ids"][0]

    def pixels(self, rows: Sequence[tuple[str, ...]], device: torch.device, dtype: torch.dtype) -> dict[str, Tensor]:
        """Keywords of the forward pass for these rows, one after the other."""
        found = [self._read(path) for paths in rows for path in paths]
        return {"pixel_values": torch.cat(found).to(device, dtype)} if found else {}

    def _pixels(self, path: str) -> Tensor:
        return self.processor.image_processor(images=[self._open(path)], return_tensors="pt")["pixel_values"]

    def _open(self, path: str) -> Any:
        from PIL import Image, UnidentifiedImageError

        try:
            with Image.open(path) as image:
                return image.convert("RGB")
        except (OSError, UnidentifiedImageError) as error:
            raise ValueError(f"the image {path} cannot be read: {error}") from error


def placed(messages: Sequence[Mapping[str, Any]], count: int) -> list[dict[str, Any]]:
    """Messages in parts; images that none of them names stand before the first words of the user."""
    assert is_chat(messages), "looked at before"
    parts = [
        [{"type": "text", "text": message["content"]}]
        if isinstance(message["content"], str)
        else list(message["content"])
        for message in messages
    ]
    named = sum(part.get("type") == "image" for content in parts for part in content)
    first = next((n for n, message in enumerate(messages) if message["role"] == "user"), None)
    if not named and first is not None:
        parts[first] = [{"type": "image"}] * count + parts[first]
    return [{**message, "content": content} for message, content in zip(messages, parts, strict=True)]


class Undrawn:
    """A hook of the output layer: neither sampler nor trainer can sample image placeholder tokens, which would have no image behind
    them."""

    def __init__(self, token: int) -> None:
        self.token = token

    def __call__(self, module: Any, given: Any, logits: Tensor) -> Tensor:
        return logits.index_fill(-1, torch.tensor([self.token], device=logits.device), NEVER)
