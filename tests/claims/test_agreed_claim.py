"""The claim on two checklists: arms that differ in the advantage alone, and a record of what it says."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("diffusers", reason="diffusers is not installed: pip install -e '.[denoising]'")

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))
import agreed
import campaign
import joint

from gimbal.advantages import GroupNormalized
from gimbal.advantages.estimators.chain_ranked import ChainRanked


def test_the_arms_differ_in_the_advantage_alone():
    chain, added = (agreed.run_of(arm, 1e-4, 2) for arm in agreed.ARMS)
    assert isinstance(chain.advantage, ChainRanked) and isinstance(added.advantage, GroupNormalized)
    assert replace(added, advantage=chain.advantage) == chain
    assert (chain.seed, chain.steps, chain.held_out) == (2, joint.STEPS, None)
    assert chain.separate["painter"].learning_rate == joint.RATIO * chain.optimization.learning_rate
    assert [reward.name for reward in chain.rewards if reward.weight] == ["picture", "words"]


def test_what_is_recorded():
    for run in campaign.load(agreed.RECORD):
        assert len(run["scores"]) == joint.STEPS and run["rate"] in agreed.TUNED.rates and run["arm"] in agreed.ARMS
        assert all(0 <= run[name] <= 1 for name in ("after", "plan", "drawn"))
