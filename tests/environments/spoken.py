"""An engine that says what it is given, and an attempt driven by it."""

import torch

from gimbal.engines.base import CONTINUE, DRAW, AbstractEngine, AbstractEngineSpec, Finished, Request
from gimbal.policies.token import Sampling, Tokens
from gimbal.records import Rollout
from gimbal.workflows.dialogue import Dialogue
from gimbal.workflows.runner import Driven


class Spoken(AbstractEngineSpec):
    """An engine that says what it is given, turn by turn, and records what it was told."""

    def __init__(self, *turns):
        self.turns = turns

    @property
    def can(self):
        return frozenset({DRAW, CONTINUE})

    def start(self, policy):
        return Speaker(policy, self.turns)


class Speaker(AbstractEngine):
    version, tolerance = 0, 0.0

    def __init__(self, policy, turns):
        self.policy, self.turns, self.rows, self.prompts = policy, list(turns), [], []

    @property
    def in_flight(self):
        return len(self.rows)

    def submit(self, request):
        prompt = self.policy.encode_task(request.task)
        self.prompts.append(self.policy.decode(prompt))
        self.rows.append((request, prompt, [], 0))

    def extend(self, request, rollout, told=(), *, first=None):
        ids, start = rollout.decisions.ids_NL[0].tolist(), int(rollout.decisions.prompt_N[0])
        self.rows.append((request, ids[:start], [*ids[start:], *told], len(told)))

    def step(self):
        (request, prompt, drawn, _), self.rows = self.rows[0], []
        drawn = [*drawn, *self.policy.tokenizer.encode(self.turns.pop(0), add_special_tokens=False)]
        zero_S = torch.zeros(len(drawn))
        row = Rollout(
            task=request.task, sample=request.sample, decisions=Tokens.row(prompt, drawn), behavior_S=zero_S,
            version_S=zero_S.long(), mask_S=zero_S == 0, reward_S=zero_S, stop="stop", sampling=request.sampling,
            text=self.policy.decode(drawn),
        )  # fmt: skip
        return [Finished.of(request.key, row)]

    def cancel(self, key): ...
    def score(self, rollout): ...
    def state_dict(self): ...
    def load_state_dict(self, state): ...
    def load(self, version, state): ...


def driven(policy, task, tool, *turns):
    """What comes of an attempt that says these turns, and the prompt that it was asked with."""
    live = Driven(engine=Spoken(*turns), workflow=Dialogue(tool=tool)).start(policy)
    live.submit(Request(group=0, task=task, sample=0, sampling=Sampling(max_length=400), seed=1))
    done = []
    while not done:
        done = live.step()
    return done[0].outcome, live.inner.prompts[0]
