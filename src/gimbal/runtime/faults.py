"""Fault injection: what destabilises a run, injected around the real engine, weight sync, scorer and batch.

``Run.faults`` is None in every recipe. A run with faults reports them at its start and end, in its recipe and in its report.
Each fault wraps the part that would fail, so nothing else in gimbal knows about it; the evaluation is never affected.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import torch
from torch import Tensor

from gimbal.composition import AbstractPart, Composition, Refusal, Verdict
from gimbal.engines.base import AbstractEngine, AbstractEngineAround, Finished, Request
from gimbal.engines.precision import TOLERANCE, rounded
from gimbal.engines.receipts import Prints
from gimbal.learning.weight_sync.base import AbstractWeightSync
from gimbal.learning.weight_sync.receipts import NotDelivered
from gimbal.ops import philox
from gimbal.policies.token import Tokens
from gimbal.records import AbstractSampling, Drop, Episode, Group, Rollout
from gimbal.runtime.base import AbstractScorer, Scored

LEVELS = {"int8": 127, "int4": 7}
# The mean |log-prob gap| at equal weights that a rounding explains, so that the proof of delivery judges the delivery and not the
# rounding. int4 was measured at 0.01 to 0.07 on gimbal-tiny, int8 at 0.007; both have a wide margin.
EXPLAINED = {**TOLERANCE, "int4": 1.0}
SHARES = ("token_drift", "slow_workers", "lost_syncs", "half_swapped", "dropped_samples", "doubled_samples")
SHARES += ("reward_flip", "reward_blind", "sampler_top_p")
CONTROLS = ("seed", "slow_steps", "unproved")  # fields that break nothing on their own


@dataclass(frozen=True, kw_only=True)
class Faults(AbstractPart):
    """Seeded faults; every knob is off at 0, None or False. Shares and probabilities lie in [0, 1].

    The sampler: ``logprob_noise``, standard deviation (nats) of an error on each recorded log-probability. ``weight_precision``,
    its weights rounded (int4 and int8: one scale an output channel). ``sampler_temperature``, ``sampler_top_k``, ``sampler_top_p``:
    its real sampling, unknown to the record. ``token_drift``, share of recorded tokens that differ from the sampled ones.
    ``slow_workers``, share of groups whose finished rollouts are held back for ``slow_steps`` engine steps.

    The weights: ``lost_syncs``, probability that a version is acknowledged but the weights do not change. ``stale_weights``, how many
    versions the weights are behind their reported version. ``half_swapped``, share of tensors that never arrive after
    the first time. ``unproved``: a proof of delivery that fails is counted (``sync/failed``) and does not stop the run.

    The samples: ``dropped_samples``, ``doubled_samples``: probability that a rollout never reaches the learner, or reaches it twice;
    no counter records it.

    The reward: ``reward_noise``, standard deviation of an error on the score. ``reward_flip``, probability that a verdict s becomes
    1 - s. ``reward_blind``, share of groups with equal scores whatever they wrote. ``reward_length``, added per decision.

    A resumed run starts with all weights delivered, as a restarted sampler does; apart from that it resumes bit for bit.
    """

    logprob_noise: float = 0.0
    weight_precision: Literal["bfloat16", "int8", "int4"] | None = None
    sampler_temperature: float = 0.0
    sampler_top_k: int = 0
    sampler_top_p: float = 0.0
    token_drift: float = 0.0
    slow_workers: float = 0.0
    slow_steps: int = 100
    lost_syncs: float = 0.0
    stale_weights: int = 0
    half_swapped: float = 0.0
    unproved: bool = False
    dropped_samples: float = 0.0
    doubled_samples: float = 0.0
    reward_noise: float = 0.0
    reward_flip: float = 0.0
    reward_blind: float = 0.0
    reward_length: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        for item in fields(self):
            value = vars(self)[item.name]
            if isinstance(value, int | float) and not math.isfinite(value):
                raise ValueError(f"faults.{item.name} is {value}; it must be finite, and 0 is off")
            if isinstance(value, int | float) and value < 0 and item.name != "reward_length":
                raise ValueError(f"faults.{item.name} is {value}; it must be 0 (off) or above")
            if item.name in SHARES and value > 1:
                raise ValueError(f"faults.{item.name} is {value}; it must be a share or probability, at most 1")
        if self.weight_precision not in (None, "bfloat16", *LEVELS):
            raise ValueError(f"faults.weight_precision is {self.weight_precision}; choose bfloat16, int8 or int4")

    @property
    def active(self) -> dict[str, Any]:
        """The active faults."""
        values = {item.name: vars(self)[item.name] for item in fields(self) if item.name not in CONTROLS}
        return {name: value for name, value in values.items() if value}

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        """Refuse faults that cannot act in this run: they would look harmless."""
        for name in ("token_drift", "sampler_top_k", "sampler_top_p"):
            if name in self.active and whole.run.policy.family.unit != "tokens":
                yield Refusal(
                    f"faults.{name} is for language models, and {type(whole.run.policy).__name__} samples no tokens"
                )
        if any(name.startswith("reward_") for name in self.active) and not whole.run.rewards:
            yield Refusal("the reward faults change scores, and this run has dense rewards of its environment only")

    def sentence(self) -> str:
        named = ", ".join(f"{name}={value}" for name, value in self.active.items()) or "none of them active"
        return f"FAULTS ARE INJECTED ON PURPOSE ({named}): the results of this run say nothing about its method"

    def around_engine(self, engine: AbstractEngine, seed: int) -> AbstractEngine:
        sampler = (self.logprob_noise, self.sampler_temperature, self.sampler_top_k, self.sampler_top_p)
        rest = (self.token_drift, self.slow_workers, self.weight_precision)
        return FaultyEngine(self, engine, seed) if any(sampler + rest) else engine

    def rounding(self, engine: AbstractEngine) -> AbstractEngine:
        """The engine with this one's precision and none of its faults."""
        return Faults(weight_precision=self.weight_precision).around_engine(engine, 0)

    def around_sync(self, sync: AbstractWeightSync, seed: int) -> AbstractWeightSync:
        faulty = (self.lost_syncs, self.stale_weights, self.half_swapped)
        return FaultySync(self, sync, seed) if any(faulty) else sync

    def around_scorer(self, scorer: AbstractScorer, seed: int) -> AbstractScorer:
        faulty = (self.reward_noise, self.reward_flip, self.reward_blind, self.reward_length)
        return FaultyScorer(self, scorer, seed) if any(faulty) else scorer

    def proof(self, proof: Callable[[], Mapping[str, float]]) -> dict[str, float]:
        """A proof of delivery; with ``unproved`` it does not stop the run."""
        if not self.unproved:
            return dict(proof())
        try:
            return {"sync/failed": 0.0, **proof()}
        except NotDelivered:
            return {"sync/failed": 1.0}

    def carried(self, groups: Sequence[Group], seed: int) -> list[Group]:
        """The groups as they reach the learner: some rollouts missing (at least one per group stays), some twice."""
        if not (self.dropped_samples or self.doubled_samples):
            return list(groups)
        return [self._carried(group, seed) for group in groups]

    def _carried(self, group: Group, seed: int) -> Group:
        arrived: list[Episode] = []
        for episode in group.episodes:
            dropped, doubled = philox(seed, self.seed, "carried", group.index, episode.sample).random(2)
            count = 0 if dropped < self.dropped_samples else 1 + (doubled < self.doubled_samples)
            arrived += [episode] * int(count)
        return replace(group, episodes=tuple(arrived) or group.episodes[:1])


