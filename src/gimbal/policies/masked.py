"""Masked (discrete) diffusion policies: a network that sees both sides of a masked cell fills a text in, several cells at a time."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from gimbal import durable
from gimbal.policies import exact, prompts
from gimbal.policies.base import AbstractPolicy, AbstractPolicySpec, Evaluation, Family, place_of
from gimbal.policies.commits import FILLED, REVIEW, WHERE, Commits, MaskedSampling, choice, chosen, doubt, reviewed
from gimbal.policies.loading import MASKED, ROUTES, SCALES, check_files, read
from gimbal.records import AbstractDecisions, Task

STAGGERED = ("exposed_NS", "staggered_NS")


class MaskedPolicy(AbstractPolicy):
    """A masked language model of transformers that evaluates every decision at the state in which it was made.

    The network is called on ``batch`` states of one width at a time, with copies in the last call: rounding depends on a matrix
    product's size, so this gives sampler and trainer the same bits in any batch. A pass over a row of S decisions costs as many states
    as the row took forward passes.

    ``entropy_NS`` is that of a token's distribution, or of the choice of cells; a review's is summed over the cells that it reads.
    ``exposed_NS`` and ``staggered_NS`` are log-probabilities at the same states, except that what the pass before wrote is replaced by
    the policy's own likeliest tokens there: of the recorded token, and of the likeliest one at the recorded state. 0 in a first pass.
    They cost one more evaluation of all passes but the first.
    """

    provides: ClassVar[frozenset[str]] = frozenset({"entropy_NS", *STAGGERED})

    def __init__(self, model: Any, tokenizer: Any, *, batch: int, source: str) -> None:
        super().__init__()
        self.model, self.tokenizer, self.batch = model, tokenizer, batch
        if tokenizer.mask_token_id is None:
            raise ValueError(
                f"the tokenizer of {source} has no mask token, so it cannot fill in masked text: give policy.model=DIRECTORY of a "
                f"masked language model, or {MASKED}"
            )
        self.mask: int = tokenizer.mask_token_id
        self.end: int | None = tokenizer.eos_token_id  # ends a text; without one, all cells are written

    def prompt(self, task: Task) -> list[int]:
        return prompts.encoded(task, self.tokenizer, None, exact.name_of(self.model))

    def cells(self, task: Task, sampling: MaskedSampling) -> list[int]:
        """What a text begins as: masked, but for the cells of its scaffold."""
        if not sampling.scaffold:
            return [self.mask] * sampling.max_length
        given = task.columns.get(sampling.scaffold)
        ids = self.tokenizer.encode(given, add_special_tokens=False) if isinstance(given, str) else []
        if len(ids) != sampling.max_length or self.mask not in ids:
            raise ValueError(
                f"sampling.scaffold={sampling.scaffold} names a column with a text of sampling.max_length={sampling.max_length} "
                f"tokens, {self.tokenizer.mask_token} for each that is to be written, and that of task {task.id} is {given!r:.60} "
                f"({len(ids)} tokens)"
            )
        return ids

    def accepts(self, task: Task, length: int) -> str:
        asked, most = len(self.prompt(task)), self.model.config.max_position_embeddings
        if asked + length > most:
            raise ValueError(
                f"the prompt of task {task.id} has {asked:,} tokens, and with sampling.max_length={length} cells it passes the "
                f"{most:,} positions of this model: lower sampling.max_length, or shorten such rows"
            )
        return ""

    def text(self, cells: list[int]) -> str:
        """What was written, up to an end-of-text token."""
        kept = cells[: cells.index(self.end)] if self.end is not None and self.end in cells else cells
        return self.tokenizer.decode(kept, skip_special_tokens=True)

    def encode_said(self, task: Task, said: str | Mapping[str, Any]) -> list[int]:
        """A written answer's tokens without its end: of a text, or of an assistant's message by the chat template."""
        if isinstance(said, str):
            return self.tokenizer.encode(said, add_special_tokens=False)
        ends = () if self.end is None else (self.end,)
        return prompts.answered(task, said, self.tokenizer, None, exact.name_of(self.model), ends)[0]

    def written(self, task: Task, said: str | Sequence[int], sampling: MaskedSampling) -> Commits:
        """The row of a given text, or of its tokens: see ``Commits.written``."""
        ids = self.encode_said(task, said) if isinstance(said, str) else list(said)
        prompt, end = self.prompt(task), -1 if self.end is None else self.end
        return Commits.written(prompt, ids, sampling, self.mask, end)

    def read(
        self, text_ML: Int[Tensor, "M L"], width_M: Int[Tensor, " M"], asked_ML: Bool[Tensor, "M L"]
    ) -> Iterator[tuple[Int[Tensor, " K"], Int[Tensor, " K"], Float[Tensor, "K V"]]]:
        """(state, position, logits) of the positions asked for, a few states at a time; the mask itself has no probability."""
        for width in width_M.unique().tolist():
            for state_B in (width_M == width).nonzero()[:, 0].split(self.batch):
                text_BW = text_ML[state_B, :width]
                if missing := self.batch - len(state_B):
                    text_BW = torch.cat([text_BW, text_BW[:1].expand(missing, -1)])
                row_K, place_K = asked_ML[state_B, :width].nonzero(as_tuple=True)
                logits_KV = self.model(input_ids=text_BW).logits[row_K, place_K].float()
                hidden_V = torch.arange(logits_KV.shape[-1], device=logits_KV.device) == self.mask
                yield state_B[row_K], place_K, logits_KV.masked_fill(hidden_V, -torch.inf)

    def evaluate(
        self,
        decisions: AbstractDecisions,
        *,
        temperature: float = 1.0,
        columns: Collection[str] = (),
        checkpointing: bool = False,
    ) -> Evaluation:
        assert isinstance(decisions, Commits), type(decisions)
        self.model.eval()
        if checkpointing:
            self.model.gradient_checkpointing_enable()
        states = decisions.states
        # Where each decision was made: its state, and the position that it writes.
        state_NS = decisions.begins_NS.flatten().cumsum(0).view(decisions.shape) - 1
        wrote_NS = decisions.wrote_NS
        at_D = (state_NS[wrote_NS], (decisions.prompt_N[:, None] + decisions.place_NS)[wrote_NS])
        # A review reads what the cells hold.
        own_ML = states.text_ML.where(states.reviewed_ML, 0)
        target_ML = own_ML.index_put(at_D, decisions.token_NS[wrote_NS])
        changed_NS = decisions.cell_NS
        at_C = (state_NS[changed_NS], (decisions.prompt_N[:, None] + decisions.place_NS)[changed_NS])
        changed_ML = torch.zeros_like(states.masked_ML).index_put(at_C, torch.ones_like(at_C[0], dtype=torch.bool))
        found = [
            (
                state_K,
                place_K,
                *told(logits_KV, target_ML[at], own_ML[at], states.reviewed_ML[at], temperature, bool(columns)),
            )
            for state_K, place_K, logits_KV in self.read(
                states.text_ML, states.width_M, states.masked_ML | states.reviewed_ML
            )
            for at in [(state_K, place_K)]
        ]
        state_K, place_K, logprob_K, confidence_K, entropy_K, best_K = (torch.cat(x) for x in zip(*found, strict=True))

        def spread_out(x_K: Tensor) -> Tensor:
            return x_K.new_zeros(states.text_ML.shape).index_put((state_K, place_K), x_K)

        def scatter(written_ML: Tensor, where_W: Tensor, review_R: Tensor) -> Tensor:
            """[N, S]: of what was written, of the choices of cells, and of reviews."""
            out_NS = written_ML.new_zeros(decisions.shape).index_put(wrote_NS.nonzero(as_tuple=True), written_ML[at_D])
            out_NS = out_NS.index_put(where_NS.nonzero(as_tuple=True), where_W.to(out_NS.dtype))
            return out_NS.index_put(drawn_NS.nonzero(as_tuple=True), review_R.to(out_NS.dtype))

        where_NS = decisions.there_NS & (decisions.place_NS == WHERE)
        state_W = state_NS[where_NS]
        # The decision behind a choice writes the cell that was drawn first.
        row_W, step_W = where_NS.nonzero(as_tuple=True)
        first_W = decisions.prompt_N[row_W] + decisions.place_NS[row_W, (step_W + 1).clamp(max=decisions.shape[1] - 1)]
        masked_WL = states.masked_ML[state_W]
        first_WL, gate_WL = choice(
            spread_out(confidence_K)[state_W], masked_WL, decisions.threshold_N[row_W], decisions.spread_N[row_W]
        )
        where_W = chosen(first_WL, gate_WL, masked_WL, first_W, changed_ML[state_W])
        drawn_NS = decisions.there_NS & (decisions.place_NS == REVIEW) & (decisions.spread_N > 0)[:, None]
        state_R, seen_RL = state_NS[drawn_NS], states.reviewed_ML[state_NS[drawn_NS]]
        row_R = drawn_NS.nonzero(as_tuple=True)[0]
        doubt_RL = doubt(spread_out(confidence_K)[state_R], decisions.keep_N[row_R], decisions.spread_N[row_R])
        review_R = reviewed(doubt_RL, seen_RL, changed_ML[state_R])
        logprob_NS = scatter(spread_out(logprob_K), where_W, review_R)
        if not columns:
            return Evaluation(logprob_NS=logprob_NS)
        more = {}
        if not set(columns).isdisjoint(STAGGERED):
            best_ML = target_ML.index_put((state_K, place_K), best_K)
            own_NS = decisions.token_NS.index_put(wrote_NS.nonzero(as_tuple=True), best_ML[at_D])
            more = self._staggered(decisions, own_NS, temperature)
        review_R = gate_entropy(doubt_RL).where(seen_RL, 0).sum(-1)
        entropy_NS = scatter(spread_out(entropy_K), choice_entropy(first_WL, gate_WL, masked_WL), review_R)
        return Evaluation(logprob_NS=logprob_NS, columns={"entropy_NS": entropy_NS, **more})

    def _staggered(self, decisions: Commits, own_NS: Int[Tensor, "N S"], temperature: float) -> dict[str, Tensor]:
        """Log-probabilities of the recorded and of its ``own`` tokens, each after its own tokens of the pass before; 0 in a first."""
        states = decisions.after(own_NS)
        state_NS = decisions.begins_NS.flatten().cumsum(0).view(decisions.shape) - 1
        later_NS = decisions.wrote_NS & (decisions.pass_NS > 0)
        at_D = (state_NS[later_NS], (decisions.prompt_N[:, None] + decisions.place_NS)[later_NS])
        asked_ML = torch.zeros_like(states.masked_ML).index_put(at_D, torch.ones_like(at_D[0], dtype=torch.bool))
        kept_J = asked_ML.any(-1).nonzero()[:, 0]
        target_MLX = torch.zeros(*asked_ML.shape, 2, dtype=torch.long, device=asked_ML.device)
        target_MLX[at_D] = torch.stack([decisions.token_NS[later_NS], own_NS[later_NS]], -1)
        found_MLX = torch.zeros(target_MLX.shape, device=asked_ML.device)
        for row_K, place_K, logits_KV in self.read(states.text_ML[kept_J], states.width_M[kept_J], asked_ML[kept_J]):
            at_K = (kept_J[row_K], place_K)
            logprob_KV = (logits_KV / temperature).log_softmax(-1)
            found_MLX = found_MLX.index_put(at_K, logprob_KV.gather(-1, target_MLX[at_K]))
        out_NSX = found_MLX.new_zeros(*decisions.shape, 2).index_put(later_NS.nonzero(as_tuple=True), found_MLX[at_D])
        return dict(zip(STAGGERED, out_NSX.unbind(-1), strict=True))

    def extent(self, decisions: AbstractDecisions) -> tuple[int, int]:
        assert isinstance(decisions, Commits), type(decisions)
        widest = int((decisions.prompt_N[:, None] + decisions.seen_NS).max())
        return int(decisions.passes_N.sum()), widest

    def pieces(self, decisions: AbstractDecisions) -> list[str]:
        """In the order in which they were committed; a choice of cells is a bar, a review a question mark, a masked cell a dot."""
        assert isinstance(decisions, Commits), type(decisions)
        said = zip(decisions.place_NS[0].tolist(), decisions.token_NS[0].tolist(), strict=True)
        signs = {WHERE: "|", REVIEW: "?"}
        dot = "\u00b7"
        return [
            signs.get(place) or (dot if token == self.mask else self.tokenizer.decode([token])) for place, token in said
        ]

    def save(self, directory: Path) -> None:
        with durable.named(directory):
            self.model.save_pretrained(directory)
            self.tokenizer.save_pretrained(directory)


def told(
    logits_KV: Float[Tensor, "K V"],
    token_K: Int[Tensor, " K"],
    own_K: Int[Tensor, " K"],
    reviewed_K: Bool[Tensor, " K"],
    temperature: float,
    entropy: bool,
) -> tuple[Float[Tensor, " K"], Float[Tensor, " K"], Float[Tensor, " K"], Int[Tensor, " K"]]:
    """(log-probability of each token, confidence, entropy if asked for, likeliest token). The confidence is the largest probability at
    temperature 1 or, where a text is reviewed, that of the cell's ``own`` token."""
    drawn_KV = (logits_KV / temperature).log_softmax(-1)
    logprob_K = drawn_KV.gather(-1, token_K[:, None])[:, 0]
    p_KV = logits_KV.softmax(-1)
    confidence_K = p_KV.gather(-1, own_K[:, None])[:, 0].where(reviewed_K, p_KV.amax(-1))
    entropy_K = torch.special.entr(drawn_KV.exp()).sum(-1) if entropy else torch.zeros_like(logprob_K)
    return logprob_K, confidence_K, entropy_K, logits_KV.argmax(-1)


