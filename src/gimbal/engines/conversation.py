"""Rollouts in which a tool answers: what it says joins the rollout as observations, and the policy goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from gimbal.composition import OBSERVES
from gimbal.engines.base import AbstractEngineAround, AbstractEngineSpec, Finished, Request
from gimbal.engines.native import Native, NativeEngine
from gimbal.environments.tools import AbstractTool, Calculator
from gimbal.ops.activity import doing
from gimbal.policies.base import AbstractPolicy
from gimbal.policies.token import TokenPolicy, Tokens
from gimbal.records import Part, Rollout


@dataclass(frozen=True, kw_only=True)
class Conversation(AbstractEngineSpec):
    """``engine`` samples, and ``tool`` answers at most ``answers`` times a rollout, its tokens being Part.OBSERVATION.

    Observations are not masked in, cost length as decisions do, and belong to the turn that they answer; the next turn begins after
    them. A rollout to which an answer does not fit is cut there. The cache is built anew after each answer.
    """

    engine: Native = Native()
    tool: AbstractTool = Calculator()
    answers: int = 8

    def start(self, policy: AbstractPolicy) -> ConversationEngine:
        assert isinstance(policy, TokenPolicy), "a conversation is of tokens"
        return ConversationEngine(self, self.engine.start(policy), policy)

    def effects(self) -> frozenset[str]:
        return frozenset({OBSERVES})


@dataclass(kw_only=True)
class Talk:
    """A request under way: what was asked for, where each observation stands, and what it was before the present segment."""

    request: Request
    spans: list[tuple[int, int]] = field(default_factory=list)
    rollout: Rollout | None = None


class ConversationEngine(AbstractEngineAround):
    """The live engine around another. A segment that ends at a trigger is answered and queued again as the same request."""

    inner: NativeEngine

    def __init__(self, spec: Conversation, inner: NativeEngine, policy: TokenPolicy) -> None:
        self.spec, self.inner, self.policy = spec, inner, policy
        self.talks: dict[tuple[int, int], Talk] = {}

    def submit(self, request: Request) -> None:
        self.talks[request.key] = Talk(request=request)
        self.inner.submit(self._asked(request))

    def step(self) -> list[Finished]:
        finished = []
        for item in self.inner.step():
            if (rollout := self._heard(item)) is not None:
                finished.append(Finished.of(item.key, rollout))
        return finished

    def cancel(self, key: tuple[int, int]) -> Rollout | None:
        talk, drawn = self.talks[key], self.inner.cancel(key)
        rollout = self._dressed(talk, drawn) if drawn is not None else talk.rollout
        del self.talks[key]
        return None if rollout is None else replace(self._labelled(talk, rollout), stop="cancelled")

    def state_dict(self) -> dict[str, Any]:
        talks = {key: (talk.request, list(talk.spans), talk.rollout) for key, talk in self.talks.items()}
        return super().state_dict() | {"talks": talks}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.talks = {
            key: Talk(request=request, spans=list(spans), rollout=rollout)
            for key, (request, spans, rollout) in state["talks"].items()
        }

    def _asked(self, request: Request) -> Request:
        """As the engine inside is asked: it stops at triggers too, as long as there are answers left."""
        if len(self.talks[request.key].spans) >= self.spec.answers:
            return request
        stop = (*request.sampling.stop, *self.spec.tool.triggers)
        return replace(request, sampling=replace(request.sampling, stop=stop))

    def _heard(self, item: Finished) -> Rollout | None:
        """The rollout if it is over; else it is answered and goes on."""
        talk = self.talks[item.key]
        rollout, request = self._dressed(talk, item.rollout), talk.request
        if self._over(talk, rollout):
            del self.talks[item.key]
            return self._labelled(talk, rollout)
        with doing(f"tool {type(self.spec.tool).__name__}", task=request.task.id, turn=len(talk.spans)):
            answer = self.spec.tool(request.task, rollout.text)
        told = [] if not answer else self.policy.tokenizer.encode(answer, add_special_tokens=False)
        if rollout.length + len(told) >= request.sampling.max_length:
            del self.talks[item.key]
            return replace(self._labelled(talk, rollout), stop="length")
        if told:
            talk.spans.append((rollout.length, rollout.length + len(told)))
        talk.rollout = rollout
        self.inner.resume(self._asked(request), rollout, told)
        return None

    def _over(self, talk: Talk, rollout: Rollout) -> bool:
        if rollout.stop != "stop" or len(talk.spans) >= self.spec.answers:
            return True
        tokens = rollout.decisions
        assert isinstance(tokens, Tokens), type(tokens)
        ids = tokens.ids_NL[0, int(tokens.prompt_N[0]) : int(tokens.length_N[0])].tolist()
        before = self.policy.decode(ids[:-1])
        stopped = any(rollout.text.count(stop) > before.count(stop) for stop in talk.request.sampling.stop)
        return stopped or ids[-1] in self.policy.end_ids

    def _dressed(self, talk: Talk, rollout: Rollout) -> Rollout:
        """With the sampling that was asked for, and the entropies that earlier segments knew."""
        rollout = replace(rollout, sampling=talk.request.sampling)
        if rollout.entropy_S is None or talk.rollout is None or talk.rollout.entropy_S is None:
            return rollout
        entropy_S = rollout.entropy_S.clone()
        entropy_S[: talk.rollout.length] = talk.rollout.entropy_S
        for start, end in talk.spans:
            entropy_S[start:end] = 0
        return replace(rollout, entropy_S=entropy_S)

    def _labelled(self, talk: Talk, rollout: Rollout) -> Rollout:
        """With its mask, parts and turns."""
        part_S = torch.full((rollout.length,), int(Part.RESPONSE))
        turn_S = torch.zeros(rollout.length, dtype=torch.long)
        for start, end in talk.spans:
            part_S[start:end] = Part.OBSERVATION
            turn_S[end:] += 1
        return replace(rollout, mask_S=part_S == Part.RESPONSE, part_S=part_S, turn_S=turn_S)
