"""Each rule of composition: what is refused and why, what is warned of, and that a sound run passes."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from small import small_run

from gimbal.advantages import GAE, DiscrepancyPenalty, GroupCentered, GroupNormalized, KLReward, LeaveOneOut, Whitened
from gimbal.controllers import Lagrangian
from gimbal.critics.mlp import ValueMLP
from gimbal.learning.optimization import Optimization
from gimbal.learning.proximal.behavior import Behavior
from gimbal.objectives import EntropyBonus, KLPenalty, MaskedWeight, Reinforce, SequenceRatio, ValueLoss
from gimbal.ops import SequenceMean
from gimbal.policies.token import Sampling
from gimbal.runtime.compose import check

CRITIC = ValueMLP(observations=4)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"advantage": Whitened()}, "is not an estimator: put it into shaping"),
        ({"shaping": (LeaveOneOut(),)}, "would discard those of GroupNormalized"),
        ({"shaping": (DiscrepancyPenalty(),), "anchor": Behavior()}, "always 0 with the anchor Behavior"),
        ({"anchor": Behavior(), "correction": MaskedWeight()}, "count twice"),
        (
            {"anchor": Behavior(), "controllers": {"optimization.learning_rate": Lagrangian()}},
            "use anchor=Recompute()",
        ),
        ({"objective": Reinforce(), "sampling": Sampling(temperature=0.0)}, "temperature above 0"),
        ({"objective": Reinforce(), "sampling": Sampling(top_k=5)}, "full support"),
        ({"advantage": GAE(), "regularisers": (ValueLoss(),)}, "there is no critic"),
        ({"advantage": GAE(), "critic": CRITIC}, "no part trains"),
        ({"critic": CRITIC, "regularisers": (ValueLoss(),)}, "does not read its values"),
    ],
)
def test_what_cannot_mean_what_it_says_is_refused(changes, reason):
    with pytest.raises(ValueError, match=reason):
        check(small_run(**changes))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"objective": SequenceRatio()}, "SequenceMean"),
        ({"advantage": GroupNormalized(), "shaping": (Whitened(),)}, "scales twice"),
        ({"regularisers": (EntropyBonus(), EntropyBonus())}, "push the entropy"),
        ({"regularisers": (KLPenalty(),), "reward_shaping": (KLReward(),)}, "pull the policy towards the reference"),
        ({"regularisers": (KLPenalty(estimator="k1"),)}, "no expected gradient"),
        ({"objective": Reinforce(), "max_staleness": 1}, "no part bounds the update"),
        ({"max_staleness": 4}, "With max_staleness=4 and one update per batch it matters"),
    ],
)
def test_what_is_doubtful_is_warned_of(changes, sentence):
    assert any(sentence in warning for warning in check(small_run(**changes)))


SEVERAL = {"optimization": Optimization(learning_rate=1e-3, minibatches=2)}  # one update would never clip


@pytest.mark.parametrize(
    "changes",
    [
        {"advantage": GAE(), "shaping": (Whitened(),), "critic": CRITIC, "regularisers": (ValueLoss(),), **SEVERAL},
        {"advantage": GroupCentered(), "shaping": (Whitened(), DiscrepancyPenalty()), **SEVERAL},
        {"objective": SequenceRatio(), "aggregation": SequenceMean(), "correction": MaskedWeight(), **SEVERAL},
        {"objective": Reinforce(), "advantage": LeaveOneOut()},
    ],
)
def test_sound_runs_pass_without_a_word(changes):
    assert check(small_run(**changes)) == []
