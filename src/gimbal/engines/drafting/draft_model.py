"""Drafts by a smaller model that is trained on the drafts that were tested."""

from __future__ import annotations

import copy
import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.checkpoint import checkpoint

from gimbal.composition import Composition, Refusal, Verdict
from gimbal.engines.base import Request
from gimbal.engines.cache import EXTENT, SlotCache, check_continues, read_first, read_on
from gimbal.engines.drafting.base import AbstractDrafter, AbstractDrafts, Costs, Fronts, read
from gimbal.ops.seeds import stable_hash
from gimbal.policies import loading, logits
from gimbal.policies.token import CausalLM

UNREAD = -1  # where no token stands


@dataclass(frozen=True, kw_only=True)
class DraftModel(AbstractDrafter):
    """Drafts with a smaller language model, which is trained during the run on the drafts that were tested (Draft-OPD).

    A block is what was drafted for a row in one pass, h of its tokens accepted. With p the policy's distribution at position k of
    the block and q the drafter's, both behind the same drafted tokens:

        L = (A + rejected R) / (1 + rejected)
        A = mean of KL(p || q) over accepted positions, k < h
        R = sum decay^(k - h) KL(q || p) / sum decay^(k - h)  over rejected positions, k >= h

    When new weights arrive, the drafter takes an AdamW step of ``learning_rate`` on each ``minibatch`` of blocks; p is by the new
    weights. Up to ``blocks`` blocks are kept from one arrival to the next, drawn uniformly from all. In its first ``warmup`` arrivals
    it learns from whole answers instead, which count as accepted: A alone. p and q are at temperature 1, without truncation.

    - ``learning_rate`` = 0: a drafter that stays as it is.
    - ``rejected`` = 0: forward KL where the drafter was right.
    - ``layers`` as many as the policy has: it costs as much as the policy, and nothing is drafted.

    ``model`` is a directory with a causal language model with the policy's tokenizer, or one of those in the package, for which
    ``warmup=0`` is enough; "" copies the policy as it is when the run starts, with its first ``layers`` layers only. The drafter is
    held and trained in float32, on the sampler's device; each sampler trains its own. It takes 16 bytes of memory per weight, and a
    cache of keys and values. A block costs a forward pass of both models and a backward pass of the drafter over the row's text up to
    there. Where drafting does not pay, the only blocks are of the passes that try it again.

    Published: blocks of 16, ``decay`` 0.8, ``rejected`` 1, ``learning_rate`` 3e-4, a warm-up of 6 epochs. Ours: ``blocks``,
    ``minibatch`` and ``warmup``. A token counts as accepted if the policy samples it by the same random number; published: if it is
    the likeliest.

    Draft-OPD (arXiv:2605.29343).

    Confidence: verified
    """

    model: str = ""
    layers: int = 1
    learning_rate: float = 3e-4
    blocks: int = 128
    minibatch: int = 32
    warmup: int = 20
    decay: float = 0.8
    rejected: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        counts = {"layers": self.layers, "blocks": self.blocks, "minibatch": self.minibatch}
        if min(counts.values()) < 1 or self.warmup < 0:
            said = ", ".join(f"{name}={count}" for name, count in counts.items())
            raise ValueError(
                f"engine.drafter has {said} and warmup={self.warmup}; these are 1 or more, warmup 0 or more"
            )
        if self.model and self.layers > 1:
            raise ValueError(
                f"engine.drafter.layers is {self.layers}, but the drafter {self.model} keeps all its layers; layers is for a copy of "
                "the policy: leave out one of the two"
            )
        if self.minibatch > self.blocks:
            raise ValueError(
                f"engine.drafter.minibatch is {self.minibatch}, and engine.drafter.blocks keeps {self.blocks}: set it to that or less"
            )
        if not (0 <= self.decay <= 1 and 0 <= self.rejected < float("inf") and 0 <= self.learning_rate < 1):
            raise ValueError(
                f"engine.drafter has decay={self.decay}, rejected={self.rejected} and learning_rate={self.learning_rate}; decay is "
                "from 0 to 1, rejected 0 or more, learning_rate 0 or more and below 1"
            )

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        policy = whole.run.policy
        if not isinstance(policy, CausalLM):
            return
        if policy.vision:
            yield Refusal(
                f"engine.drafter=DraftModel() reads text only, and {policy.model} takes images: engine.drafter='PromptLookup()'"
            )
        elif self.model and self._words() != _words(policy.path):
            yield Refusal(
                f"the drafter {self.model} has another tokenizer than the policy {policy.model}, and a draft is made of the policy's "
                "tokens: engine.drafter='DraftModel(layers=1)' drafts with the first layer of the policy"
            )

    def _words(self) -> Mapping[str, int]:
        try:
            return _words(self._path)
        except ValueError as error:
            raise ValueError(
                f"engine.drafter.model: {str(error).replace('policy.model', 'engine.drafter.model')}"
            ) from error

    @property
    def _path(self) -> str:
        return CausalLM(model=self.model).path

    def start(self, model: Any) -> tuple[AbstractDrafts, Costs]:
        drafter = loading.read(self._path, torch.float32, None)[0] if self.model else shortened(model, self.layers)
        own, its = (m.config.get_text_config().max_position_embeddings for m in (drafter, model))
        if own < its:
            raise ValueError(
                f"the drafter {self.model} supports {own:,} tokens and the policy {its:,}: give engine.drafter.model=DIRECTORY of one "
                "that supports as many, or leave it out"
            )
        drafter.to(next(model.parameters()).device)
        check_continues(drafter, width=3)
        return Distilled(self, drafter, model), self.costs(model, draft=read(drafter), drafter=drafter)


