"""Weights of a distillation's loss by a reward: which rollouts, blocks and pixels teach more."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal.composition import AbstractPart, Composition, Refusal, Verdict
from gimbal.learning.updates.forward_process import classes, paths
from gimbal.learning.updates.reward_gradient import climbed, flat
from gimbal.records import TrainBatch
from gimbal.rewards.base import AbstractReward
from gimbal.rewards.pair_judge import AbstractPairJudge, AskedSamples

ROLLOUT, ELEMENT = "matching/rollout", "matching/element"  # facts: [N], [N, 1, D]
LEAST, MOST = 0.2, 5.0  # of a block's or a pixel's weight


@dataclass(frozen=True, kw_only=True)
class RewardWeighted(AbstractPart):
    """What each rollout, block and pixel of distribution matching counts (Stream-R1, arXiv:2605.03849).

    With l_{n,d} the loss of number d of block n, a row of an episode with the score R_n:

        loss = mean_n w_n mean_d a_n b_{n,d} l_{n,d},   w_n = exp(R_n / tau) over its mean in the minibatch

    and by the saliency s_{n,d} = |dR/dx| of the finished block, summed over its channels, without gradient: a_n is the mean of s over
    the block, over that of its episode's blocks; b_{n,d} is s over its mean in the block. Both are cut to 0.2 to 5, and a is then
    divided by its mean over the episode, b by its mean over the block.

    - ``tau`` = inf: every rollout counts the same; without ``saliency`` too, distribution matching.
    - ``tau`` to 0: the best rollouts of the minibatch alone.
    - a reward whose gradient is the same everywhere: a = b = 1.

    Left out: several rewards whose shares move. The weights of a run's rewards are theirs (``weight``).

    Confidence: abstract only; the equations are ours.
    """

    tau: float = 1.0
    saliency: bool = True

    def __post_init__(self) -> None:
        if not self.tau > 0:
            raise ValueError(f"RewardWeighted.tau is {self.tau}; it must be above 0 (inf: all rollouts count the same)")
        if self.tau == math.inf and not self.saliency:
            raise ValueError("RewardWeighted with tau=inf and without saliency weighs nothing: leave it out (None)")

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        weighted = [reward for reward in whole.run.rewards if reward.weight]
        if not weighted:
            yield Refusal(
                "RewardWeighted weighs by a reward, and no reward of the run has a weight: reward='DigitClass(wanted=4)'"
            )
        for reward in weighted if self.saliency else ():
            if isinstance(reward, AbstractPairJudge):
                yield Refusal(
                    f"RewardWeighted.saliency follows a reward of single samples, and {reward.name!r} ({type(reward).__name__}) "
                    "compares two: set update.weighted.saliency=false"
                )
            if why := flat(reward):
                yield Refusal(
                    f"RewardWeighted.saliency needs a differentiable reward, and of {reward.name!r} ({type(reward).__name__}) {why}; "
                    "or set its weight to 0, or update.weighted.saliency=false"
                )

    def of_rollouts(self, minibatch: TrainBatch) -> Float[Tensor, " N"]:
        """w of each row that counts."""
        there_N = minibatch.mask_NS.any(-1)
        share_N = (minibatch.return_N / self.tau).masked_fill(~there_N, -math.inf).softmax(0)
        return share_N * there_N.sum()

    def of_elements(self, batch: TrainBatch, rewards: tuple[AbstractReward, ...]) -> Float[Tensor, "N 1 ..."]:
        """a b of each number of each finished sample. The class that a row was not told is that of its episode."""
        decisions, episode_N = paths(batch), batch.column("episode_N", self).unique(return_inverse=True)[1]
        label_N = classes(batch, self)
        with torch.enable_grad():
            x_ND = decisions.sample_ND.detach().requires_grad_()
            slope_ND = torch.autograd.grad(climbed(rewards, x_ND, AskedSamples(label_N=label_N)).sum(), x_ND)[0]
        salient_ND = slope_ND.abs().sum(1, keepdim=True)
        mean_N = salient_ND.flatten(1).mean(1)

        def by_episode(x_N: Tensor) -> Tensor:
            """Over its mean in the episode."""
            zero_E = x_N.new_zeros(int(episode_N.max()) + 1)
            sum_E, count_E = (zero_E.index_add(0, episode_N, y_N) for y_N in (x_N, torch.ones_like(x_N)))
            return x_N / (sum_E / count_E).clamp(min=1e-12)[episode_N]

        block_N = by_episode(by_episode(mean_N).clamp(LEAST, MOST))
        pixel_ND = (salient_ND / mean_N.clamp(min=1e-12).reshape(-1, 1, 1, 1)).clamp(LEAST, MOST)
        pixel_ND = pixel_ND / pixel_ND.flatten(1).mean(1).reshape(-1, 1, 1, 1)
        return (block_N.reshape(-1, 1, 1, 1) * pixel_ND).expand_as(x_ND)[:, None]
