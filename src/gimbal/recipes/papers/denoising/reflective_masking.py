"""Reflective masking on gimbal-sudoku: a finished grid is read again, and the cells in doubt are masked and filled in anew."""

from __future__ import annotations

from dataclasses import replace

from gimbal.engines.unmasking import Unmasking
from gimbal.learning.optimization import Optimization
from gimbal.policies.commits import MaskedSampling
from gimbal.recipes.papers.denoising.masked_grpo import masked_grpo
from gimbal.rewards.one_of import OneOf
from gimbal.rewards.remasked import Remasked
from gimbal.rewards.tokens_per_pass import TokensPerPass
from gimbal.runtime.run import Run


def reflective_masking() -> Run:
    """Reflective masking (arXiv:2606.16700) with RL: a policy reads its finished grid again and masks the cells that it doubts.

    A review is a decision: each cell is masked with a probability that falls with that of its own token, and the log-probability of
    what was masked is on the record, so that GRPO trains it with the tokens. All other cells stay as they are. Published, the network
    is first taught on synthetic mistakes to write the mask itself, and sees its earlier texts through their embeddings; here it is
    asked as it is, and needs neither. All cells above a confidence of 0.6 are committed together, which is fast and often wrong, and up
    to two reviews mend it. ``reward/remasked/mean`` counts cells that are masked again. The sampler is in float32, since a small
    ``spread`` multiplies what bfloat16 rounds. On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never
    acts. Not shown here: language models of billions of parameters.
    """
    return replace(
        masked_grpo(),
        engine=Unmasking(slots=64),
        sampling=MaskedSampling(max_length=16, threshold=0.6, spread=0.03, reviews=2, keep=0.85),
        rewards=(OneOf(), TokensPerPass(weight=0.0), Remasked()),
        prompts_per_step=16,
        num_generations=16,
        optimization=Optimization(learning_rate=1e-4, microbatch_tokens=65536),
        steps=25,
    )
