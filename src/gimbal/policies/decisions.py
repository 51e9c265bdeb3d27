"""Decisions of a token policy, as rows of ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor, nn

from gimbal.records import AbstractDecisions


@dataclass(frozen=True, kw_only=True)
class Tokens(AbstractDecisions):
    """Token ids of prompt and decisions in one right-padded row; decision s of row n is ``ids_NL[n, prompt_N[n] + s]``."""

    ids_NL: Int[Tensor, "N L"]
    prompt_N: Int[Tensor, " N"]  # length of the prompt
    length_N: Int[Tensor, " N"]  # of prompt and decisions together
    images_N: tuple[tuple[str, ...], ...] = ()  # paths of the images in each row's prompt; () where no row has any

    @classmethod
    def row(cls, prompt: Sequence[int], decisions: Sequence[int], images: tuple[str, ...] = ()) -> Tokens:
        ids = torch.tensor([[*prompt, *decisions]])
        length_N = torch.tensor([ids.shape[1]])
        return cls(
            ids_NL=ids, prompt_N=torch.tensor([len(prompt)]), length_N=length_N, images_N=(images,) * bool(images)
        )

    @property
    def pictures_N(self) -> tuple[tuple[str, ...], ...]:
        return self.images_N or ((),) * len(self.length_N)

    @property
    def where(self) -> tuple[Tensor, Tensor, Tensor, tuple[tuple[str, ...], ...]]:
        """What a layout is made of."""
        return self.ids_NL, self.prompt_N, self.length_N, self.images_N

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.length_N), int((self.length_N - self.prompt_N).max())

    @property
    def cost_N(self) -> Int[Tensor, " N"]:
        return self.length_N

    @property
    def label_NS(self) -> Int[Tensor, "N S"]:
        place_NS = self.prompt_N[:, None] + torch.arange(self.shape[1], device=self.ids_NL.device)
        return self.ids_NL.gather(1, place_NS.clamp(max=self.ids_NL.shape[1] - 1))

    def select(self, rows: Int[Tensor, " M"]) -> Tokens:
        length_N = self.length_N[rows]
        ids_NL = self.ids_NL[rows, : int(length_N.max())]
        images_N = tuple(self.images_N[row] for row in rows.tolist()) if self.images_N else ()
        return Tokens(ids_NL=ids_NL, prompt_N=self.prompt_N[rows], length_N=length_N, images_N=images_N)

    @classmethod
    def stack(cls, items: Sequence[Tokens]) -> Tokens:  # pyrefly: ignore[bad-override]; a batch is of one kind
        longest = max(item.ids_NL.shape[1] for item in items)
        padded = [nn.functional.pad(item.ids_NL, (0, longest - item.ids_NL.shape[1])) for item in items]
        return Tokens(
            ids_NL=torch.cat(padded),
            prompt_N=torch.cat([item.prompt_N for item in items]),
            length_N=torch.cat([item.length_N for item in items]),
            images_N=tuple(row for item in items for row in item.pictures_N)
            if any(item.images_N for item in items)
            else (),
        )

    def to(self, device: torch.device) -> Tokens:
        return Tokens(
            ids_NL=self.ids_NL.to(device),
            prompt_N=self.prompt_N.to(device),
            length_N=self.length_N.to(device),
            images_N=self.images_N,
        )
