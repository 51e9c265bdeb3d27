"""SynthER: a flow that makes transitions like those of the data, and an off-policy update that learns from what it makes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from gimbal.composition import Composition, Refusal, Verdict
from gimbal.critics.actions import ActionValues
from gimbal.dataflow.replay.recordings import Recordings
from gimbal.dataflow.replay.transitions import FRESH, MOVE
from gimbal.learning.updates.around import AbstractAround
from gimbal.learning.updates.base import Loss, Metrics, Models, ModelSpec
from gimbal.learning.updates.feasibility import FeasibilityGuided
from gimbal.learning.updates.flow_q import START, TIME, cloning_noises
from gimbal.learning.updates.model_learning import fresh_steps, single_steps
from gimbal.learning.updates.off_policy import BACKED, DISCOUNT, counted_of, means, steps_of, summed
from gimbal.ops import stable_hash
from gimbal.policies.control import Steps
from gimbal.policies.deterministic import Deterministic, DeterministicPolicy
from gimbal.policies.flow import Velocity, followed
from gimbal.policies.normalizer import Normalizer
from gimbal.records import TrainBatch

TRANSITIONS = "transitions"
Pull = Callable[[Tensor], Tensor]
REAL, DRAWN = "transition/real", "noise/drawn"  # facts [N, 1, D]: what was recorded, and from which noise a flow begins


class TransitionFlow(nn.Module):
    """A flow v(x, t) from noise to whole transitions x = (o, a, r, o' - o, ended), D = 2 O + A + 2 numbers, each in units of its own
    spread over all real transitions (buffers, saved with the weights)."""

    def __init__(self, observations: int, actions: int, hidden: tuple[int, ...], seed: int) -> None:
        super().__init__()
        self.sizes = (observations, actions, 1, observations, 1)
        self.units = Normalizer(sum(self.sizes))
        self.flow = Velocity(0, sum(self.sizes), hidden, seed)

    def follow(self, noise_KD: Float[Tensor, "K D"], steps: int, pull: Pull | None = None) -> Float[Tensor, "K D"]:
        """Where it leads from this noise, in units of the spread; with a ``pull``, which says where an end should rather be, by

            v + (1 - t) / ((1 - t)^2 + t^2) pull(x_t + (1 - t) v)

        The factor is what a score counts in a velocity, (1 - t) / t, times the slope of the expected end in x_t for x ~ N(0, 1)."""
        if pull is None:
            return self.flow.follow(noise_KD[:, :0], noise_KD, steps)

        def pulled(none_KO: Tensor, x_KD: Tensor, time_K1: Tensor) -> Tensor:
            way_KD, rest_K1 = self.flow(none_KO, x_KD, time_K1), 1 - time_K1
            return way_KD + rest_K1 / (rest_K1**2 + time_K1**2) * pull(x_KD + rest_K1 * way_KD)

        return followed(pulled, noise_KD[:, :0], noise_KD, steps)

    def apart(
        self, x_KD: Float[Tensor, "K D"], start_KD: Float[Tensor, "K D"], time_K1: Float[Tensor, "K 1"]
    ) -> Float[Tensor, " K"]:
        """Flow matching on the way to these transitions."""
        return self.flow.apart(x_KD[:, :0], self.units(x_KD), start_KD, time_K1)

    def towards(self, policy: DeterministicPolicy, unit_KD: Float[Tensor, "K D"]) -> Float[Tensor, "K D"]:
        """The gradient of log N(a; pi(o), b^2) in the actions of such transitions, 0 in all else."""
        seen_KO, action_KA = self.raw(unit_KD)[:2]
        seen, actions = self.sizes[:2]
        spread_A = (self.units.variance_O[seen : seen + actions] + 1e-8).sqrt()
        pull_KA = spread_A * (policy.mode(seen_KO) - action_KA) / policy.bound**2
        return nn.functional.pad(pull_KA, (seen, unit_KD.shape[1] - seen - actions))

    def raw(self, unit_KD: Float[Tensor, "K D"]) -> tuple[Tensor, ...]:
        """Their parts in the units that they came in."""
        return (self.units.mean_O + unit_KD * (self.units.variance_O + 1e-8).sqrt()).split(self.sizes, -1)

    def parts(self, unit_KD: Float[Tensor, "K D"], bound: float) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """o, a within the bound, r, o' and whether the environment ended, of transitions in units of the spread."""
        seen_KO, action_KA, reward_K1, change_KO, ended_K1 = self.raw(unit_KD)
        return seen_KO, action_KA.clamp(-bound, bound), reward_K1, seen_KO + change_KO, ended_K1[:, 0] > 0.5


def transitions(batch: TrainBatch) -> Float[Tensor, "N D"]:
    """Of rows of one step each."""
    steps = steps_of(batch)
    seen_NO, next_NO = steps.observation_NSO[:, 0], steps.next_NSO[:, 0]
    assert batch.reward_NS is not None
    ended_N1 = steps.ended_NS.to(seen_NO.dtype)
    return torch.cat([seen_NO, steps.action_NSA[:, 0], batch.reward_NS, next_NO - seen_NO, ended_N1], -1)


@dataclass(frozen=True, kw_only=True)
class SyntheticReplay(AbstractAround):
    """Learns a flow of the store's transitions, and lets an off-policy update learn from transitions that it draws (SynthER,
    arXiv:2303.06614).

    For each minibatch of K real steps, in this order, w being 1 / K, x = (o, a, r, o' - o, ended) in units of its spread, x_0 ~ N(0, 1)
    in each dimension and t uniform in [0, 1):

        flow      sum w mean_D (v(x_t, t) - (x - x_0))^2,   x_t = (1 - t) x_0 + t x
        inside    its losses on the minibatch, in which a ``share`` of the steps is replaced by draws: where v leads from noise in
                  ``flow_steps`` Euler steps, actions clipped to the bound, ended where its number is above 1/2

    The first ``warmup`` moves are the flow's alone. Draws are by the flow as it stands before the move, and fresh for every move:
    none is kept. ``synthetic/spread`` is the mean variance of draws in units of the data's: 1 if they scatter as the data do.

    ``guidance`` pulls drawn actions towards the policy as it stands, a deterministic one (the guide of policy-guided diffusion,
    arXiv:2404.06356, on single transitions: whole trajectories are left out, so that o is drawn from the data's states alone). At each
    Euler step, with b the policy's bound,

        v <- v + ``guidance`` (1 - t) / ((1 - t)^2 + t^2) grad_a log N(a; pi(o), b^2),   at the end (o, a, ...) that v points to

    which is about drawing x in proportion to its density in the data and to N(a; pi(o), b^2)^``guidance``. ``synthetic/off_policy`` is
    the mean square of (a - pi(o)) / b over draws.

    - ``share`` = 0: ``inside`` alone, bit for bit; the flow is still learned.
    - ``share`` = 1: ``inside`` never sees a real step.
    - ``guidance`` = 0: the flow's own draws, bit for bit.

    Published: a diffusion model (EDM, 128 steps of a stochastic sampler, a moving average, 6 x 1024 or 2048), trained before the
    policy (offline, then share 1) or anew every 10,000 steps of the environment (online, then share 1/2), 5 M transitions kept.

    Confidence: partial; ours: a flow in Euler steps, trained along with the policy, o' as a change of o.
    """

    share: float = 0.5
    warmup: int = 2500
    hidden: tuple[int, ...] = (256, 256, 256)
    flow_steps: int = 10
    flow_learning_rate: float = 1e-3
    guidance: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.share <= 1 or self.warmup < 0 or self.flow_steps < 1:
            raise ValueError(
                f"SyntheticReplay has share {self.share}, which is in [0, 1], warmup {self.warmup}, which counts moves from 0, and "
                f"flow_steps {self.flow_steps}, at least 1"
            )
        if not self.hidden or min(self.hidden) < 1 or not 0 <= self.flow_learning_rate < math.inf:
            raise ValueError(
                f"SyntheticReplay has hidden {self.hidden}, widths of the flow's layers from 1, and flow_learning_rate "
                f"{self.flow_learning_rate}, a number from 0"
            )
        if not 0 <= self.guidance < math.inf:
            raise ValueError(
                f"SyntheticReplay.guidance is {self.guidance}: how much drawn actions are pulled towards the policy's, 0 (not at "
                "all) or above"
            )
        if self.guidance and not self.share:
            raise ValueError(
                f"SyntheticReplay.guidance is {self.guidance}, and with share 0 there are no draws to guide: set share above 0, or "
                "guidance=0"
            )
        if not isinstance(vars(self.inside).get("critic"), ActionValues) or isinstance(self.inside, FeasibilityGuided):
            raise ValueError(
                f"SyntheticReplay draws real actions and rewards, and {type(self.inside).__name__} learns by choices or costs: give it "
                "inside=TD3(...), SoftActorCritic(...), ImplicitQ(...) or FlowQ(...)"
            )

    @property
    def critic(self) -> ActionValues:
        """That of ``inside``, whose sizes and bound are the transitions'."""
        return vars(self.inside)["critic"]

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        store = whole.run.store
        if self.guidance and not whole.has(Deterministic):
            yield Refusal(
                f"update.guidance pulls actions towards one that a policy takes, and {type(whole.run.policy).__name__} draws among "
                "many: update.guidance=0, or begin with synther"
            )
        if not isinstance(store, Recordings):
            yield from single_steps(self, whole)
        elif self.warmup >= (moves := store.moves * whole.run.steps):
            yield Refusal(
                f"update.warmup is {self.warmup}, and the run makes {moves} moves, so that the policy would never move: "
                f"update.warmup={moves // 4}, or more steps"
            )

    def models(self) -> dict[str, ModelSpec]:
        return {
            **self.inside.models(),
            TRANSITIONS: ModelSpec(load=self.flow, optimizer=self.inside.optimization.adamw(self.flow_learning_rate)),
        }

    def flow(self, seed: int) -> TransitionFlow:
        sizes = (self.critic.observations, self.critic.actions, self.hidden)
        return TransitionFlow(*sizes, stable_hash(TRANSITIONS, seed) % 2**63)

    def prepare(self, models: Models, batch: TrainBatch) -> tuple[TrainBatch, Metrics]:
        if (new := fresh_steps(batch)) is not None:
            models[TRANSITIONS].units.observe(transitions(new).to(models.device))
        batch, told = self.inside.prepare(models, batch)
        if MOVE in batch.facts and bool((batch.facts[MOVE] == FRESH).any()):  # there is nothing to learn from yet
            return batch, told
        size = sum(models[TRANSITIONS].sizes)
        drawn_ND = models.random(DRAWN).standard_normal((batch.shape[0], 1, size), dtype=np.float32)
        noises = cloning_noises(models, batch, size)
        own = {DRAWN: torch.from_numpy(drawn_ND), **{f"{TRANSITIONS}/{name}": x for name, x in noises.items()}}
        return batch.with_columns({**own, REAL: transitions(batch)[:, None]}).to(models.device), told

    def _warms(self, batch: TrainBatch) -> bool:
        return int(batch.facts[MOVE][0]) < self.warmup

    @torch.no_grad()
    def survey(self, models: Models, minibatch: TrainBatch) -> tuple[TrainBatch, Metrics]:
        if self._warms(minibatch) or not self.share:
            return self.inside.survey(models, minibatch)
        flow: TransitionFlow = models[TRANSITIONS]
        # Spread over the minibatch, of which a store may order the rows by where they come from.
        end_N = torch.arange(1, minibatch.shape[0] + 1, device=minibatch.mask_NS.device)
        taken_N = (end_N * self.share).floor() > ((end_N - 1) * self.share).floor()
        policy, pull = models.policy, None
        if self.guidance:
            assert isinstance(policy, DeterministicPolicy), type(policy)
            pull = partial(self.pulled, flow, policy)
        unit_KD = flow.follow(minibatch.facts[DRAWN][taken_N, 0], self.flow_steps, pull)
        told = {
            "synthetic/share": float(taken_N.float().mean()),
            "synthetic/spread": float(unit_KD.var(0, unbiased=False)[flow.units.variance_O > 0].mean()),
        }
        parts = flow.parts(unit_KD, self.critic.bound)
        if isinstance(policy, DeterministicPolicy):
            told["synthetic/off_policy"] = float(((policy.mode(parts[0]) - parts[1]) / policy.bound).square().mean())
        minibatch, more = self.inside.survey(models, replaced(minibatch, taken_N, parts))
        return minibatch, told | more

    def pulled(self, flow: TransitionFlow, policy: DeterministicPolicy, unit_KD: Float[Tensor, "K D"]) -> Tensor:
        """How transitions that the flow points to are pulled."""
        return self.guidance * flow.towards(policy, unit_KD)

    def losses(self, models: Models, batch: TrainBatch) -> Iterator[Loss]:
        counted, names = counted_of(batch), (REAL, f"{TRANSITIONS}/{START}", f"{TRANSITIONS}/{TIME}")
        weight_K, error_K = (
            counted(batch.facts["weight"]),
            models[TRANSITIONS].apart(*(counted(batch.facts[n]) for n in names)),
        )
        told = means(weight_K, {"synthetic/loss": error_K})
        yield Loss(of=(TRANSITIONS,), value=summed(weight_K, error_K), metrics=told)
        if not self._warms(batch):
            yield from self.inside.losses(models, batch)


def replaced(
    batch: TrainBatch, taken_N: Bool[Tensor, " N"], parts: tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
) -> TrainBatch:
    """The batch of single steps with these rows replaced; what was known of the rewards behind them is dropped."""
    seen_KO, action_KA, reward_K1, next_KO, ended_K = parts
    steps = steps_of(batch)
    assert batch.reward_NS is not None

    def put(x: Tensor, new: Tensor) -> Tensor:
        x = x.clone()
        x[taken_N] = new.to(x.dtype)
        return x

    return replace(
        batch,
        reward_NS=put(batch.reward_NS, reward_K1),
        facts={name: x for name, x in batch.facts.items() if name not in (BACKED, DISCOUNT)},
        decisions=Steps(
            observation_NSO=put(steps.observation_NSO, seen_KO[:, None]),
            action_NSA=put(steps.action_NSA, action_KA[:, None]),
            final_NO=put(steps.final_NO, next_KO),
            length_N=steps.length_N,
            terminated_N=put(steps.terminated_N, ended_K),
        ),
    )