class FaultyEngine(AbstractEngineAround):
    """Samples from another distribution than requested, records wrong tokens, holds finished rollouts back."""

    def __init__(self, faults: Faults, inner: AbstractEngine, seed: int) -> None:
        self.faults, self.inner, self.seed = faults, inner, seed
        self.asked: dict[tuple[int, int], AbstractSampling] = {}
        self.held: list[tuple[int, Finished]] = []  # (when it is released, the result)
        self.clock = 0
        self.loaded: frozenset[str] = frozenset()  # names of the tensors loaded last

    @property
    def tolerance(self) -> float:
        return max(self.inner.tolerance, EXPLAINED[self.faults.weight_precision or "float32"])

    @property
    def in_flight(self) -> int:
        return self.inner.in_flight + len(self.held)

    def submit(self, request: Request) -> None:
        self.asked[request.key] = request.sampling
        f = self.faults
        changed: dict[str, Any] = {
            "temperature": f.sampler_temperature,
            "top_k": f.sampler_top_k,
            "top_p": f.sampler_top_p,
        }
        drawn = replace(request.sampling, **{name: value for name, value in changed.items() if value})
        self.inner.submit(replace(request, sampling=drawn))

    def step(self) -> list[Finished]:
        self.clock += 1
        for item in self.inner.step():
            slow = philox(self.seed, self.faults.seed, "slow", item.key[0]).random() < self.faults.slow_workers
            until = self.clock + (self.faults.slow_steps if slow else 0)
            self.held.append((until, self._falsified(item)))
        due = [item for until, item in self.held if until <= self.clock]
        self.held = [(until, item) for until, item in self.held if until > self.clock]
        return due

    def cancel(self, key: tuple[int, int]) -> Rollout | Drop | None:
        for entry in self.held:
            if entry[1].key == key:
                self.held.remove(entry)
                return entry[1].cancelled
        rollout = self.inner.cancel(key)
        asked = self.asked.pop(key)
        return replace(rollout, sampling=asked) if isinstance(rollout, Rollout) else rollout

    def partial_rollouts(self) -> list[Finished]:
        return self.inner.partial_rollouts() + [item for _, item in self.held]

    def load(self, version: int, state: Mapping[str, Tensor]) -> None:
        self.loaded = frozenset(state)
        self.inner.load(version, self._rounded(state))

    def manifest(self, tensors: Mapping[str, Tensor]) -> Prints | None:
        sent = {name: tensor for name, tensor in tensors.items() if name in self.loaded}
        return self.inner.manifest({**tensors, **self._rounded(sent)})

    def state_dict(self) -> dict[str, Any]:
        held = {"asked": dict(self.asked), "held": list(self.held), "clock": self.clock}
        return super().state_dict() | held

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.asked, self.held, self.clock = dict(state["asked"]), list(state["held"]), state["clock"]

    def _rounded(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: _rounded(name, x, self.faults.weight_precision) for name, x in state.items()}

    def _falsified(self, item: Finished) -> Finished:
        asked, outcome = self.asked.pop(item.key), item.outcome
        if isinstance(outcome, Drop):
            return item
        draws = philox(self.seed, self.faults.seed, "recorded", item.key[0], item.key[1])
        return replace(item, outcome=outcome.map(lambda row: self._recorded(replace(row, sampling=asked), draws)))

    def _recorded(self, rollout: Rollout, draws: Any) -> Rollout:
        if self.faults.logprob_noise:
            noise_S = self.faults.logprob_noise * torch.from_numpy(draws.standard_normal(rollout.length))
            rollout = replace(rollout, behavior_S=rollout.behavior_S + noise_S.to(rollout.behavior_S))
        if self.faults.token_drift:
            rollout = replace(rollout, decisions=self._drifted(rollout, draws))
        return rollout

    def _drifted(self, rollout: Rollout, draws: Any) -> Tokens:
        """Some tokens (never the last) replaced by others with the same text, as when text is encoded again differently."""
        tokens = rollout.decisions
        if not isinstance(tokens, Tokens):
            raise ValueError("faults.token_drift is for texts; this policy's decisions are no tokens")
        ids_NL, first = tokens.ids_NL.clone(), int(tokens.prompt_N[0])
        own = ids_NL[0, first : int(tokens.length_N[0]) - 1]
        before = own.clone()
        for place in (draws.random(len(own)) < self.faults.token_drift).nonzero()[0].tolist():
            others = before[before != before[place]].unique()
            if len(others):  # a text of one character has no other encoding
                own[place] = others[int(draws.integers(len(others)))]
        return replace(tokens, ids_NL=ids_NL)


