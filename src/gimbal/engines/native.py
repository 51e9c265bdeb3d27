"""The native engine: continuous batching over the policy's own transformers module, with our cache.

A rollout occupies one row from its first decision to its last; live rows are the first ``n``, so a step is one forward pass over
exactly them. The last row replaces a row that ends, and the queue refills the rows. A row's cache holds all its tokens but the
newest; a step feeds the newest and samples the next. Prompts therefore enter the cache up to their last token, once per group.

With a drafter a row may be sampled ahead of its ``length``, up to ``known``: each step still exposes one more decision per row, and
the model runs when a row has no tokens in reserve. So everything between steps (stops, limits, pauses, cancelling, new weights) works
as without drafts. New weights discard the reserve.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from gimbal.composition import Composition, Verdict
from gimbal.engines.base import (
    CONTINUE,
    DRAW,
    FORK,
    READ,
    RECORD,
    RIVALS,
    AbstractEngine,
    AbstractEngineSpec,
    Finished,
    Request,
    Witness,
    check_slots,
    overtaken,
)
from gimbal.engines.cache import SlotCache, check_continues, read_first
from gimbal.engines.decoding import NOTED, Decoder, RowTable
from gimbal.engines.drafting.base import AbstractDrafter
from gimbal.engines.precision import TOLERANCE, Form, ModelCopy, Precision
from gimbal.engines.receipts import Reading
from gimbal.engines.sampling import Distributions, completed, processed
from gimbal.engines.texts import Texts
from gimbal.ops import philox
from gimbal.policies.base import AbstractPolicy
from gimbal.policies.images import images_of
from gimbal.policies.layout import laid
from gimbal.policies.token import TokenPolicy, Tokens, of_tokens
from gimbal.records import Rollout


@dataclass(kw_only=True)
class Live:
    """A request in the queue or in a row, and what was sampled for it before."""

    request: Request
    prompt: list[int]
    drawn: list[int]
    behavior: list[float]
    versions: list[int]
    images: tuple[str, ...] = ()  # paths
    cache: Tensor | None = None  # keys and values of all known tokens but the last, where they are known too


@dataclass(frozen=True)
class Ended:
    """A row that has ended: its tokens, and their keys and values."""

    ids: list[int]
    images: tuple[str, ...]
    cache: Float[Tensor, "layers two heads L width"]


@dataclass(frozen=True, kw_only=True)
class Native(AbstractEngineSpec):
    """Continuous batching with ``slots`` rollouts at a time, sampled in ``precision``.

    ``cache``: what happens to unfinished rollouts when new weights arrive. "keep" continues with the keys and values of the old
    weights, so later decisions mix versions: the exact log-probabilities of their version differ by .004 nats on average
    and by up to 1.3 on gimbal-tiny. "recompute" recomputes keys and values with the new weights, so each decision has one version.
    ``entropy`` records the entropy of every sampled distribution, ``rivals`` the likeliest token other than the sampled one that does
    not end the text. ``device`` is the device of the sampler's model; "" is the policy's. ``drafter`` guesses tokens ahead so that one
    pass samples several; the result stays the same. ``graphs``: on a GPU, replay passes as CUDA graphs (false: models that cannot be).
    """

    slots: int = 128
    precision: Precision = "bfloat16"
    cache: Literal["keep", "recompute"] = "keep"
    entropy: bool = False
    rivals: bool = False
    device: str = ""
    drafter: AbstractDrafter | None = None
    graphs: bool = True

    def __post_init__(self) -> None:
        check_slots(self.slots)
        if self.precision not in TOLERANCE:
            raise ValueError(f"engine.precision is {self.precision}; choose among {', '.join(TOLERANCE)}")

    @property
    def can(self) -> frozenset[str]:
        return frozenset({DRAW, CONTINUE, FORK, READ, *[RECORD] * self.entropy, *[RIVALS] * self.rivals})

    def start(self, policy: AbstractPolicy) -> NativeEngine:
        assert isinstance(policy, TokenPolicy), "the native engine samples token policies"
        return NativeEngine(self, policy)

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        yield from overtaken(self.cache, whole)


class NativeEngine(AbstractEngine):
    """The live engine. Rows are parallel arrays; Python loops only over rollouts that start, end or carry stop strings."""

    def __init__(self, spec: Native, policy: TokenPolicy) -> None:
        self.spec, self.policy, self.texts = spec, policy, Texts(policy)
        self.device = torch.device(spec.device) if spec.device else next(policy.parameters()).device
        self.copy = ModelCopy(policy.model, spec.precision)
        self.copy.move(self.device)
        check_continues(self.copy.module)
        self.slots, self.table = SlotCache(spec.slots), RowTable(spec.slots, self.device)
        self.decoder = Decoder(self.copy.module, self.table, self.slots, spec.drafter, graphs=spec.graphs)
        self.queue: deque[Live] = deque()
        self.rows: list[Live] = []
        self.end_ids = torch.tensor(policy.end_ids, dtype=torch.long, device=self.device)
        self._version = -1
        self._prefix: tuple[tuple[Any, ...], Tensor] | None = None  # the newest prompt's, for members still queued
        self._ended: list[Ended] = []  # in the last step, where rows are extended

    @property
    def version(self) -> int:
        return self._version

    @property
    def tolerance(self) -> float:
        return TOLERANCE[self.spec.precision]

    @property
    def in_flight(self) -> int:
        return len(self.queue) + len(self.rows)

    @property
    def computed(self) -> int:
        return self.decoder.computed

    def metrics(self) -> Mapping[str, float]:
        return self.decoder.metrics()

    def submit(self, request: Request) -> None:
        # Requests of one group come one after another: their prompt is encoded once.
        same = bool(self.queue) and self.queue[-1].request.task is request.task
        prompt = self.queue[-1].prompt if same else self.texts.encode(request.task)
        images = images_of(request.task)
        self._enqueue(Live(request=request, prompt=prompt, drawn=[], behavior=[], versions=[], images=images))

    def partial_rollouts(self) -> list[Finished]:
        started = [row for row in range(len(self.rows)) if self._drawn(row)]
        return [Finished.of(self.rows[row].request.key, self._rollout(row, "cancelled")) for row in started]

    @torch.inference_mode()
    def load(self, version: int, state: Mapping[str, Tensor]) -> None:
        self.copy.move(self.device)
        self.copy.load(state)
        self._version = version
        self._forget()
        self.table.void(len(self.rows))  # what is stored belongs to the old weights
        if self.decoder.drafts is not None:
            self.decoder.drafts.load()
        if self.spec.cache == "recompute" and self.rows:
            known = [
                self.table.ids_BL[row, : max(1, int(self.table.length_B[row]) - 1)] for row in range(len(self.rows))
            ]
            for row, prefix in enumerate(self._prefill(known, [live.images for live in self.rows])):
                self.slots.place([row], prefix)

    def rest(self) -> None:
        """Free keys and values, and move the weights to main memory."""
        assert not self.in_flight, "an engine rests when nothing is in flight"
        self.copy.move(torch.device("cpu"))
        self.slots.clear()
        self.decoder.rest()
        self._forget()

    def _forget(self) -> None:
        """Drop keys and values of old weights, which must not start a new rollout."""
        self._prefix, self._ended = None, []
        self.texts.forget()
        for live in self.queue:
            live.cache = None

    @torch.inference_mode()
    def step(self) -> list[Finished]:
        assert self._version >= 0, "load comes before step"
        self._refill()
        n = len(self.rows)
        if n == 0:
            return []
        if self.decoder.due(n):
            rows = [(row.request, len(row.prompt)) for row in self.rows]
            self.decoder.draw(rows, self._version, self.end_ids, entropy=self.spec.entropy, rivals=self.spec.rivals)
        token_B = self.table.show(n)
        ended_B = torch.isin(token_B, self.end_ids)
        done_B = ended_B | (self.table.length_B[:n] >= self.table.limit_B[:n])
        ended, done = torch.stack((ended_B, done_B)).tolist()  # one answer to wait for
        stops = {row: "stop" if ended[row] else "length" for row, over in enumerate(done) if over}
        return self._finish(stops | self._stop_strings(stops))

    @torch.inference_mode()
    def cancel(self, key: tuple[int, int]) -> Rollout | None:
        for live in self.queue:
            if live.request.key == key:
                self.queue.remove(live)
                return None
        row = self._row(key)
        rollout = self._rollout(row, "cancelled") if self._drawn(row) else None
        self._free(row)
        return rollout

    def extend(self, request: Request, rollout: Rollout, told: Sequence[int] = (), *, first: int | None = None) -> None:
        """The rest comes from its own random stream. What another row has just computed is reused."""
        tokens = rollout.decisions
        assert isinstance(tokens, Tokens), type(tokens)
        ids, start = tokens.ids_NL[0, : int(tokens.length_N[0])].tolist(), int(tokens.prompt_N[0])
        live = Live(
            request=request,
            prompt=ids[:start],
            drawn=[*ids[start:][:first], *told],
            behavior=rollout.behavior_S[:first].tolist() + [0.0] * len(told),
            versions=rollout.version_S[:first].tolist() + [self._version] * len(told),
            images=images_of(request.task),
        )
        self._enqueue(live)

    def _enqueue(self, live: Live) -> None:
        known = [*live.prompt, *live.drawn][:-1]
        caches = (row.cache for row in self._ended if row.images == live.images and row.ids[: len(known)] == known)
        if known and (cache := next(caches, None)) is not None:
            live.cache = cache[:, :, :, : len(known)]
        self.queue.append(live)

    @torch.inference_mode()
    def score(self, rollout: Rollout) -> Float[Tensor, " S"]:
        tokens = rollout.decisions
        assert isinstance(tokens, Tokens), type(tokens)
        ids_L = tokens.ids_NL[0, : int(tokens.length_N[0])].to(self.device)
        first = int(tokens.prompt_N[0])
        pixels = self._pixels(tokens.pictures_N)
        logits_SV = self.copy.module(input_ids=ids_L[None], **pixels, use_cache=False).logits[0, first - 1 : -1].float()
        rows = Distributions.of([rollout.sampling] * len(logits_SV), self.device)
        return processed(logits_SV, rows).gather(-1, ids_L[first:, None])[:, 0]

    @torch.no_grad()
    def hidden(self, rollouts: Sequence[Rollout], at: int) -> Float[Tensor, "N H"]:
        """One forward pass without the cache; its tokens count as computed."""
        rows = [of for rollout in rollouts if isinstance(of := rollout.decisions, Tokens)]
        ids = [row.ids_NL[0, : int(row.prompt_N[0]) + at].to(self.device) for row in rows]
        self.decoder.computed += sum(map(len, ids))
        pixels = self._pixels([path for row in rows for path in row.pictures_N])
        # Padded on the right, which no causal model sees from the left.
        found = self.copy.module.base_model(input_ids=pad_sequence(ids, batch_first=True), **pixels, use_cache=False)
        return (
            torch.stack([row_LH[len(own) - 1] for row_LH, own in zip(found.last_hidden_state, ids, strict=True)])
            .float()
            .cpu()
        )

    @torch.inference_mode()
    def witness(self, version: int, canary: Sequence[Rollout]) -> list[Witness]:
        """All rollouts in one forward pass; rollouts of one prompt share one copy of it."""
        rows_of = [rollout.decisions for rollout in canary if isinstance(rollout.decisions, Tokens)]
        assert len(rows_of) == len(canary), "this engine draws tokens"
        tokens = Tokens.stack(rows_of).to(self.device)
        layout = laid(*tokens.where, self.policy.shares)
        pixels = self._pixels([tokens.pictures_N[n] for n in layout.prompt_R])
        logits_RLV = self.copy.module(**layout.inputs(self.copy.module), **pixels, use_cache=False).logits
        logits_DV = logits_RLV[layout.row_K, layout.column_K].float()
        rows = Distributions.of([rollout.sampling for rollout in canary for _ in range(rollout.length)], self.device)
        id_D = torch.cat([tokens.label_NS[row, : rollout.length] for row, rollout in enumerate(canary)])
        logprob_D = processed(logits_DV, rows).gather(-1, id_D[:, None])[:, 0].cpu()
        return [Witness(who="", due=version, version=self._version, logprob_D=logprob_D)]

    @property
    def form(self) -> Form:
        return self.copy.form

    def reading(self) -> Reading:
        return Reading(version=self._version, prints=self.copy.prints())

    def _refill(self) -> None:
        """Move queued requests into free rows; a prompt shared by neighbours in the queue is prefilled once."""
        start = len(self.rows)
        while self.queue and len(self.rows) < self.spec.slots:
            self.rows.append(self.queue.popleft())
        if start == len(self.rows):
            return
        self.decoder.distributions = None
        prefixes: dict[tuple[Any, ...], list[int]] = {}  # the same text with another image is another prefix
        for row in range(start, len(self.rows)):
            live = self.rows[row]
            known = (*live.prompt, *live.drawn)
            self._occupy(row, live, known)
            if live.cache is not None:
                self.slots.reserve(self.table.ids_BL.shape[1], live.cache)
                self.slots.place([row], live.cache)
                live.cache = None
                continue
            # The last token is decoded, not prefilled; one that stands alone is both, so that the cache learns its shape.
            prefixes.setdefault((*live.images, *(known[:-1] or known)), []).append(row)
        missing = [prefix for prefix in prefixes if self._prefix is None or prefix != self._prefix[0]]
        if self._prefix is not None and self._prefix[0] in prefixes:
            self.slots.reserve(self.table.ids_BL.shape[1], self._prefix[1])  # this one may be the longest so far
            self.slots.place(prefixes[self._prefix[0]], self._prefix[1])
        images = [self.rows[prefixes[prefix][0]].images for prefix in missing]
        known = [prefix[len(paths) :] for prefix, paths in zip(missing, images, strict=True)]
        filled = self._prefill([torch.tensor(ids, device=self.device) for ids in known], images)
        for prefix, cached in zip(missing, filled, strict=True):
            self.slots.place(prefixes[prefix], cached)
        if missing:
            self._prefix = (missing[-1], filled[-1])

    def _occupy(self, row: int, live: Live, known: tuple[int, ...]) -> None:
        request, first = live.request, len(live.prompt)
        limit = first + request.sampling.max_length
        self.table.reserve(limit + 1 + self.decoder.spare)
        self.table.ids_BL[row, : len(known)] = torch.tensor(known, device=self.device)
        if live.drawn:
            self.table.behavior_BL[row, first : len(known)] = torch.tensor(live.behavior, device=self.device)
            self.table.version_BL[row, first : len(known)] = torch.tensor(
                live.versions, dtype=torch.long, device=self.device
            )
            for name in NOTED:
                # Not passed on; what stands there is of an earlier row.
                getattr(self.table, name)[row, first : len(known)] = 0
        stream = philox(*request.stream).random(request.sampling.max_length)
        self.table.uniform_BL[row, first:limit] = torch.from_numpy(stream).to(self.device)
        self.table.length_B[row] = self.table.known_B[row] = len(known)
        self.table.limit_B[row] = limit
        self.table.longest = max(self.table.longest, len(known))

    def _pixels(self, rows: Sequence[tuple[str, ...]]) -> dict[str, Tensor]:
        return {name: pixels.to(self.copy.module.dtype) for name, pixels in self.policy.pixels(rows).items()}

    def _prefill(
        self, sequences: list[Tensor], images: Sequence[tuple[str, ...]]
    ) -> list[Float[Tensor, "layers two heads L width"]]:
        """Keys and values of every sequence."""
        if not sequences:
            return []
        self.decoder.computed += sum(map(len, sequences))
        prefixes = read_first(self.copy.module, self.slots, sequences, **self._pixels(images))
        # Every row will hold at least its prefix and one more token.
        self.slots.reserve(max(self.table.ids_BL.shape[1], max(map(len, sequences)) + 1), prefixes[0])
        return prefixes

    def _stop_strings(self, already: Mapping[int, str]) -> dict[int, str]:
        """Rows whose newest token completed one of their stop strings."""
        stops = [() if row in already else of_tokens(live.request.sampling).stop for row, live in enumerate(self.rows)]
        if not (rows := [row for row, sought in enumerate(stops) if sought]):
            return {}
        # Read at once: each answer of a GPU is waited for.
        lengths, ids = self.table.length_B[: len(self.rows)].tolist(), self.table.ids_BL[rows].tolist()
        found: dict[int, str] = {}
        for row, ids_L in zip(rows, ids, strict=True):
            tail = min(lengths[row] - len(self.rows[row].prompt), max(map(len, stops[row])) + 8)
            if completed(ids_L[lengths[row] - tail : lengths[row]], stops[row], self.policy.decode):
                found[row] = "stop"
        return found

    def _finish(self, stops: Mapping[int, str]) -> list[Finished]:
        finished = [
            Finished.of(self.rows[row].request.key, self._rollout(row, stop)) for row, stop in sorted(stops.items())
        ]
        self._ended = []
        for row in sorted(stops, reverse=True):
            if self.extended:
                length = int(self.table.length_B[row]) - 1  # the model has not read the newest token yet
                ids = self.table.ids_BL[row, :length].tolist()
                self._ended.append(Ended(ids, self.rows[row].images, self.slots.take(row, length)))
            if self.decoder.drafts is not None:
                ids = self.table.ids_BL[row, : int(self.table.length_B[row])].tolist()
                self.decoder.drafts.ended(self.rows[row].request, ids, len(self.rows[row].prompt))
            self._free(row)
        return finished

    @torch.inference_mode(False)  # the engine returns ordinary tensors
    def _rollout(self, row: int, stop: str) -> Rollout:
        live, length = self.rows[row], int(self.table.length_B[row])
        first = len(live.prompt)
        ids = self.table.ids_BL[row, :length].tolist()
        count = length - first

        def column(column_BL: Tensor) -> Tensor:
            return column_BL[row, first:length].cpu().clone()

        return Rollout(
            task=live.request.task,
            sample=live.request.sample,
            row=live.request.row,
            decisions=Tokens.row(live.prompt, ids[first:], live.images),
            behavior_S=column(self.table.behavior_BL),
            version_S=column(self.table.version_BL),
            mask_S=torch.ones(count, dtype=torch.bool),
            reward_S=torch.zeros(count),
            stop=stop,
            sampling=live.request.sampling,
            text=self.texts.decode(ids[first:]),
            entropy_S=column(self.table.entropy_BL) if self.spec.entropy else None,
            rival_S=column(self.table.rival_BL) if self.spec.rivals else None,
            rival_logprob_S=column(self.table.rival_logprob_BL) if self.spec.rivals else None,
        )

    def _free(self, row: int) -> None:
        """Give the row up; the last live row takes its place."""
        last = len(self.rows) - 1
        if row != last:
            self.rows[row] = self.rows[last]
            self.table.move(last, row)
            self.slots.move(last, row, int(self.table.known_B[row]))
            if self.decoder.drafts is not None:
                self.decoder.drafts.moved(last, row)
        self.rows.pop()
        self.decoder.distributions = None
        self.table.measure(len(self.rows))

    def _row(self, key: tuple[int, int]) -> int:
        for row, live in enumerate(self.rows):
            if live.request.key == key:
                return row
        raise KeyError(f"no request {key} is in flight")

    def _drawn(self, row: int) -> int:
        return int(self.table.length_B[row]) - len(self.rows[row].prompt)

    def state_dict(self) -> dict[str, Any]:
        """Requests, tokens and the cache of live rows; the streams of uniforms follow from the requests."""

        def plain(live: Live, row: int | None) -> dict[str, Any]:
            held = {"request": live.request, "prompt": live.prompt, "drawn": live.drawn}
            held |= {"behavior": live.behavior, "versions": live.versions, "known": live.cache}
            if row is not None:
                length, span = int(self.table.length_B[row]), slice(len(live.prompt), int(self.table.length_B[row]))
                held |= {
                    "drawn": self.table.ids_BL[row, span].tolist(),
                    "behavior": self.table.behavior_BL[row, span].clone(),
                }
                held |= {
                    "versions": self.table.version_BL[row, span].tolist(),
                    "cache": self.slots.take(row, length - 1),
                }
                held |= {name.removesuffix("_BL"): getattr(self.table, name)[row, span].clone() for name in NOTED}
                if (known := int(self.table.known_B[row])) > length:
                    held |= {"store": self.table.store(row), "cache": self.slots.take(row, known - 1)}
            return held

        return {
            "rows": [plain(live, row) for row, live in enumerate(self.rows)],
            "queue": [plain(live, None) for live in self.queue],
            "prefix": self._prefix,
            "ended": [(row.ids, row.images, row.cache) for row in self._ended],
            "drafts": self.decoder.state_dict(),
            # Kernels may round by how matrices lie in memory.
            "room": (self.table.ids_BL.shape[1], max(self.slots.capacity, self.slots.least)),
        }

    @torch.inference_mode()
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from ``state_dict``; the weights must have been loaded before."""

        def live(held: Mapping[str, Any]) -> Live:
            columns = {name: held[name] for name in ("request", "prompt", "drawn", "versions")}
            behavior = held["behavior"]
            drawn = behavior if isinstance(behavior, list) else behavior.tolist()
            return Live(**columns, behavior=drawn, images=images_of(held["request"].task), cache=held.get("known"))

        if len(state["rows"]) > self.spec.slots:
            raise ValueError(
                f"{len(state['rows'])} rollouts are in progress but engine.slots is {self.spec.slots}: each needs a slot"
            )
        width, self.slots.least = state["room"]
        self.table.reserve(width)
        self.queue = deque(live(held) for held in state["queue"])
        self.rows = []
        for row, held in enumerate(state["rows"]):
            item = live(held)
            self.rows.append(item)
            self._occupy(row, item, (*item.prompt, *item.drawn))
            span = slice(len(item.prompt), len(item.prompt) + len(item.drawn))
            for name in NOTED:
                getattr(self.table, name)[row, span] = held[name.removesuffix("_BL")]
            self.slots.reserve(self.table.ids_BL.shape[1], held["cache"])
            self.slots.place([row], held["cache"])
            if self.decoder.drafts is not None:
                self.table.restore(row, held.get("store", {}))
        self._prefix = state["prefix"]
        self._ended = [Ended(*row) for row in state["ended"]]
        self.decoder.distributions = None
        self.decoder.load_state_dict(state["drafts"])
