"""What recipes of denoising policies come to where their own part is taken away, as their cards say."""

from dataclasses import replace

import pytest

pytest.importorskip("diffusers", reason="diffusers is not installed: pip install -e '.[denoising]'")

from gimbal.advantages import GroupNormalized
from gimbal.policies.paths import PathSampling
from gimbal.recipes.papers.denoising.branch_grpo import branch_grpo
from gimbal.recipes.papers.denoising.dance_grpo import dance_grpo
from gimbal.recipes.papers.denoising.flow_grpo import flow_grpo
from gimbal.workflows.fixed_splits import FixedSplits
from gimbal.workflows.single import SingleTurn


def test_dance_grpo_on_all_steps_from_own_starts_by_the_flow_sde_is_flow_grpo_without_the_kl():
    ours, flow = dance_grpo(), flow_grpo()
    assert isinstance(ours.sampling, PathSampling)
    sampling = replace(ours.sampling, window=0, same_start=False, sampler="flow_sde", noise=0.7)
    assert sampling == flow.sampling
    assert replace(ours, sampling=sampling) == replace(flow, regularisers=(), advantage=GroupNormalized())


def test_branch_grpo_that_splits_at_the_start_alone_is_dance_grpo_on_all_steps():
    """One start, and own noise from the first step on; without shared steps NodeNormalized is GroupNormalized, and FixedSplits is
    SingleTurn (tests of theirs)."""
    ours, dance = branch_grpo(), dance_grpo()
    assert isinstance(dance.sampling, PathSampling) and dance.sampling.same_start
    assert isinstance(ours.workflow, FixedSplits) and FixedSplits(splits=()).factor == ours.workflow.factor
    plain = replace(ours, workflow=SingleTurn(), advantage=GroupNormalized(), held_out=dance.held_out)
    assert plain == replace(dance, sampling=replace(dance.sampling, window=0))
