"""Few steps of few decisions: what chance explains is no sign; the same figures of many decisions are one."""

import pytest
from test_doctor import TOKENS, causes, record, relabel  # noqa: F401

FEW = TOKENS | {"prompts_per_step": 2, "num_generations": 2}  # 80 decisions a step


@pytest.mark.parametrize(
    "figures",
    [
        {"cause__discrepancy": -1.05e-3},  # a mean of signed log-ratios strays
        {"mismatch__k3": 2e-3, "mismatch__logp_diff_max": 1.0},  # one decision of 80 makes this
    ],
)
def test_a_mismatch_that_a_few_decisions_make(record, figures):  # noqa: F811
    assert causes(record(**figures, steps=4, run=FEW)) == []
    assert causes(record(**figures, steps=4, run=TOKENS)) == ["mismatch"]


@pytest.mark.parametrize("norms", [[0.3, 0.4, 0.0, 0.3, 0.0], [0.3, 0.4, 0.0, 0.0]])
def test_a_gradient_is_dead_only_where_enough_groups_gave_none(record, norms):  # noqa: F811
    directory = record(steps=len(norms), run=FEW)
    relabel(directory, grad_norm=norms)
    assert causes(directory) == [], "half of the steps, or four groups"
    directory = record(steps=len(norms), run=TOKENS)
    relabel(directory, grad_norm=norms)
    assert causes(directory) == (["dead gradient"] if norms[3] == 0 else [])
