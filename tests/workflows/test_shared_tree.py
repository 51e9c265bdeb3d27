"""A tree that several policies grow: who is asked what, where it grows, and what a node is worth."""

from dataclasses import replace

import pytest
import torch
from dice import POLICY
from speaker import Speaker

from gimbal.advantages import GroupNormalized
from gimbal.advantages.estimators.tree_shaped import TreeShaped
from gimbal.dataflow.packing import pack
from gimbal.engines.base import Request, drained
from gimbal.policies.token import Sampling
from gimbal.records import Drop, Episode, Group, Task, TrainBatch
from gimbal.rewards.exact import ExactAnswer
from gimbal.workflows.base import Attempt
from gimbal.workflows.runner import Driven
from gimbal.workflows.shared_tree import SharedTree

TASK = Task(id="t", prompt="n?", answer="7")
TREE = SharedTree(reward=ExactAnswer(opening="", closing=""), refine="{prompt}{answer}={score}")


def grown(says, workflow=TREE, nodes=8, group=0, task=TASK):
    live = Driven(engine=Speaker(says=says), workflow=workflow).start(POLICY)
    live.load(0, POLICY.state_dict())
    for sample in range(nodes):
        live.submit(Request(group=group, task=task, sample=sample, sampling=Sampling(max_length=20), seed=7))
    done = drained(live)
    return [done[group, sample].outcome for sample in range(nodes)]


def attempt(group, nodes):
    return Attempt(
        group=group, task=TASK, samples=tuple(range(nodes)), sampling=Sampling(max_length=20), seed=7, memory=None
    )


ROW = grown(lambda context: "7", nodes=1)[0].last


def facts(nodes, name):
    return [episode.scores[name] for episode in nodes]


def depths(nodes):
    found = []
    for parent in facts(nodes, "parent"):
        found.append(1 if parent < 0 else found[int(parent)] + 1)
    return found


def test_a_node_refines_its_parents_answer_and_knows_its_score():
    nodes = grown(lambda context: str(len(context) % 10))
    assert all(isinstance(node, Episode) and len(node.rows) == 1 for node in nodes)
    for node in nodes:
        parent, prompt = int(node.scores["parent"]), node.task.prompt
        above = nodes[parent] if parent >= 0 else None
        assert prompt == ("n?" if above is None else f"n?{above.text}={above.score:g}")
        assert node.scores["before"] == (0 if above is None else above.score)
        assert node.score == node.scores["outcome"] == float(node.text == "7") and parent < node.sample
    assert max(depths(nodes)) > 1 and {node.last.role for node in nodes} == {"first", "second"}


def test_it_grows_where_scores_are_high():
    """Of nodes that are half of them right, the right ones are refined more often; and a tree of right ones is deeper."""
    turns = iter("70" * 1000)
    under = [0, 0]
    for group in range(40):
        for node in grown(lambda context: next(turns), group=group, nodes=6):
            if node.scores["parent"] >= 0:
                under[int(node.scores["before"])] += 1
    assert under[1] > 1.5 * under[0] > 0
    right, wrong = ([grown(lambda context, says=says: says, nodes=8, group=g) for g in range(10)] for says in "70")
    assert sum(sum(depths(tree)) for tree in right) > sum(sum(depths(tree)) for tree in wrong)


def test_who_succeeds_is_asked_more_often():
    counts = {"first": 0, "second": 0}
    for group in range(20):
        says, steps = {"first": "7", "second": "0"}, replace(TREE, deepest=1)(attempt(group, 8))
        call = next(steps)
        while True:
            counts[call.role] += 1
            row = replace(ROW, sample=call.sample, text=says[call.role], role=call.role, score=None, scores={})
            try:
                call = steps.send(row)
            except StopIteration:
                break
    assert counts["first"] > 2 * counts["second"] > 0


def test_one_explorer_and_one_level_are_independent_samples():
    nodes = grown(lambda context: "7", replace(TREE, explorers=("first",), deepest=1))
    assert facts(nodes, "parent") == [-1] * 8 and {node.task.prompt for node in nodes} == {"n?"}
    batch = pack([Group(index=0, task=TASK, episodes=tuple(nodes))])
    assert not TreeShaped()(batch).any()