def _words(path: str) -> Mapping[str, int]:
    """The vocabulary of the tokenizer in this directory."""
    from transformers.models.auto.tokenization_auto import AutoTokenizer

    loading.check_files(path)
    if not Path(path).exists():
        loading.hub_has(path)
    tokenizer: Any = AutoTokenizer.from_pretrained(path)
    return tokenizer.get_vocab()


def shortened(model: Any, layers: int) -> Any:
    """A copy in float32 with its first layers only."""
    small: Any = copy.deepcopy(model).float()
    config = small.config.get_text_config()
    count = config.num_hidden_layers
    stacks = [m for m in small.modules() if isinstance(m, nn.ModuleList) and len(m) == count]
    if layers > count:
        raise ValueError(f"engine.drafter.layers is {layers}, and the policy has {count} layers: give at most as many")
    if len(stacks) != 1:
        raise ValueError(
            f"of a {config.model_type} the first layers alone are no model that gimbal knows: engine.drafter.model=DIRECTORY of a "
            "smaller model"
        )
    del stacks[0][layers:]
    config.num_hidden_layers = layers
    if kinds := vars(config).get("layer_types"):
        config.layer_types = kinds[:layers]
    return small


@dataclass(frozen=True, order=True)
class Block:
    """Tokens of a row up to the end of a draft, which begins at ``start``; ``right`` of it were accepted."""

    ids: tuple[int, ...]
    start: int
    right: int


