"""A key-value cache of fixed rows that transformers' own attention layers write into and read from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers.cache_utils import Cache

from gimbal.policies import exact
from gimbal.policies.layout import attention

EXTENT = 16  # attention reads the cache in multiples of this many positions


class SlotCache(Cache):
    """One row per live rollout; rows 0..n-1 are live. Two modes, chosen before each forward pass of the model.

    ``decode``: tokens of the rows, written at each row's own positions; attention sees the first ``extent`` positions of the live rows.
    ``collect``: a batch of prompts separate from the rows; ``place`` later copies their keys and values into rows.
    """

    def __init__(self, slots: int) -> None:
        super().__init__(layers=[])
        self.slots = slots
        self.keys: list[Tensor] = []  # by layer: [slots, heads, capacity, width]
        self.values: list[Tensor] = []
        self.capacity = 0
        self.least = 0  # capacity of the first reservation, from the run that this one continues
        self.epoch = 0  # how often its tensors were replaced
        self._collected: list[tuple[Tensor, Tensor]] | None = None
        self._row_B1 = self._position_BK = torch.empty(0, 0, dtype=torch.long)
        self._extent = 0

    def decode(self, position_BK: Int[Tensor, "B K"], extent: int) -> None:
        self._collected = None
        self._row_B1 = torch.arange(len(position_BK), device=position_BK.device)[:, None]
        self._position_BK, self._extent = position_BK, extent

    def collect(self) -> None:
        self._collected, self._extent = [], 0

    def collected(self) -> Float[Tensor, "layers two B heads L width"]:
        assert self._collected is not None
        return torch.stack([torch.stack(pair) for pair in self._collected])

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        if self._collected is not None:
            self._collected.append((key_states, value_states))
            return key_states, value_states
        keys, values = self.keys[layer_idx], self.values[layer_idx]
        keys[self._row_B1, :, self._position_BK] = key_states.transpose(1, 2)
        values[self._row_B1, :, self._position_BK] = value_states.transpose(1, 2)
        n = len(self._row_B1)
        return keys[:n, :, : self._extent], values[:n, :, : self._extent]

    def place(self, rows: list[int], prefix: Float[Tensor, "layers two heads L width"]) -> None:
        """Copy one prefix into these rows, from position 0 on."""
        length = prefix.shape[3]
        self.reserve(length, prefix)
        for layer, (keys, values) in enumerate(zip(self.keys, self.values, strict=True)):
            keys[rows, :, :length] = prefix[layer, 0]
            values[rows, :, :length] = prefix[layer, 1]

    def take(self, row: int, length: int) -> Float[Tensor, "layers two heads L width"]:
        """A copy of the first ``length`` positions of a row."""
        pairs = zip(self.keys, self.values, strict=True)
        return torch.stack([torch.stack((k[row, :, :length], v[row, :, :length])) for k, v in pairs])

    def move(self, source: int, target: int, length: int) -> None:
        for tensor in (*self.keys, *self.values):
            tensor[target, :, :length] = tensor[source, :, :length]

    def reserve(self, length: int, like: Float[Tensor, "layers two heads L width"]) -> None:
        """Makes room for ``length`` positions, by doubling. There is always room for the multiple of EXTENT that the longest row
        needs: reads must not depend on earlier rows."""
        if length <= self.capacity:
            return
        layers, _, heads, _, width = like.shape
        capacity = -(-max(length, 2 * self.capacity, self.least) // EXTENT) * EXTENT
        shape = (self.slots, heads, capacity, width)
        for name in ("keys", "values"):
            old: list[Tensor] = getattr(self, name)
            new = [like.new_zeros(shape) for _ in range(layers)]
            for grown, small in zip(new, old, strict=False):
                grown[:, :, : self.capacity] = small
            setattr(self, name, new)
        self.capacity = capacity
        self.epoch += 1

    def clear(self) -> None:
        """Release the memory, but remember the width, because reads must not depend on a pause."""
        self.least, self.capacity = self.capacity, 0
        self.keys, self.values, self._collected = [], [], None
        self.epoch += 1

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return 0  # positions and masks are always passed explicitly

    def get_mask_sizes(self, query_length: Any, layer_idx: int = 0) -> tuple[int, int]:
        return self._extent or int(query_length), 0


def read_on(
    model: Any,
    cache: SlotCache,
    id_BK: Int[Tensor, "B K"],
    position_BK: Int[Tensor, "B K"],
    extent: int,
    most: Int[Tensor, " B"] | int | None = None,
) -> Float[Tensor, "B K V"]:
    """Logits after further tokens of the live rows. ``most``: the model's last position, where padding may go beyond it."""
    cache.decode(position_BK, extent)
    place_1L = torch.arange(extent, device=position_BK.device)[None]
    within_BK = position_BK
    if most is not None:
        within_BK = position_BK.clamp(max=most) if isinstance(most, int) else position_BK.minimum(most[:, None])
    return model(
        input_ids=id_BK,
        position_ids=within_BK,
        attention_mask=attention(model, place_1L <= position_BK[..., None], position_BK, place_1L),
        past_key_values=cache,
        use_cache=True,
    ).logits