def choice_entropy(
    first_ML: Float[Tensor, "M L"], gate_ML: Float[Tensor, "M L"], masked_ML: Bool[Tensor, "M L"]
) -> Float[Tensor, " M"]:
    """Of the choice of cells: that of the first, and the mean over it of all other cells'."""
    p_ML = first_ML.exp()
    gates_ML = gate_entropy(gate_ML).where(masked_ML, 0)
    return (torch.special.entr(p_ML) + gates_ML * (1 - p_ML)).sum(-1)


def gate_entropy(gate_ML: Float[Tensor, "M L"]) -> Float[Tensor, "M L"]:
    open_ML = gate_ML.sigmoid()
    return torch.special.entr(open_ML) + torch.special.entr(1 - open_ML)


@dataclass(frozen=True, kw_only=True)
class MaskedLM(AbstractPolicySpec):
    """A directory with a masked language model of transformers (AutoModelForMaskedLM: BERT, RoBERTa, ModernBERT ...) and its tokenizer,
    or one that ships with the package: ``gimbal-sudoku`` fills in grids of 4 x 4 (Sudoku), ``gimbal-scales`` draws digits of a class
    (Conditions) in 2 x 2, 4 x 4 and 8 x 8 pixels, one after the other (MaskedSampling(blocks=...)), ``gimbal-routes`` plans routes over
    grids of 5 x 5 (GridRoutes), and was taught to edit them.

    The response is a row of masked cells behind the prompt, which the network fills in over several forward passes (MaskedSampling).
    ``fresh`` keeps architecture and tokenizer, and initialises the weights from the run's seed. ``batch`` states go through the network
    at a time.
    """

    family: ClassVar[Family] = FILLED
    shipped: ClassVar[tuple[str, ...]] = (MASKED, SCALES, ROUTES)

    model: str = MASKED
    fresh: bool = False
    batch: int = 64

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise ValueError(f"policy.batch is {self.batch}; it must be at least 1")

    @property
    def path(self) -> str:
        return place_of(self.model, self.shipped)

    def load(self, seed: int = 0) -> MaskedPolicy:
        model, tokenizer, _ = read(self.path, torch.float32, seed if self.fresh else None, masked=True)
        return MaskedPolicy(model, tokenizer, batch=self.batch, source=self.model).eval()

    def check_files(self) -> None:
        check_files(self.path, MASKED)

    def at(self, directory: Path) -> MaskedLM:
        return replace(self, model=str(directory), fresh=False)
