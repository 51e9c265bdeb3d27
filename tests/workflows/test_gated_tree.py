"""Where a tree of rollouts forks, which of its rows are given up, and what is left of a group."""

import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "runtime"))
from small import small_run

from gimbal.composition import Composition
from gimbal.engines.base import Request, drained
from gimbal.engines.native import Native
from gimbal.environments.demonstrations import training_tasks
from gimbal.policies.token import CausalLM, Sampling
from gimbal.recipes import function
from gimbal.records import Drop
from gimbal.runtime.checkpoint import FORMAT
from gimbal.runtime.checkpoint import load as load_checkpoint
from gimbal.runtime.compose import check
from gimbal.workflows.gated_tree import GatedTree
from gimbal.workflows.runner import Driven
from gimbal.workflows.single import SingleTurn

GROUP = 8
NEVER = {"low": 0.0, "falls": 0, "rises": 0}


@pytest.fixture(scope="module")
def policy():
    return CausalLM().load()


def started(policy, workflow):
    live = Driven(engine=Native(slots=8, precision="float32", entropy=True), workflow=workflow).start(policy)
    live.load(0, policy.state_dict())
    return live


def ask(live, index=0):
    for sample in range(GROUP):
        task, sampling = training_tasks(size=4)[index], Sampling(max_length=48)
        live.submit(Request(group=index, task=task, sample=sample, sampling=sampling, seed=3))


def grown(policy, **settings):
    live = started(policy, GatedTree(**settings))
    ask(live)
    return live, {key[1]: item.outcome for key, item in drained(live).items()}


def texts(outcomes):
    return {sample: outcome.text for sample, outcome in outcomes.items()}


def test_the_width_by_hand():
    """At H = middle the sigmoid is 1/2: 3 x 1/2 x (1 - C), and 3 x .73 x .9 = 1.97 one scale above at C = .1."""
    tree = GatedTree(most=4, middle=0.3, scale=0.1)
    assert tree.width(0.3, 0.0) == 2 and tree.width(0.3, 0.5) == 1
    assert tree.width(0.4, 0.1) == 2 and tree.width(0.5, 0.1) == 3
    assert tree.width(9.0, 0.0) == 4 and tree.width(9.0, 1.0) == 1 and tree.width(-99.0, 0.0) == 1
    assert GatedTree(most=1).width(9.0, 0.0) == 1


def test_dying_by_hand():
    tree = GatedTree(low=0.2, falls=2, rises=2)
    assert tree.dying([(0.5, 0.1)]) and tree.dying([(0.5, 0.1), (0.1, 0.9)]), "once is enough"
    assert not tree.dying([(0.5, 0.9), (0.5, 0.8)]) and tree.dying([(0.5, 0.9), (0.5, 0.8), (0.5, 0.7)])
    assert not tree.dying([(0.5, 0.9), (0.5, 0.8), (0.5, 0.8)]), "it must fall each time"
    assert tree.dying([(0.9, 0.5), (0.1, 0.5), (0.2, 0.5), (0.3, 0.5)])
    assert not tree.dying([(0.3, 0.5), (0.2, 0.5), (0.1, 0.5)])
    assert not GatedTree(**NEVER).dying([(0.1, 0.9), (0.2, 0.5), (0.3, 0.3), (0.4, 0.0)])


def test_a_width_of_1_and_no_pruning_is_independent_samples(policy):
    plain = started(policy, SingleTurn())
    ask(plain)
    theirs = {key[1]: item.outcome for key, item in drained(plain).items()}
    live, ours = grown(policy, most=1, **NEVER)
    assert texts(ours) == texts(theirs) and live.in_flight == 0


def test_roots_of_the_group_s_size_never_fork(policy):
    _, found = grown(policy, roots=GROUP, middle=-9.0, **NEVER)
    assert all(outcome.last.fork is None for outcome in found.values())


@pytest.mark.slow
def test_rows_fork_after_a_window_where_the_gate_is_open(policy):
    tree = GatedTree(roots=1, window=4, middle=0.0, scale=0.01, **NEVER)
    live, found = grown(policy, roots=1, window=4, middle=0.0, scale=0.01, **NEVER)
    forks = [outcome.last for outcome in found.values() if outcome.last.fork]
    assert forks
    for row in forks:
        row.validate()
        trunk, at = row.fork
        above = found[trunk].last
        assert at % 4 == 0 and row.mask_S.tolist() == [False] * at + [True] * row.drawn
        assert torch.equal(row.behavior_S[:at], above.behavior_S[:at])
        entropy, confidence = above.entropy_S[at - 4 : at].mean(), math.exp(above.behavior_S[at - 4 : at].mean())
        assert tree.width(float(entropy), confidence) > 1
        torch.testing.assert_close(live.score(row), row.behavior_S, atol=1e-4, rtol=0)


@pytest.mark.slow
def test_the_pruned_are_counted_and_the_least_are_kept(policy):
    _, found = grown(policy, roots=GROUP, window=4, low=1.0, falls=0, rises=0, least=3)
    lost = [outcome for outcome in found.values() if isinstance(outcome, Drop)]
    assert len(lost) == GROUP - 3, "no token is certain, so none passes"
    assert all(outcome.reason == "pruned" and outcome.drawn == 4 for outcome in lost)


@pytest.mark.slow
def test_a_state_goes_on_to_the_same_bits(policy, tmp_path):
    tree = {"roots": 2, "window": 4, "middle": 0.0, "scale": 0.05}
    _, whole = grown(policy, **tree)
    live = started(policy, GatedTree(**tree))
    ask(live)
    found = [item for _ in range(9) for item in live.step()]
    torch.save(live.state_dict() | {"format": FORMAT}, tmp_path / "state.pt")
    other = started(policy, GatedTree(**tree))
    other.load_state_dict(load_checkpoint(tmp_path))
    again = {item.key[1]: item.outcome for item in found} | {key[1]: x.outcome for key, x in drained(other).items()}
    assert {sample: told(outcome) for sample, outcome in again.items()} == {
        sample: told(outcome) for sample, outcome in whole.items()
    }


def told(outcome):
    return (outcome.reason, outcome.drawn) if isinstance(outcome, Drop) else (outcome.text, outcome.last.fork)


def test_what_does_not_fit_is_refused():
    for settings in ({"roots": 0}, {"window": 0}, {"falls": -1}, {"low": 1.5}, {"scale": 0.0}):
        with pytest.raises(ValueError, match="GatedTree has"):
            GatedTree(**settings)
    run = function("echo_ttrl")()
    (found,) = run.workflow.fits(Composition(replace(run, held_out=replace(run.held_out, workflow=None))))
    assert "would not measure the policy" in found.reason
    with pytest.raises(ValueError, match=r"can record entropy.*engine\.entropy=true"):
        check(small_run(workflow=GatedTree()))
