"""An off-policy update that learns from a learned world too: short imagined branches from real observations."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gimbal import ops
from gimbal.composition import FOLLOWS, Composition, Refusal, Verdict
from gimbal.dataflow.replay.recordings import Recordings
from gimbal.dataflow.replay.transitions import FRESH, MOVE
from gimbal.learning.guardian import Guardian, Supported, misplaced
from gimbal.learning.updates.around import AbstractAround
from gimbal.learning.updates.base import Loss, Metrics, Models, ModelSpec, Stateful
from gimbal.learning.updates.model_learning import fitting, foreseen, fresh_steps, refining, single_steps
from gimbal.learning.updates.off_policy import counted_of, means, steps_of
from gimbal.learning.updates.td3 import TD3
from gimbal.policies.control import AbstractControlPolicy, Steps
from gimbal.policies.dynamics import Dynamics
from gimbal.records import TrainBatch

WORLD, GUARD = "world", "guard"
# Facts: what the steps of a branch need, [N, 1, h, ...] under this and its name; rows that ``inside`` learns from; where branches
# begin, [N]; what a real step weighs in the world's loss, an imagined one among all of them; and what is told of those.
BRANCH, USED, BEGINS, WEIGHT = "branch/", "imagined/used", "imagined/begins", "world/weight"
SHARE, OUTSIDE, UNSAFE = "imagined/weight", "guard/outside", "guard/unsafe"
ACTION, NOISE, PICK = "noise/action", "noise/world", "noise/member"  # of a branch


@dataclass(frozen=True, kw_only=True)
class Dyna(AbstractAround):
    """Learns a world model, and an off-policy update learns from it (Dyna, Sutton 1991; with SAC inside, MBPO, arXiv:1906.08253).

    For each minibatch of K real steps sampled from the store, in this order, w being 1 / K:

        world     sum w sum_m - log p_m(o' - o, r | o, a), on own rollouts with ``store.path`` above 1 (``ModelLearning``)
        branches  from the observations of some of the rows, ``horizon`` steps by the current policy and world, each step by a random
                  member; so many that ``share`` of the K steps that ``inside`` learns from are imagined
        inside    its losses on the branches and the first of the real steps

    A branch that reaches its horizon is truncated, not terminated: ``inside`` bootstraps from its last observation. Where the world
    ends it, later value counts as 0. Imagined steps are not kept: each branch is of the current policy.

    Its predictions of newly arrived real steps are measured as in ``ModelLearning``. ``guard`` is for recorded data
    (``store=Recordings()``): imagined steps that leave them cost (OGSRL).

    - ``share`` = 0 or ``horizon`` = 0: only ``inside``, bit for bit; the world is still learned.
    - ``share`` = 1: only imagined steps.

    Published (MBPO): 7 members of 4 x 200, horizons of 1 to 15, .95 imagined, 20 updates per step, held-out data choose 5 of the
    members.

    Confidence: partial; ours: branches are not kept, the world is trained by each update's own real steps, all members are used.
    """

    world: Dynamics
    horizon: int = 3
    share: float = 0.75
    world_learning_rate: float = 1e-3
    guard: Guardian | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.horizon < 0 or not 0 <= self.share <= 1 or not 0 <= self.world_learning_rate < math.inf:
            raise ValueError(
                f"Dyna has horizon {self.horizon}, which counts imagined steps from 0, share {self.share}, which is in [0, 1], and "
                f"world_learning_rate {self.world_learning_rate}, a number from 0"
            )
        if self.guard is not None and not self._imagines:
            raise ValueError(
                f"Dyna.guard prices imagined steps; with horizon {self.horizon} and share {self.share} there are none: both must be "
                "above 0, or guard=none"
            )
        if "guard.penalty" in self.controllers and self.guard is not None and not self.guard.unsafe:
            raise ValueError(
                "a controller of guard.penalty moves what a broken limit costs; guard.unsafe names none: give it a function of next "
                "observations (file.py:function), or take the controller out"
            )
        if isinstance(self.inside, TD3) and self.inside.imitation is not None:
            raise ValueError("imitation is of recorded actions, and a branch has none: leave out inside.imitation")

    def effects(self) -> frozenset[str]:
        return frozenset({FOLLOWS})

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if self.guard is not None:
            yield from misplaced(str(self.guard.unsafe), "update.guard.unsafe", whole)
        yield from single_steps(self, whole, self.world)
        if self.guard is not None and not isinstance(whole.run.store, Recordings):
            yield Refusal(
                "update.guard keeps imagined steps near data that are all there at the start, which a buffer's are not: "
                "store='Recordings()' with tasks='Minari(dataset=...)', or update.guard=none"
            )

    def models(self) -> dict[str, ModelSpec]:
        optimizer = self.inside.optimization.adamw(self.world_learning_rate)
        return {**self.inside.models(), WORLD: ModelSpec(load=self.world.load, optimizer=optimizer)}

    def init(self, models: Models) -> dict[str, Stateful]:
        return self.inside.init(models) | ({} if self.guard is None else {GUARD: Supported(self.guard)})

    @property
    def _imagines(self) -> bool:
        return self.horizon > 0 and self.share > 0

    def prepare(self, models: Models, batch: TrainBatch) -> tuple[TrainBatch, Metrics]:
        told = foreseen(models[WORLD], batch)
        if self.guard is not None and not models.parts[GUARD].fitted and (rows := fresh_steps(batch)) is not None:
            steps = steps_of(rows.to(models.device))
            models.parts[GUARD].fit(torch.cat([steps.observation_NSO, steps.action_NSA], -1)[:, 0])
        batch, more = self.inside.prepare(models, batch)
        batch = batch.with_columns(refining(models, self.world, batch)).to(models.device)
        if self._imagines and not (MOVE in batch.facts and bool((batch.facts[MOVE] == FRESH).any())):
            batch = batch.with_columns(self._noise(models, batch)).to(models.device)
        return batch, told | more

    def _noise(self, models: Models, batch: TrainBatch) -> dict[str, Tensor]:
        """All randomness of the branches, and for ``inside`` noise per branch step instead of per row."""
        n, h, policy = batch.shape[0], self.horizon, models.policy
        assert isinstance(policy, AbstractControlPolicy)
        random, targets = models.random(NOISE), self.world.observations + 1
        inner = self.inside.noises(models, TrainBatch(mask_NS=torch.ones(n, h, dtype=torch.bool)))
        own = {
            ACTION: policy.noise(models.random(ACTION), n * h).reshape(n, h, -1),
            NOISE: torch.from_numpy(random.standard_normal((n, h, targets), dtype="float32")),
            PICK: torch.from_numpy(random.random((n, h), dtype="float32")),
        }
        return {BRANCH + name: x[:, None] for name, x in {**inner, **own}.items()}

    def survey(self, models: Models, minibatch: TrainBatch) -> tuple[TrainBatch, Metrics]:
        minibatch = minibatch.with_columns({WEIGHT: ops.TokenMean()(minibatch.mask_NS)})
        if not self._imagines:
            return self.inside.survey(models, minibatch)
        count, h = minibatch.shape[0], self.horizon
        branches = round(self.share * count / h)
        place_N = torch.arange(count, device=minibatch.mask_NS.device)
        begins_N = place_N >= count - branches
        used_Nh = begins_N[:, None].repeat(1, h)
        used_Nh[: max(0, count - branches * h), 0] = True
        weight_Nh = ops.TokenMean()(used_Nh)
        facts = {BRANCH + "weight": weight_Nh[:, None], USED: used_Nh[:, 0], BEGINS: begins_N}
        facts[SHARE] = begins_N / max(branches * h, 1)
        return minibatch.with_columns(facts), {"imagined/share": branches * h / float(used_Nh.sum())}

    def losses(self, models: Models, batch: TrainBatch) -> Iterator[Loss]:
        weight_K, (loss_K, told) = counted_of(batch)(batch.facts[WEIGHT]), fitting(models[WORLD], batch)
        yield Loss(of=(WORLD,), value=(weight_K * loss_K).sum(), metrics=means(weight_K, told))
        batch = self._imagined(models, batch) if self._imagines else batch
        told = {name: float(batch.facts[name].sum()) for name in (OUTSIDE, UNSAFE) if name in batch.facts}
        for loss in self.inside.losses(models, batch):
            yield replace(loss, metrics={**loss.metrics, **told})
            told = {}

    @torch.no_grad()
    def _imagined(self, models: Models, batch: TrainBatch) -> TrainBatch:
        """What ``inside`` learns from: real rows, and behind them the branches, each a row of up to ``horizon`` steps."""
        used_N, begins_N = batch.facts[USED], batch.facts[BEGINS]
        real, begun = (kept.nonzero()[:, 0] for kept in (used_N & ~begins_N, begins_N))
        if none := not len(real) + len(begun):  # a micro-batch of rows that only the world learns from
            real = real.new_zeros(1)
        parts, shares = [], {}
        if len(real):
            rows = batch.select(real)
            reward_N1 = rows.column("reward_NS", self)
            if self.guard is not None:
                reward_N1 = reward_N1 - self.guard.penalty * models.parts[GUARD].unsafe(steps_of(rows))
            parts.append((steps_of(rows), reward_N1, rows.mask_NS & (not none)))
        if len(begun):
            branches, reward_Bh = self._branches(models, batch.select(begun))
            if self.guard is not None:
                guard, share_B1 = models.parts[GUARD], batch.facts[SHARE][begun, None]
                outside_Bh, unsafe_Bh = guard.outside(branches), guard.unsafe(branches)
                reward_Bh = reward_Bh - self.guard.price * outside_Bh - self.guard.penalty * unsafe_Bh
                shares = {OUTSIDE: (share_B1 * outside_Bh).sum(), UNSAFE: (share_B1 * unsafe_Bh).sum()}
            parts.append((branches, reward_Bh, branches.real_NS))
        kept = torch.cat([real, begun])
        facts = {name.removeprefix(BRANCH): x[kept, 0] for name, x in batch.facts.items() if name.startswith(BRANCH)}
        decisions, rewards, masks = zip(*parts, strict=True)
        width = max(len(mask_NS[0]) for mask_NS in masks)
        facts |= {name: x[kept] for name, x in batch.facts.items() if name == MOVE}
        facts |= {name: (share / len(kept)).expand(len(kept)) for name, share in shares.items()}
        return TrainBatch(
            mask_NS=torch.cat([wide(x, width) for x in masks]),
            reward_NS=torch.cat([wide(x, width) for x in rewards]),
            decisions=Steps.stack(list(decisions)),
            facts={name: x if x.ndim == 1 else x[:, :width] for name, x in facts.items()},
        )

    def _branches(self, models: Models, rows: TrainBatch) -> tuple[Steps, Float[Tensor, "B S"]]:
        policy, world = models.policy, models[WORLD]
        assert isinstance(policy, AbstractControlPolicy)
        seen_BO = steps_of(rows).observation_NSO[:, 0]
        on_B = torch.ones(len(seen_BO), dtype=torch.bool, device=seen_BO.device)
        ended_B, length_B, found = ~on_B, on_B.long() * 0, []
        warm_B = torch.ones_like(seen_BO[:, 0])
        for step in range(self.horizon):
            action_BA = policy.draw(seen_BO, rows.facts[BRANCH + ACTION][:, 0, step], warm_B)[0]
            next_BO, reward_B, ends_B = world.step(
                seen_BO, action_BA, rows.facts[BRANCH + PICK][:, 0, step], rows.facts[BRANCH + NOISE][:, 0, step]
            )
            found.append((seen_BO, action_BA, torch.where(on_B, reward_B, 0)))
            length_B, ended_B = length_B + on_B, ended_B | (on_B & ends_B)
            seen_BO = torch.where(on_B[:, None], next_BO, seen_BO)
            on_B = on_B & ~ends_B
        seen_BSO, action_BSA, reward_BS = (torch.stack(x, 1) for x in zip(*found, strict=True))
        steps = Steps(
            observation_NSO=seen_BSO,
            action_NSA=action_BSA,
            final_NO=seen_BO,
            length_N=length_B,
            terminated_N=ended_B,
        )
        return steps, reward_BS


def wide(x_NS: Tensor, width: int) -> Tensor:
    return nn.functional.pad(x_NS, (0, width - x_NS.shape[1]))
