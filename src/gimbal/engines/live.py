"""Requests to vLLM, in this process or on a server: the tokens of each so far, and the waiting ones."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from gimbal.engines.base import AbstractEngine, Finished, Request
from gimbal.engines.precision import TOLERANCE
from gimbal.ops import philox
from gimbal.policies.token import TokenPolicy, Tokens, of_tokens
from gimbal.records import Rollout

GIB = 1 << 30


@dataclass(kw_only=True)
class LiveRequest:
    """Token ids in, token ids and their log-probabilities out; each token has the version that sampled it."""

    request: Request
    prompt: list[int]
    drawn: list[int] = field(default_factory=list)
    behavior: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)

    @classmethod
    def onward(
        cls, request: Request, rollout: Rollout, told: Sequence[int], *, first: int | None, version: int
    ) -> LiveRequest:
        """From the ``first`` decisions of a finished row, and given tokens. All of it is a prompt to vLLM, whose prefix cache still
        has most of its keys and values."""
        tokens = rollout.decisions
        assert isinstance(tokens, Tokens), type(tokens)
        ids, start = tokens.ids_NL[0, : int(tokens.length_N[0])].tolist(), int(tokens.prompt_N[0])
        return cls(
            request=request,
            prompt=ids[:start],
            drawn=[*ids[start:][:first], *told],
            behavior=rollout.behavior_S[:first].tolist() + [0.0] * len(told),
            versions=rollout.version_S[:first].tolist() + [version] * len(told),
        )

    @property
    def ids(self) -> list[int]:
        return [*self.prompt, *self.drawn]

    def check(self, longest: int) -> None:
        """ValueError where vLLM would mean something else by the sampling, or has no room; ``longest``: tokens of one request."""
        request, sampling = self.request, of_tokens(self.request.sampling)
        if sampling.min_p > 0 and sampling.top_p < 1:
            raise ValueError(
                "vLLM applies min_p before top_p, gimbal's Sampling the other way round; use only one of them, or the native engine"
            )
        if len(self.prompt) + sampling.max_length > longest:
            raise ValueError(
                f"task {request.task.id}: a prompt of {len(self.prompt)} tokens and {sampling.max_length} more pass the {longest} "
                "that this vLLM engine holds; lower sampling.max_length, or raise engine.longest if the model can take it"
            )

    def params(self, end_ids: Sequence[int]) -> dict[str, Any]:
        """The fields of vLLM's SamplingParams that draw the rest of it."""
        request, sampling = self.request, of_tokens(self.request.sampling)
        names = (*request.stream, *([len(self.drawn)] if self.drawn else []))
        return {
            **distribution(request.sampling),
            "max_tokens": sampling.max_length - len(self.drawn),
            "seed": int(philox(*names).integers(2**63)),
            "stop_token_ids": list(end_ids),
            "ignore_eos": True,  # what ends a rollout is the policy's to say
            "logprobs": 0,  # of the token drawn
            "detokenize": False,
        }

    def rollout(self, policy: TokenPolicy, stop: str) -> Rollout:
        count = len(self.drawn)
        return Rollout(
            task=self.request.task,
            sample=self.request.sample,
            row=self.request.row,
            decisions=Tokens.row(self.prompt, self.drawn),
            behavior_S=torch.tensor(self.behavior),
            version_S=torch.tensor(self.versions),
            mask_S=torch.ones(count, dtype=torch.bool),
            reward_S=torch.zeros(count),
            stop=stop,
            sampling=self.request.sampling,
            text=policy.decode(self.drawn),
        )

    def copy(self) -> LiveRequest:
        return replace(self, drawn=list(self.drawn), behavior=list(self.behavior), versions=list(self.versions))


def distribution(given: Any) -> dict[str, Any]:
    """The sampling distribution, in vLLM's terms."""
    sampling = of_tokens(given)
    drawn = sampling.temperature > 0  # the greedy choice is recorded with the model's own log-probability
    return {
        "temperature": sampling.temperature,
        "top_k": sampling.top_k if drawn else 0,
        "top_p": sampling.top_p if drawn else 1.0,
        "min_p": sampling.min_p if drawn else 0.0,
    }


class AbstractVLLM(AbstractEngine):
    """vLLM holds at most ``slots`` requests of a run; the others wait here, so that none starts under outdated weights."""

    policy: TokenPolicy
    _longest: int  # tokens that one request may have

    def __init__(self, policy: TokenPolicy, slots: int, precision: str) -> None:
        self.policy = policy
        self._slots, self._precision = slots, precision
        self._version, self._loads, self._count = -1, 0, 0
        self.queue: deque[LiveRequest] = deque()
        self.live: dict[str, LiveRequest] = {}  # with vLLM, by its name there
        self.done: list[Finished] = []  # not fetched by a step yet

    @property
    def version(self) -> int:
        return self._version

    @property
    def tolerance(self) -> float:
        return TOLERANCE[self._precision]

    @property
    def in_flight(self) -> int:
        return len(self.queue) + len(self.live) + len(self.done)

    def submit(self, request: Request) -> None:
        self._enter(LiveRequest(request=request, prompt=self.policy.encode_task(request.task)))

    def extend(self, request: Request, rollout: Rollout, told: Sequence[int] = (), *, first: int | None = None) -> None:
        self._enter(LiveRequest.onward(request, rollout, told, first=first, version=self._version))

    def _enter(self, live: LiveRequest) -> None:
        live.check(self._longest)
        self.queue.append(live)

    def step(self) -> list[Finished]:
        assert self._version >= 0, "load comes before step"
        if not self.done:
            while self.queue and len(self.live) < self._slots:
                self._ask(self.queue.popleft())
            self._advance()
        done, self.done = self.done, []
        return done

    def cancel(self, key: tuple[int, int]) -> Rollout | None:
        for finished in self.done:
            if finished.key == key:
                self.done.remove(finished)
                return replace(finished.rollout, stop="cancelled")
        for live in self.queue:
            if live.request.key == key:
                self.queue.remove(live)
                return live.rollout(self.policy, "cancelled") if live.drawn else None
        for name, live in self.live.items():
            if live.request.key == key:
                self._take_back(name)
                return live.rollout(self.policy, "cancelled") if live.drawn else None
        raise KeyError(f"no request {key} is in flight")

    @abstractmethod
    def _ask(self, live: LiveRequest) -> None:
        """Hand it to vLLM, and enter it in ``live``."""

    @abstractmethod
    def _advance(self) -> None:
        """Take in what vLLM has generated; complete requests move from ``live`` to ``done``."""

    @abstractmethod
    def _take_back(self, name: str) -> None:
        """Removes it from vLLM and ``live``, with everything sampled for it."""

    def state_dict(self) -> dict[str, Any]:
        """Requests and their tokens; keys and values are recomputed, and unreturned tokens are sampled again."""
        return {"live": [live.copy() for live in (*self.live.values(), *self.queue)], "done": list(self.done)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        assert not self.in_flight, "a resumed engine has nothing in flight"
        self.queue = deque(live.copy() for live in state["live"])
        self.done = list(state["done"])