def test_a_tree_is_never_deeper_than_it_may_be():
    for deepest in (1, 2, 3):
        assert max(depths(grown(lambda context: "7", replace(TREE, deepest=deepest), nodes=16))) == deepest


def test_the_same_seed_grows_the_same_tree_and_another_group_another():
    says = lambda context: str(len(context) % 10)  # noqa: E731
    trees = [facts(grown(says, group=group), "parent") for group in (0, 0, 1, 2)]
    assert trees[0] == trees[1] and len({tuple(tree) for tree in trees}) > 1


def test_a_node_without_a_score_is_dropped():
    dropped = grown(lambda context: "7", task=replace(TASK, answer=None), nodes=2)
    assert all(isinstance(one, Drop) and one.reason == "unscored" and one.drawn == 2 for one in dropped)


def nodes_of(scores, parents):
    outcome_N, parent_N = torch.tensor(scores), torch.tensor(parents)
    return TrainBatch(
        mask_NS=torch.ones(len(scores), 1, dtype=torch.bool),
        reward_NS=outcome_N[:, None],
        group_N=torch.zeros(len(scores), dtype=torch.long),
        facts={
            "score/outcome": outcome_N,
            "score/parent": parent_N.float(),
            "score/before": torch.where(parent_N < 0, 0, outcome_N[parent_N]),
        },
    )


def shaped(batch, **settings):
    """The scores as they are before they are normalised, up to the mean and the deviation."""
    found = TreeShaped(ddof=0, **settings)(batch)[:, 0]
    return found - found[0]


def expected(values):
    values = torch.tensor(values)
    return (values - values[0]) / values.std(unbiased=False)


def test_shaping_by_hand():
    """Two under the root, .2 and .6; under the second .8 and .4, under .8 a single one, 1."""
    batch = nodes_of([0.2, 0.6, 0.8, 0.4, 1.0], [-1, -1, 1, 1, 2])
    # b: .6, .2 (siblings); .5 (.6 + .4), .5 (.6 + .8) (both); .8 (the parent)
    by_hand = [0.2 + 0.5 * -0.4, 0.6 + 0.5 * 0.4, 0.8 + 0.5 * 0.3, 0.4 + 0.5 * -0.3, 1 + 0.5 * 0.2]
    torch.testing.assert_close(shaped(batch), expected(by_hand))


def test_without_siblings_share_what_is_gained_over_the_parent_counts():
    batch = nodes_of([0.2, 0.6, 0.8, 0.4], [-1, -1, 1, 1])
    by_hand = [0.2 - 0.4, 0.6 + 0.4, 0.8 + 0.2, 0.4 - 0.2]
    torch.testing.assert_close(shaped(batch, gamma=1.0, siblings=0.0), expected(by_hand))


def test_gamma_0_is_group_normalized():
    batch = nodes_of([0.2, 0.6, 0.8, 0.4], [-1, -1, 1, 1])
    torch.testing.assert_close(TreeShaped(gamma=0.0, eps=1e-6)(batch), GroupNormalized()(batch))


def test_equal_outcomes_and_a_tree_of_one_node_teach_nothing():
    assert not TreeShaped()(nodes_of([0.5], [-1])).any()
    assert not TreeShaped()(nodes_of([1.0, 1.0, 1.0], [-1, -1, -1])).any()


def test_settings_of_trees_that_cannot_be_are_refused():
    for wrong, said in (
        ({"explorers": ()}, "one or more roles"),
        ({"explorers": ("a", "a")}, "each once"),
        ({"deepest": 0}, "1 or more"),
        ({"refine": "{prompt}"}, "nothing is refined"),
    ):
        with pytest.raises(ValueError, match=said):
            SharedTree(**wrong)
    for wrong in ({"gamma": -1.0}, {"gamma": float("nan")}, {"siblings": 1.5}):
        with pytest.raises(ValueError, match="gamma is 0 or above"):
            TreeShaped(**wrong)