class Distilled(AbstractDrafts):
    """The live drafter: the model, its cache and optimiser, and what was tested since the policy's last weights."""

    def __init__(self, spec: DraftModel, module: Any, target: Any) -> None:
        self.spec, self.module, self.target = spec, module.eval().requires_grad_(True), target
        self.optimizer = torch.optim.AdamW(
            module.parameters(), lr=spec.learning_rate, betas=(0.9, 0.95), weight_decay=0.0, fused=True
        )
        self.positions = module.config.get_text_config().max_position_embeddings
        self.kept: list[tuple[int, Block]] = []  # a heap: the one that is next to go comes first
        self.proposed: tuple[Fronts, list[list[int]]] | None = None
        self.taken = 0  # how often it has learned
        self.losses: list[float] = []  # since the metrics were read
        self.rest()

    def rest(self) -> None:
        self.cache: SlotCache | None = None
        # Which token is in the cache, UNREAD: none.
        self.fed_BL: Int[Tensor, "B L"] = torch.zeros(0, 0, dtype=torch.long)

    def moved(self, source: int, target: int) -> None:
        if self.cache is not None and max(source, target) < len(self.fed_BL):
            self.cache.move(source, target, min(self.cache.capacity, self.fed_BL.shape[1]))
            self.fed_BL[target] = self.fed_BL[source]

    def propose(self, fronts: Fronts, most: Sequence[int]) -> list[list[int]]:
        known_B, known = fronts.known_B, fronts.known_B.tolist()
        longest = max(known) + max(most)
        extent = -(-longest // EXTENT) * EXTENT
        cache, held_B = self._caught_up(fronts, extent)
        width = int((known_B - held_B).max())
        position_BK = held_B[:, None] + torch.arange(width, device=known_B.device)
        id_BK = fronts.ids_BL.gather(1, position_BK)
        logits_BKV = read_on(self.module, cache, id_BK, position_BK, extent, self.positions - 1)
        # What fills a row up is overwritten when its place is known.
        self._feed(position_BK, id_BK.where(position_BK < known_B[:, None], UNREAD))
        live = torch.arange(len(known), device=known_B.device)
        id_B = fronts.sample(logits_BKV[live, known_B - held_B - 1], 0)
        drafted = [id_B]
        for step in range(1, max(most)):
            position_B1 = (known_B + step - 1)[:, None]
            logits_BKV = read_on(self.module, cache, id_B[:, None], position_B1, extent, self.positions - 1)
            self._feed(position_B1, id_B[:, None])
            drafted.append(id_B := fronts.sample(logits_BKV[:, -1], step))
        ends = set(fronts.ends.tolist())
        rows = torch.stack(drafted, 1).tolist()
        drafts = [_ended(row[:count], ends) for row, count in zip(rows, most, strict=True)]
        self.proposed = fronts, drafts
        return drafts

    def _caught_up(self, fronts: Fronts, extent: int) -> tuple[SlotCache, Tensor]:
        """The cache, and how many tokens of each row it holds: of what is known all but the newest few."""
        known_B, rows, columns = fronts.known_B, *fronts.ids_BL.shape
        if self.cache is None:
            self.cache = SlotCache(fronts.slots)
            self.fed_BL = torch.zeros(0, 0, dtype=torch.long, device=known_B.device)
        if (grow := max(0, rows - len(self.fed_BL))) or columns > self.fed_BL.shape[1]:
            wider = max(0, columns - self.fed_BL.shape[1])
            self.fed_BL = nn.functional.pad(self.fed_BL, (0, wider, 0, grow), value=UNREAD)
        if 0 < self.cache.capacity < columns:
            self.cache.reserve(columns, self.cache.take(0, 0))
        same_BL = self.fed_BL[:rows, :columns] == fronts.ids_BL
        held_B = same_BL.cumprod(1).sum(1).minimum(known_B - 1)
        cache, behind_B = self.cache, known_B - 1 - held_B > self.spec.longest
        if cache.capacity == 0:
            behind_B |= True
        if found := behind_B.nonzero()[:, 0].tolist():
            texts = [fronts.ids_BL[row, : max(1, int(known_B[row]) - 1)] for row in found]
            for row, text, prefix in zip(found, texts, read_first(self.module, cache, texts), strict=True):
                cache.reserve(max(columns, extent), prefix)
                cache.place([row], prefix)
                self.fed_BL[row] = UNREAD
                self.fed_BL[row, : len(text)] = text
                held_B[row] = int(known_B[row]) - 1
        return cache, held_B

    def _feed(self, position_BK: Tensor, id_BK: Tensor) -> None:
        self.fed_BL[: len(id_BK)].scatter_(1, position_BK, id_BK)

    def verified(self, token_BK: Int[Tensor, "B K"]) -> None:
        assert self.proposed is not None, "drafts come before their test"
        fronts, drafts = self.proposed
        self.proposed = None
        if self.warming or self.spec.learning_rate == 0:
            return
        starts = fronts.known_B.tolist()
        for row, (request, draft, drawn) in enumerate(zip(fronts.requests, drafts, token_BK.tolist(), strict=True)):
            if draft:
                right = next((k for k, token in enumerate(draft) if token != drawn[k]), len(draft))
                self._keep(request, starts[row], right, fronts.ids_BL[row, : starts[row]], draft)

    def ended(self, request: Request, ids: Sequence[int], prompt: int) -> None:
        if self.warming and len(ids) > prompt:
            self._keep(request, prompt, len(ids) - prompt, torch.tensor(ids[:prompt]), ids[prompt:])

    @property
    def warming(self) -> bool:
        return self.taken < self.spec.warmup and self.spec.learning_rate > 0

    def _keep(self, request: Request, start: int, right: int, before_L: Tensor, draft: Sequence[int]) -> None:
        """Keep this block if its hash, by row and position, is among the smallest so far: a uniform choice that a resume repeats."""
        place = -stable_hash("block", *request.stream, start)
        full = len(self.kept) == self.spec.blocks
        if full and place < self.kept[0][0]:
            return
        block = Block((*before_L.tolist(), *draft), start, right)
        (heapq.heapreplace if full else heapq.heappush)(self.kept, (place, block))

    def load(self) -> None:
        if not self.kept:
            return
        blocks = [block for _, block in sorted(self.kept)]
        self.kept, self.taken = [], self.taken + 1
        with torch.inference_mode(False), torch.enable_grad():
            for at in range(0, len(blocks), self.spec.minibatch):
                self._learn(blocks[at : at + self.spec.minibatch])
        self.fed_BL.fill_(UNREAD)  # of the weights before

    def _learn(self, blocks: Sequence[Block]) -> None:
        own_KH = _hidden(self.module, blocks)
        with torch.no_grad():
            its_KH = _hidden(self.target, blocks)
        own, its = self.module.get_output_embeddings(), self.target.get_output_embeddings()

        def part(own_CH: Tensor, its_CH: Tensor, accepted_C: Tensor, rejected_C: Tensor) -> Tensor:
            p_CV, q_CV = (head(h_CH).float().log_softmax(-1) for head, h_CH in ((its, its_CH), (own, own_CH)))
            return distance(p_CV, q_CV, accepted_C, rejected_C)

        # As in policies.logits: never all logits of a batch at once.
        columns = (own_KH, its_KH, *(x_K.to(own_KH.device) for x_K in shares(blocks, self.spec)))
        chunks = zip(*(x.split(logits.rows(own.weight)) for x in columns), strict=True)
        loss = torch.stack([checkpoint(part, *chunk, use_reentrant=False) for chunk in chunks]).sum()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.module.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.losses.append(float(loss.detach()))

    def metrics(self) -> dict[str, float]:
        losses, self.losses = self.losses, []
        return {"drafts/loss": sum(losses) / len(losses)} if losses else {}

    def state_dict(self) -> dict[str, Any]:
        rows = 0 if self.cache is None else 1 + max((self.fed_BL != UNREAD).any(1).nonzero()[:, 0].tolist(), default=-1)
        held = {}
        if self.cache is not None and rows:
            pairs = zip(self.cache.keys, self.cache.values, strict=True)
            # Kernels may round by how matrices lie in memory.
            held = {"slots": self.cache.slots, "fed": self.fed_BL[:rows].clone()}
            held["pairs"] = torch.stack([torch.stack((k[:rows], v[:rows])) for k, v in pairs])
        return {
            "weights": {name: x.detach().clone() for name, x in self.module.state_dict().items()},
            "optimizer": copy.deepcopy(self.optimizer.state_dict()),
            "kept": [(place, block.ids, block.start, block.right) for place, block in self.kept],
            "taken": self.taken,
            "losses": list(self.losses),
            "cache": held,
        }

    @torch.inference_mode(False)
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """A resumed run with another model begins with that one, as it is."""
        own = {name: x.shape for name, x in self.module.state_dict().items()}
        if own != {name: x.shape for name, x in state["weights"].items()}:
            return
        self.module.load_state_dict(state["weights"])
        self.optimizer.load_state_dict(state["optimizer"])
        for group in self.optimizer.param_groups:
            group["lr"] = self.spec.learning_rate
        self.kept = [(place, Block(*block)) for place, *block in state["kept"]]
        self.taken, self.losses = state["taken"], list(state["losses"])
        self.rest()
        if held := state["cache"]:
            device = next(self.module.parameters()).device
            self.fed_BL = held["fed"].to(device)
            self.cache = SlotCache(held["slots"])
            for row, pair in enumerate(held["pairs"].to(device).unbind(2)):
                self.cache.place([row], pair)


def _ended(draft: list[int], ends: set[int]) -> list[int]:
    """Cut after the first token that ends a text."""
    return draft[: next((at for at, token in enumerate(draft, 1) if token in ends), len(draft))]


def _hidden(model: Any, blocks: Sequence[Block]) -> Float[Tensor, "K H"]:
    """The last hidden states from which the drafted tokens are predicted, one block after the other."""
    device = next(model.parameters()).device
    ids_BL = pad_sequence([torch.tensor(block.ids, device=device) for block in blocks], batch_first=True)
    # Padded on the right, which nothing sees.
    hidden_BLH = model.base_model(input_ids=ids_BL, use_cache=False).last_hidden_state
    return torch.cat(
        [row_LH[block.start - 1 : len(block.ids) - 1] for row_LH, block in zip(hidden_BLH, blocks, strict=True)]
    )


def shares(blocks: Sequence[Block], spec: DraftModel) -> tuple[Float[Tensor, " K"], Float[Tensor, " K"]]:
    """The weights of KL(p || q) and of KL(q || p) at each drafted position in the loss, one block after the other."""
    behind_K = torch.tensor([k - block.right for block in blocks for k in range(len(block.ids) - block.start)])
    right_K = (behind_K < 0).float()
    wrong_K = (1 - right_K) * spec.decay ** behind_K.clamp(min=0)
    rejected = spec.rejected / (1 + spec.rejected)
    return (1 - rejected) * right_K / right_K.sum().clamp(min=1), rejected * wrong_K / wrong_K.sum().clamp(min=1)


def distance(
    p_KV: Float[Tensor, "K V"],
    q_KV: Float[Tensor, "K V"],
    accepted_K: Float[Tensor, " K"],
    rejected_K: Float[Tensor, " K"],
) -> Float[Tensor, ""]:
    """The weighted sum of both divergences, KL(p || q) and KL(q || p), of these log-probabilities."""
    forward_K, reverse_K = (p_KV.exp() * (p_KV - q_KV)).sum(-1), (q_KV.exp() * (q_KV - p_KV)).sum(-1)
    return (accepted_K * forward_K + rejected_K * reverse_K).sum()