def _rounded(name: str, x: Tensor, precision: str | None) -> Tensor:
    """int4 and int8: matrices but those of the output layer and the embedding, as the int8 sampler rounds them; bfloat16: all."""
    if precision == "bfloat16" and x.is_floating_point():
        return x.bfloat16().to(x.dtype)
    if precision not in LEVELS or x.ndim != 2 or "embed" in name or "head" in name:
        return x
    return rounded(x, 0, LEVELS[precision]).to(x.dtype)


class FaultySync(AbstractWeightSync):
    """Publishes weights other than the given ones under a version."""

    def __init__(self, faults: Faults, inner: AbstractWeightSync, seed: int) -> None:
        self.faults, self.inner, self.seed = faults, inner, seed
        self.given: deque[dict[str, Tensor]] = deque(maxlen=faults.stale_weights + 1)
        self.sent: dict[str, Tensor] = {}
        self.version = -1  # the version of ``sent``

    def publish(self, version: int, state: Mapping[str, Tensor]) -> None:
        if version == self.version:  # a resumed run does so
            self.inner.publish(version, self.sent)
            return
        self.version = version
        self.given.append({name: x.detach().clone() for name, x in state.items()})
        lost = philox(self.seed, self.faults.seed, "lost", version).random() < self.faults.lost_syncs
        if not (lost and self.sent):
            self.sent = {name: self.sent[name] if self._stays(name) else x for name, x in self.given[0].items()}
        self.inner.publish(version, self.sent)

    def deliver(self, engine: AbstractEngine) -> None:
        self.inner.deliver(engine)

    def travels(self, tensor: Tensor) -> Tensor:
        return self.inner.travels(tensor)

    def metrics(self) -> dict[str, float]:
        return self.inner.metrics()

    def state_dict(self) -> dict[str, Any]:
        inner = self.inner.state_dict()
        return {"inner": inner, "given": list(self.given), "sent": self.sent, "version": self.version}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.inner.load_state_dict(state["inner"])
        self.given.extend(state["given"])
        self.sent, self.version = state["sent"], state["version"]

    def _stays(self, name: str) -> bool:
        drawn = philox(self.seed, self.faults.seed, "stays", name).random()
        return bool(self.sent) and drawn < self.faults.half_swapped


