"""An engine that throws dice: rows of digits, "=" and ends, by the random stream of each row and nothing else. It takes no time."""

from dataclasses import dataclass, field, replace

import torch

from gimbal.engines.base import CONTINUE, DRAW, FORK, AbstractEngine, AbstractEngineSpec, Finished, Request
from gimbal.engines.sampling import completed
from gimbal.ops import philox
from gimbal.policies.token import CausalLM, Sampling, Tokens
from gimbal.records import Episode, Rollout, Task

POLICY = CausalLM().load()
FACES = [*"0123456789=="]


@dataclass(kw_only=True)
class Thrown:
    request: Request
    prompt: list
    drawn: list = field(default_factory=list)
    behavior: list = field(default_factory=list)
    versions: list = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Dice(AbstractEngineSpec):
    """``asks``: the place of the first "=" is the sample's own number plus 1, there is no other, and the row ends 3 later."""

    asks: bool = False

    @property
    def can(self):
        return frozenset({DRAW, CONTINUE, FORK})

    def start(self, policy):
        return DiceEngine(policy, self.asks)


class DiceEngine(AbstractEngine):
    version, tolerance = 0, 0.0

    def __init__(self, policy, asks):
        self.policy, self.asks, self.rows, self.loads = policy, asks, [], 0
        self.ids = [policy.tokenizer.encode(face, add_special_tokens=False)[0] for face in FACES]

    @property
    def in_flight(self):
        return len(self.rows)

    def submit(self, request):
        self.rows.append(Thrown(request=request, prompt=self.policy.encode_task(request.task)))

    def extend(self, request, rollout, told=(), *, first=None):
        ids, start = rollout.decisions.ids_NL[0].tolist(), int(rollout.decisions.prompt_N[0])
        drawn = [*ids[start:][:first], *told]
        behavior = rollout.behavior_S[:first].tolist() + [0.0] * len(told)
        versions = rollout.version_S[:first].tolist() + [self.version] * len(told)
        self.rows.append(Thrown(request=request, prompt=ids[:start], drawn=drawn, behavior=behavior, versions=versions))

    def step(self):
        finished = []
        for row in list(self.rows):
            self.throw(row)
            stop = "stop" if row.drawn[-1] in self.policy.end_ids else ""
            stop = stop or ("length" if len(row.drawn) >= row.request.sampling.max_length else "")
            if completed(row.drawn, row.request.sampling.stop, self.policy.decode):
                stop = "stop"
            if stop:
                self.rows.remove(row)
                finished.append(Finished.of(row.request.key, self.rollout(row, stop)))
        return finished

    def throw(self, row):
        at = len(row.drawn)
        draw = philox("dice", *row.request.stream, at).random(2)
        token = self.ids[int(draw[0] * len(FACES))]
        if self.asks:
            token = self.ids[10] if at == row.request.sample + 1 else self.ids[1]
        over = at > row.request.sample + 4 if self.asks else draw[1] < 0.08
        row.drawn.append(self.policy.end_ids[0] if over else token)
        row.behavior.append(-float(draw[1]))
        row.versions.append(self.version)

    def rollout(self, row, stop):
        count = len(row.drawn)
        return Rollout(
            task=row.request.task,
            sample=row.request.sample,
            row=row.request.row,
            decisions=Tokens.row(row.prompt, row.drawn),
            behavior_S=torch.tensor(row.behavior),
            version_S=torch.tensor(row.versions),
            mask_S=torch.ones(count, dtype=torch.bool),
            reward_S=torch.zeros(count),
            stop=stop,
            sampling=row.request.sampling,
            text=self.policy.decode(row.drawn),
        )

    def cancel(self, key):
        (row,) = [row for row in self.rows if row.request.key == key]
        self.rows.remove(row)
        return self.rollout(row, "cancelled") if row.drawn else None

    def load(self, version, state):
        self.version = version

    def score(self, rollout): ...

    def state_dict(self):
        return {"rows": [replace(row, drawn=[*row.drawn], behavior=[*row.behavior]) for row in self.rows]}

    def load_state_dict(self, state):
        self.rows = [replace(row, drawn=[*row.drawn], behavior=[*row.behavior]) for row in state["rows"]]


def ask(live, groups=1, samples=1, **sampling):
    for group in range(groups):
        task = Task(id=f"t{group}", prompt=f"{group} + 1 =\n")
        for sample in range(samples):
            how = Sampling(**{"max_length": 40, **sampling})
            live.submit(Request(group=group, task=task, sample=sample, sampling=how, seed=7))


def ids(row):
    return row.decisions.ids_NL[0, int(row.decisions.prompt_N[0]) : int(row.decisions.length_N[0])].tolist()


def plain(outcome):
    """All of an outcome as numbers that compare."""
    if not isinstance(outcome, Episode):
        return outcome
    columns = ("behavior_S", "version_S", "mask_S", "reward_S", "part_S", "turn_S")
    rows = [
        (
            ids(row), row.stop, row.sample, row.row, row.fork, row.task.prompt,
            *(None if (x := getattr(row, name)) is None else x.tolist() for name in columns),
        )
        for row in outcome.rows
    ]  # fmt: skip
    return rows, outcome.error
