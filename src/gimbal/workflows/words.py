"""The tokenizer work that a runner does for its workflow: texts to tokens, tokens to texts, and checks for room."""

from __future__ import annotations

import torch

from gimbal.policies.base import AbstractPolicy
from gimbal.policies.commits import Commits, MaskedSampling
from gimbal.policies.masked import MaskedPolicy
from gimbal.policies.token import TokenPolicy, Tokens, of_tokens
from gimbal.records import AbstractSampling, Rollout
from gimbal.workflows.base import Attempt, Decode, Draw, Encode, EncodedPrompt, Fork, Write

SPOKEN = Write | Encode | Decode  # calls that it answers


class Words:
    """The tokenizer of one policy, for the workflow of this name."""

    def __init__(self, policy: AbstractPolicy, workflow: str) -> None:
        self._policy, self.workflow = policy, workflow

    def policy(self, call: object) -> TokenPolicy:
        if not isinstance(self._policy, TokenPolicy):
            raise ValueError(
                f"{self.workflow} asks for {type(call).__name__} with words, and {type(self._policy).__name__} has no tokens: it "
                "is for language models"
            )
        return self._policy

    def told(self, call: Draw) -> list[int] | None:
        return None if call.told is None else self.policy(call).encode_told(call.row, call.told)

    def fits(self, call: Draw, sampling: AbstractSampling) -> bool:
        """Whether a row has room for an observation and a decision after it."""
        assert call.row is not None
        room = sampling.max_length - call.row.length
        if isinstance(call.told, str) and len(call.told) > room * self.policy(call).longest_token:
            return False  # before it is encoded: some megabytes take longer than a step
        return call.row.length + len(self.told(call) or []) < sampling.max_length

    def paused(self, call: Draw | Fork, whole: Rollout, wanted: AbstractSampling) -> bool:
        """Whether it was stopped only by the call's own conditions."""
        if whole.stop == "length":
            return whole.length < wanted.max_length
        if whole.stop != "stop" or not call.stop:
            return False
        policy, tokens = self.policy(call), whole.decisions
        assert isinstance(tokens, Tokens), type(tokens)
        ids = tokens.ids_NL[0, int(tokens.prompt_N[0]) : int(tokens.length_N[0])].tolist()
        before = policy.decode(ids[:-1])
        own = any(whole.text.count(stop) > before.count(stop) for stop in of_tokens(wanted).stop)
        return not own and ids[-1] not in policy.end_ids

    def written(self, call: Write, attempt: Attempt, version: int) -> Rollout:
        decisions, text = self._written(call, attempt)
        length = decisions.shape[1]
        return Rollout(
            task=attempt.task,
            sample=attempt.sample if call.sample is None else call.sample,
            decisions=decisions,
            behavior_S=torch.zeros(length),
            version_S=torch.full((length,), version),
            mask_S=torch.ones(length, dtype=torch.bool),
            reward_S=torch.zeros(length),
            stop="stop",
            sampling=attempt.sampling,
            text=text,
        )

    def _written(self, call: Write, attempt: Attempt) -> tuple[Tokens | Commits, str]:
        """A written answer, as its policy would have written it, and its text."""
        if isinstance(self._policy, MaskedPolicy):
            assert isinstance(attempt.sampling, MaskedSampling), type(attempt.sampling)
            ids = self._policy.encode_said(attempt.task, call.text)
            decisions = self._policy.written(attempt.task, ids, attempt.sampling)
            return decisions, call.text if isinstance(call.text, str) else self._policy.text(ids)
        policy = self.policy(call)
        ids, end = policy.encode_said(attempt.task, call.text)
        ids = [*ids, *(end if call.end else ())]
        policy.known(ids, f"the written answer of task {attempt.task.id}")
        text = call.text if isinstance(call.text, str) else policy.decode(ids)
        return Tokens.row(policy.encode_task(attempt.task), ids), text

    def answered(self, call: Write | Encode | Decode, attempt: Attempt, version: int) -> Rollout | EncodedPrompt | str:
        if isinstance(call, Write):
            return self.written(call, attempt, version)
        return self._encoded(call) if isinstance(call, Encode) else self.policy(call).decode(list(call.ids))

    def _encoded(self, call: Encode) -> EncodedPrompt:
        policy = self.policy(call)
        known = 0 if call.row is None else call.row.length + int(_tokens(call.row).prompt_N[0])
        try:
            ids = policy.encode_task(call.task) if call.task is not None else policy.encode_told(call.row, call.told)
        # A template of whatever a request holds.
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            return EncodedPrompt(refused=str(error))
        return EncodedPrompt(ids=tuple(ids), room=policy.context - known - len(ids))


def _tokens(row: Rollout) -> Tokens:
    assert isinstance(row.decisions, Tokens), type(row.decisions)
    return row.decisions