class FaultyScorer(AbstractScorer):
    """Falsifies scores after the real rewards gave them; what it added is in ``scores["faults"]``."""

    def __init__(self, faults: Faults, inner: AbstractScorer, seed: int) -> None:
        self.faults, self.inner, self.seed = faults, inner, seed

    @property
    def pending(self) -> int:
        return self.inner.pending

    def submit(self, group: Group) -> None:
        self.inner.submit(group)

    def ready(self, *, wait: bool) -> Scored | None:
        verdict = self.inner.ready(wait=wait)
        if verdict is None or not isinstance(verdict.outcome, Group):
            return verdict
        return replace(verdict, outcome=self._falsified(verdict.outcome))

    def _falsified(self, group: Group) -> Group:
        blind = philox(self.seed, self.faults.seed, "blind", group.index).random() < self.faults.reward_blind
        if blind:
            alike = sum(e.earned for e in group.episodes) / len(group.episodes)
            episodes = [_scored(e, alike, e.scores) for e in group.episodes]
        else:
            episodes = [self._one(group.index, episode) for episode in group.episodes]
        return replace(group, episodes=tuple(episodes))

    def _one(self, index: int, episode: Episode) -> Episode:
        f, score, scores = self.faults, episode.earned, episode.scores
        draws = philox(self.seed, f.seed, "reward", index, episode.sample)
        if draws.random() < f.reward_flip:
            verdict = next(iter(scores), None)  # pass rates read this score, so it is falsified too
            turned = {} if verdict is None else {verdict: 1 - scores[verdict]}
            scores, score = {**scores, **turned}, 1 - score
        noised = score + f.reward_noise * draws.standard_normal() + f.reward_length * episode.length
        return _scored(episode, noised, scores)


def _scored(episode: Episode, score: float, scores: Mapping[str, float]) -> Episode:
    return episode.scored(float(score) - episode.paid, {**scores, "faults": float(score) - episode.earned})