def read_first(
    model: Any, cache: SlotCache, sequences: Sequence[Tensor], **pixels: Tensor
) -> list[Float[Tensor, "layers two heads L width"]]:
    """Keys and values of each sequence, to be placed in rows: one forward pass, padded on the right."""
    cache.collect()
    model(
        input_ids=pad_sequence(list(sequences), batch_first=True),
        **pixels,
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1,
    )
    collected = cache.collected()
    return [collected[:, :, i, :, : len(ids)].clone() for i, ids in enumerate(sequences)]


_continuing: dict[str, tuple[bool, str]] = {}


def check_continues(model: Any, width: int = 1) -> None:
    """Refuse a model whose output with this cache, ``width`` tokens at a time, differs from its own single forward pass."""
    if (known := f"{width} {exact.kind(model)}") not in _continuing:
        with torch.inference_mode(), exact.narrow(model):
            ids = exact.tried(model)
            wanted = model(input_ids=ids, use_cache=False).logits[:, exact.PROMPT :]
            found, why = exact.attempted(lambda: _continued(model, ids, width))
            _continuing[known] = found is not None and not exact.far(found, wanted), why
    continues, why = _continuing[known]
    if not continues and width > 1:
        raise ValueError(
            f"{exact.name_of(model)} gives different results for several tokens of a row at once, as drafts need: "
            "set engine.drafter=None" + (f" ({why})" if why else "")
        )
    if not continues:
        kinds = vars(model.config.get_text_config()).get("layer_types") or ()
        others = ", ".join(sorted(set(kinds) - exact.LAYERS))
        raise ValueError(
            f"{exact.name_of(model)} keeps {f'layers of {others}' if others else 'a state'} that the native engine's cache of keys and "
            "values does not hold, so it would sample from another distribution than the model's: engine='VLLM()'"
            + (f" ({why})" if why else "")
        )


def _continued(model: Any, ids: Tensor, width: int) -> Tensor:
    """The logits after the prompt of ``exact.tried``, computed as the engine does."""
    cache, first = SlotCache(len(ids)), exact.PROMPT
    cache.collect()
    model(input_ids=ids[:, :first], past_key_values=cache, use_cache=True)
    collected = cache.collected()
    for row in range(len(ids)):
        cache.reserve(ids.shape[1], collected[:, :, row])
        cache.place([row], collected[:, :, row])
    logits = []
    for at in range(first, ids.shape[1], width):
        position_BK = torch.arange(at, min(at + width, ids.shape[1]), device=ids.device).repeat(len(ids), 1)
        logits.append(read_on(model, cache, ids[:, at : at + width], position_BK, cache.capacity))
    return torch.cat(logits, 1)
