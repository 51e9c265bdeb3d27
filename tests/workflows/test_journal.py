"""A journal grows with what was said, and not with the square of its turns."""

import io
from dataclasses import dataclass

import torch
from dice import POLICY, Dice, DiceEngine, ask

from gimbal.environments.tools import AbstractTool
from gimbal.workflows.base import AbstractWorkflow, Act, Draw
from gimbal.workflows.runner import Driven


@dataclass(frozen=True, kw_only=True)
class Says(AbstractTool):
    triggers = ("=",)

    def __call__(self, task, text):
        return "12345678"


@dataclass(frozen=True, kw_only=True)
class Endless(AbstractWorkflow):
    def __call__(self, attempt):
        row = yield attempt.begin(most=16)
        while True:
            moment = yield Act(environment=Says(), action=row.text)
            row = yield Draw(row=row, told=moment.observation, most=16)


def test_a_journal_is_linear_in_the_turns(monkeypatch):
    def throw(self, row):  # no end, and no "="
        row.drawn.append(self.ids[len(row.drawn) % 9])
        row.behavior.append(-1.25)
        row.versions.append(0)

    monkeypatch.setattr(DiceEngine, "throw", throw)
    live = Driven(engine=Dice(), workflow=Endless()).start(POLICY)
    live.load(0, {})
    ask(live, max_length=100_000)
    size, held = {}, {}
    for turns in (4, 16, 64):
        while len(live.flows[0].journal) < 2 * turns:
            live.step()
        file = io.BytesIO()
        torch.save(live.state_dict()["flows"], file)
        (seat,) = live.flows[0].seats.values()
        size[turns], held[turns] = file.tell(), sum(map(len, seat.texts))
    assert size[64] - size[16] < 4.2 * (size[16] - size[4])  # 12 more turns, then 48; whole rows: 13.5 times
    assert held[64] - held[16] == 4 * (held[16] - held[4])
