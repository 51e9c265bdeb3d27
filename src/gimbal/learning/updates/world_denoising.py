"""Diffusion worlds that learn from real steps, and from what they drew themselves from states to which they drifted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gimbal.composition import FOLLOWS, Composition, Refusal, Verdict
from gimbal.dataflow.replay.transitions import PATH
from gimbal.learning.updates.base import POLICY, Loss, Metrics, Models, ModelSpec
from gimbal.learning.updates.model_learning import foreseen, single_steps
from gimbal.learning.updates.off_policy import AbstractOnDecisions, Explore, counted_of, means, steps_of
from gimbal.ops.weights import buffers_of
from gimbal.policies.diffusion_dynamics import LEAST, MOST, DiffusionDynamics, DiffusionDynamicsNetwork
from gimbal.policies.planned import Planned, PlanningPolicy
from gimbal.records import TrainBatch

OLD = "old"
CENTRE, WIDTH = -0.7, 1.2  # of the logarithm of the sizes of noise that are trained
# Facts of each row: noise and its size [N, S, T + 1]; and for own rollouts the noise of their steps [N, S, p - 1, T], of the candidates
# [N, S, K, T], what these are noised by [N, S, K, T + 1], and how far a row drifts, in [0, 1).
NOISE, DRIFT, DRAWN, AGAIN, DEPTH = "denoise/noise", "own/drift", "own/drawn", "own/noise", "own/depth"


@dataclass(frozen=True, kw_only=True)
class OwnRollouts:
    """Contrastive denoising from states to which a world drifted by itself (PersistWorld, arXiv:2603.25685; DiffusionNFT's loss,
    arXiv:2509.16117). Of each recorded path, with D_old a slow copy of the world:

        drift     D_old continues from the path's first observation by its own draws and the recorded actions, 0 to p - 1 steps, each as
                  likely as any other, to h
        draw      ``candidates`` targets x_1..x_K of the next step from h
        rank      R_k = - |h + x_k - recorded| + ``spread`` sum_j |x_k - x_j| / (K - 2)
                  q_k = 1/2 + 1/2 clip((R_k - mean) / std, -1, 1)
        learn     q |D+ - x_k|^2 + (1 - q) |D- - x_k|^2,   D+ = (1 - b) D_old + b D,   D- = (1 + b) D_old - b D

    at a random noise of x_k, weighted as in ``WorldDenoising``; the mean over K counts ``weight`` times. |.| is the root mean square
    over observation and reward, in units of the targets' spread. After each move D_old <- D_old + ``rate`` (D - D_old).

    - q = 1 and b = 1: denoising of own draws (self-distillation).
    - q = 1/2 (``candidates`` = 1, or all as good): no gradient at D = D_old.
    - ``spread`` = 0: the distance alone, which pays for the middle of what may come, so that draws narrow. With 1 and three candidates
      or more, a world that draws as the environment does gets the same R - mean for every draw, on average (the energy score).

    Published: images, R of LPIPS and SSIM, so ``spread`` 0; worlds that are trained already. Ours: ``spread`` 1; beside the recorded
    steps. What came by chance on the recorded path says nothing of other states, so where outcomes are random, much drift
    (``store.path``) teaches what is wrong.

    Confidence: partial: the construct is published, K, b, ``rate`` and the map to q are ours.
    """

    candidates: int = 4
    b: float = 1.0
    weight: float = 1.0
    spread: float = 1.0
    rate: float = 0.01

    def __post_init__(self) -> None:
        if self.candidates < 1 or not 0 < self.b <= 1 or self.weight < 0 or self.spread < 0 or not 0 < self.rate <= 1:
            raise ValueError(
                f"OwnRollouts has candidates {self.candidates}, at least 1; b {self.b} and rate {self.rate}, above 0 and at most "
                f"1; and weight {self.weight} and spread {self.spread}, numbers from 0"
            )

    def good(self, wrong_KC: Float[Tensor, "K C"], own_KCT: Float[Tensor, "K C T"]) -> Float[Tensor, "K C"]:
        """q of each candidate, from how far it ends from the record, and from what all of them are."""
        apart_KCC = (own_KCT[:, :, None] - own_KCT[:, None]).square().mean(-1).sqrt()
        score_KC = self.spread * apart_KCC.sum(-1) / max(1, self.candidates - 2) - wrong_KC
        centred_KC = score_KC - score_KC.mean(-1, keepdim=True)
        deviation_K1 = centred_KC.square().mean(-1, keepdim=True).sqrt()
        return 0.5 + 0.5 * (centred_KC / (deviation_K1 + 1e-6)).clamp(-1, 1)


def contrast(
    world: DiffusionDynamicsNetwork,
    good_J: Float[Tensor, " J"],
    now_JT: Float[Tensor, "J T"],
    old_JT: Float[Tensor, "J T"],
    clean_JT: Float[Tensor, "J T"],
    size_J1: Float[Tensor, "J 1"],
    b: float,
) -> Float[Tensor, " J"]:
    """q |D+ - x|^2 + (1 - q) |D- - x|^2."""
    up_J = world.missed((1 - b) * old_JT + b * now_JT, clean_JT, size_J1)
    down_J = world.missed((1 + b) * old_JT - b * now_JT, clean_JT, size_J1)
    return good_J * up_J + (1 - good_J) * down_J


@dataclass(frozen=True, kw_only=True)
class WorldDenoising(AbstractOnDecisions):
    """Trains a planning policy's diffusion world (``DiffusionDynamics``) on real steps. With x = (o' - o, r) in units of its spread,
    e ~ N(0, 1), log s ~ N(-.7, 1.2^2) within [log LEAST, log MOST], and w = 1 / the number of steps:

        world     sum w (1 + s^2) / s^2 mean_T |D(x + s e; s, o, a) - x|^2

    and, where ends are learned, the cross-entropy of an end. There is no likelihood, so ``world/nll`` is not told. ``world/error`` and
    ``world/gap`` are those of ``ModelLearning``, over ``world.draws`` draws.

    ``own`` adds training on own rollouts, for which ``store.path`` says how many steps of a recorded path there are.

    - The loss has its minimum at E[x | x + s e, o, a], from which the sampler draws x given o and a.
    - ``own`` = None, or its ``weight`` 0: real steps alone.

    Published (DIAMOND, arXiv:2405.12399): log s ~ N(-.4, 1.2^2) for a spread of .5, in which -.7 is nearer to small noise.
    """

    explore: Explore = Explore(first=1.0, last=0.15, over=200)
    own: OwnRollouts | None = None

    def effects(self) -> frozenset[str]:
        return frozenset({FOLLOWS})

    def explores(self) -> Explore:
        return self.explore

    def models(self) -> dict[str, ModelSpec]:
        old = {} if self.own is None else {OLD: ModelSpec(follows=POLICY, rate=self.own.rate)}
        return {POLICY: ModelSpec(optimizer=self.optimization.of_policy()), **old}

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        policy = whole.run.policy
        if not isinstance(policy, Planned) or not isinstance(policy.world, DiffusionDynamics):
            yield Refusal(
                "WorldDenoising trains a world that draws by denoising, and this policy has none: set policy='Planned(world="
                "DiffusionDynamics(observations=..., actions=...), bound=...)', or update='ModelLearning()' for one with a likelihood"
            )
        yield from single_steps(self, whole)
        path = vars(whole.run.store).get("path", 1)
        if self.own is not None and path < 2:
            yield Refusal(
                "update.own trains on rollouts of several steps against the recorded ones, and store.path is 1: set store.path=3, or "
                "update.own=none"
            )
        elif self.own is None and path > 1:
            yield Refusal(
                f"store.path is {path}, and nothing is learned from paths: set update.own='OwnRollouts()', or store.path=1"
            )

    def prepare(self, models: Models, batch: TrainBatch) -> tuple[TrainBatch, Metrics]:
        told = foreseen(_world(models.policy), batch)
        if OLD in models:  # in the units of the steps that have just come in, as candidates are compared in them
            for old, newer in zip(buffers_of(models[OLD]), buffers_of(models.policy), strict=True):
                old.copy_(newer)
        batch, more = super().prepare(models, batch)
        return batch, told | more

    def noises(self, models: Models, batch: TrainBatch) -> Mapping[str, Tensor]:
        random, (n, s) = models.random("denoise"), batch.shape
        targets = _world(models.policy).spec.observations + 1

        def normal(*shape: int) -> Tensor:
            return torch.from_numpy(random.standard_normal((n, s, *shape), dtype="float32"))

        facts = {NOISE: normal(targets + 1)}
        if self.own is not None and PATH in batch.facts:
            steps, count = batch.facts[PATH].shape[2], self.own.candidates
            facts[DRIFT], facts[DRAWN] = normal(steps - 1, targets), normal(count, targets)
            facts[AGAIN], facts[DEPTH] = (
                normal(count, targets + 1),
                torch.from_numpy(random.random((n, s), dtype="float32")),
            )
        return facts

    def losses(self, models: Models, batch: TrainBatch) -> Iterator[Loss]:
        counted, steps, world = counted_of(batch), steps_of(batch), _world(models.policy)
        seen_KO, action_KA, next_KO = (counted(x) for x in (steps.observation_NSO, steps.action_NSA, steps.next_NSO))
        target_KT = torch.cat([next_KO - seen_KO, counted(batch.column("reward_NS", self))[:, None]], -1)
        clean_KT = world.units(target_KT)
        noisy_KT, size_K1 = noised(clean_KT, counted(batch.facts[NOISE]))
        loss_K = world.missed(world.denoised(seen_KO, action_KA, noisy_KT, size_K1), clean_KT, size_K1)
        told = {"world/loss": loss_K}
        if (end_K := world.ending(seen_KO, action_KA, next_KO)) is not None:
            ended_K = counted(steps.ended_NS).to(end_K.dtype)
            told["world/end"] = wrong_K = torch.nn.functional.binary_cross_entropy_with_logits(
                end_K, ended_K, reduction="none"
            )
            loss_K = loss_K + wrong_K
        if self.own is not None and DRIFT in batch.facts:
            own_K, more = on_own_rollouts(self.own, world, _world(models[OLD]), batch)
            loss_K, told = loss_K + self.own.weight * own_K, told | more
        weight_K = counted(batch.facts["weight"])
        yield Loss(of=(POLICY,), value=(weight_K * loss_K).sum(), metrics=means(weight_K, {"loss": loss_K, **told}))


def _world(policy: Any) -> DiffusionDynamicsNetwork:
    assert isinstance(policy, PlanningPolicy) and isinstance(policy.world, DiffusionDynamicsNetwork), type(policy)
    return policy.world


def noised(clean_KT: Float[Tensor, "K T"], noise_KR: Float[Tensor, "K R"]) -> tuple[Tensor, Tensor]:
    """x + s e and s [K, 1]: of R = T + 1 normal numbers the last says which s."""
    size_K1 = (CENTRE + WIDTH * noise_KR[:, -1:]).exp().clamp(LEAST, MOST)
    return clean_KT + size_K1 * noise_KR[:, :-1], size_K1


def on_own_rollouts(
    own: OwnRollouts, world: DiffusionDynamicsNetwork, old: DiffusionDynamicsNetwork, batch: TrainBatch
) -> tuple[Float[Tensor, " K"], dict[str, Tensor]]:
    """The loss of each row on its own rollout, and what is told of it."""
    counted, steps = counted_of(batch), steps_of(batch)
    seen_KO, path_KpF = counted(steps.observation_NSO), counted(batch.facts[PATH])
    actions, seen = steps.action_NSA.shape[-1], seen_KO.shape[-1]
    action_KpA, next_KpO, reward_Kp1, _ = path_KpF.split([actions, seen, 1, 1], -1)
    known_K = (~path_KpF[..., 0].isnan()).sum(-1)
    depth_K = (counted(batch.facts[DEPTH]) * known_K).long().clamp(max=known_K - 1)
    row_K = torch.arange(len(depth_K), device=depth_K.device)
    with torch.no_grad():
        from_KO = _drifted(old, seen_KO, action_KpA, counted(batch.facts[DRIFT]), depth_K)
        count, targets = own.candidates, seen + 1
        from_JO = from_KO.repeat_interleave(count, 0)
        action_JA = action_KpA[row_K, depth_K].repeat_interleave(count, 0)
        own_JT = old.drawn(from_JO, action_JA, counted(batch.facts[DRAWN]).flatten(0, 1))
        wanted_KT = old.units(torch.cat([next_KpO[row_K, depth_K] - from_KO, reward_Kp1[row_K, depth_K]], -1))
        own_KCT = own_JT.reshape(-1, count, targets)
        wrong_KC = (own_KCT - wanted_KT[:, None]).square().mean(-1).sqrt()
        good_KC = own.good(wrong_KC, own_KCT)
        noisy_JT, size_J1 = noised(own_JT, counted(batch.facts[AGAIN]).flatten(0, 1))
        old_JT = old.denoised(from_JO, action_JA, noisy_JT, size_J1)
    now_JT = world.denoised(from_JO, action_JA, noisy_JT, size_J1)
    loss_J = contrast(world, good_KC.flatten(), now_JT, old_JT, own_JT, size_J1, own.b)
    loss_K = loss_J.reshape(-1, count).mean(-1)
    told = {
        "own/loss": loss_K,
        "own/depth": depth_K.float(),
        "own/good": good_KC.amax(-1),
        "own/error": wrong_KC.mean(-1),
        "own/apart": (now_JT.detach() - old_JT).square().mean(-1).reshape(-1, count).mean(-1),
    }
    return loss_K, told


def _drifted(
    old: DiffusionDynamicsNetwork,
    seen_KO: Float[Tensor, "K O"],
    action_KpA: Float[Tensor, "K p A"],
    noise_KqT: Float[Tensor, "K q T"],
    depth_K: Int[Tensor, " K"],
) -> Float[Tensor, "K O"]:
    """Where each row's own draws lead in so many steps as it has."""
    for step in range(int(depth_K.max())):
        action_KA = action_KpA[:, step].nan_to_num()  # of rows that have ended, and stay where they are
        target_KT, _ = old.advanced(seen_KO, action_KA, noise_KqT[:, step])
        seen_KO = torch.where((depth_K > step)[:, None], seen_KO + target_KT[:, :-1], seen_KO)
    return seen_KO
