"""Single decisions of a data set that is there from the first step, and stays as it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from gimbal.composition import Composition, Refusal, Verdict
from gimbal.dataflow.replay.base import AbstractStore, AbstractStoreSpec, Judge
from gimbal.dataflow.replay.transitions import FRESH, MOVE, joined
from gimbal.environments.gym import Environment, Gymnasium
from gimbal.environments.minari import DATASET, Minari, recording
from gimbal.environments.recording import Recording
from gimbal.ops import philox
from gimbal.policies.control import STEPS, Steps
from gimbal.records import Group, TrainBatch

COST_HERE, COST_AFTER = "cost/here", "cost/after"  # facts [N, 1]: of the observation before an action, and after it


@dataclass(frozen=True, kw_only=True)
class Recordings(AbstractStoreSpec):
    """Holds every decision of the data set that the tasks are of. Each learner step is ``moves`` moves of the weights, each by
    ``minibatch`` decisions, any as likely as any other.

    The episodes that come in one by one are of the same data, and nothing more is learned from them. All decisions are shown to
    running statistics once, before the first move. ``replay/passes`` is how many times over the data have been drawn.
    """

    same_rows: ClassVar[bool] = False

    moves: int = 250
    minibatch: int = 128

    def __post_init__(self) -> None:
        if self.moves < 1 or self.minibatch < 1:
            raise ValueError(
                f"Recordings has moves {self.moves} and minibatch {self.minibatch}; both must be at least 1"
            )

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        learns = whole.run.learns
        if not isinstance(whole.run.tasks, Minari):  # of a mixture it would learn from whichever came first
            yield Refusal(
                "Recordings draws from recorded episodes of one data set, and the tasks are none: tasks='Minari(dataset=...)'; "
                "gimbal record A B DIRECTORY mixes two"
            )
        if not learns.off_policy:
            yield Refusal(
                "Recordings draws single decisions that another policy took, and this update learns from what its own policy drew: "
                "begin with iql, cql, td3_bc or bc"
            )
        elif learns.optimization.minibatches > 1 or learns.optimization.epochs > 1:
            yield Refusal(
                "Recordings says how often the weights move: store.moves, and leave optimization.minibatches and epochs at 1"
            )
        for tasks in whole.all(Minari):
            yield from _unlike(tasks, whole)

    def start(self, seed: int) -> RecordedRows:
        return RecordedRows(self, seed)


def _unlike(tasks: Minari, whole: Composition) -> Iterator[Verdict]:
    """What was recorded, what the policy sees and does, and what the evaluation plays are the same."""
    data, policy = tasks.recording, whole.run.policy
    if policy.family.unit != STEPS.unit:
        yield Refusal(
            f"{tasks.dataset} holds episodes of control, and {type(policy).__name__} does not act: begin with iql, cql, td3_bc or bc"
        )
        return
    if (own := policy.load().interface) != data.interface:
        yield Refusal(
            f"{tasks.dataset} has {data.interface}, and the policy {own}: set policy.observations and policy.actions (Gaussian, "
            "SquashedGaussian or Deterministic for real actions, Categorical for choices)"
        )
    for played in whole.all(Gymnasium):
        if (there := Environment(played.source).interface) != data.interface:
            yield Refusal(
                f"{tasks.dataset} has {data.interface}, and {played.source}, which the evaluation plays, {there}: "
                f"held_out.tasks.environment={data.source or 'NAME'}, or held_out=none"
            )


class RecordedRows(AbstractStore):
    """The rows, once an episode has told which data set they are of."""

    def __init__(self, spec: Recordings, seed: int) -> None:
        self.spec, self.seed = spec, seed
        self.dataset = ""
        self.rows: TrainBatch | None = None
        self.version = self.moves = 0

    def join(self, groups: Sequence[Group], version: int, judge: Judge) -> list[Group]:
        self.version, self.dataset = version, groups[0].task.columns[DATASET]
        return list(groups)

    def take(self, fresh: TrainBatch) -> TrainBatch:
        if self.rows is None:
            self.rows = rows_of(recording(self.dataset))
        rows, spec = self.rows, self.spec
        generator = philox("recordings", self.seed, self.moves)
        place_K = torch.from_numpy(generator.integers(rows.shape[0], size=spec.moves * spec.minibatch))
        number_K = torch.arange(self.moves, self.moves + spec.moves).repeat_interleave(spec.minibatch)
        drawn = rows.select(place_K).with_columns({MOVE: number_K})
        if not self.moves:
            drawn = joined(drawn, rows.with_columns({MOVE: torch.full((rows.shape[0],), FRESH)}))
        self.moves += spec.moves
        # Of no version: what was recorded before the run is never old.
        return drawn.with_columns({"version_NS": torch.full_like(drawn.column("version_NS", self), self.version)})

    def metrics(self) -> dict[str, float]:
        if self.rows is None:
            return {}
        held = self.rows.shape[0]
        passes = self.moves * self.spec.minibatch / held
        return {"replay/held": float(held), "replay/moves": float(self.moves), "replay/passes": passes}

    def state_dict(self) -> dict[str, Any]:
        """The data are read again where the run goes on; its digests say whether they are the same."""
        return {"moves": self.moves}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.moves = state["moves"]


def rows_of(data: Recording) -> TrainBatch:
    """Every step as a row of its own, in the order of the episodes."""
    episodes = data.episodes

    def stacked(values: Sequence[np.ndarray]) -> Tensor:
        return torch.from_numpy(np.concatenate(values))

    length_E = [episode.length for episode in episodes]
    last_K = torch.zeros(data.steps, dtype=torch.bool)
    last_K[torch.tensor(length_E).cumsum(0) - 1] = True
    ended_K = torch.tensor([episode.terminated for episode in episodes]).repeat_interleave(torch.tensor(length_E))
    zero_N1 = torch.zeros(data.steps, 1)
    facts: dict[str, Tensor] = {}
    if data.costs:
        cost_E = [episode.cost_S for episode in episodes if episode.cost_S is not None]
        facts = {
            COST_HERE: stacked([cost_S[:-1] for cost_S in cost_E])[:, None],
            COST_AFTER: stacked([cost_S[1:] for cost_S in cost_E])[:, None],
        }
    return TrainBatch(
        mask_NS=torch.ones(data.steps, 1, dtype=torch.bool),
        behavior_NS=zero_N1,
        version_NS=torch.zeros(data.steps, 1, dtype=torch.long),
        reward_NS=stacked([episode.reward_S for episode in episodes])[:, None],
        facts=facts,
        decisions=Steps(
            observation_NSO=stacked([episode.observation_SO[:-1] for episode in episodes])[:, None],
            action_NSA=stacked([episode.action_SA for episode in episodes])[:, None],
            final_NO=stacked([episode.observation_SO[1:] for episode in episodes]),
            length_N=torch.ones(data.steps, dtype=torch.long),
            terminated_N=last_K & ended_K,
        ),
    )
