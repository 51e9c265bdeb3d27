"""A skill that a policy writes, a frozen solver tries, and the policy revises: what each is asked, and what each revision is worth."""

from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
import torch
from dice import POLICY
from speaker import Speaker

from gimbal.advantages import GroupNormalized
from gimbal.advantages.estimators.revision_normalized import RevisionNormalized
from gimbal.dataflow.packing import pack
from gimbal.engines.base import Request, drained
from gimbal.environments.cases import Families
from gimbal.policies.base import AbstractPolicySpec
from gimbal.policies.token import Sampling
from gimbal.records import Drop, Group, Task, TrainBatch
from gimbal.rewards.exact import ExactAnswer
from gimbal.workflows.base import Role
from gimbal.workflows.runner import Driven
from gimbal.workflows.skill_evolution import SOLVER, SkillEvolution

TASK = Task(id="s", prompt="n?\n", answer="3")


@dataclass(frozen=True, kw_only=True)
class Here(AbstractPolicySpec):
    """The policy that is there."""

    def load(self, seed=0):
        return POLICY

    def at(self, directory):
        return self


def evolution(solves, **changes):
    own = SkillEvolution(
        solver=Role(policy=Here(), engine=Speaker(says=solves)),
        reward=ExactAnswer(opening="", closing=""),
        write="{prompt}{history}!",
        past="{skill}>{answers}={score};",
        solve="{skill}@{prompt}",
    )
    return replace(own, **changes)


def outcome(workflow, writes, task=TASK):
    live = Driven(engine=Speaker(says=writes), workflow=workflow).start(POLICY)
    live.load(0, POLICY.state_dict())
    live.submit(Request(group=0, task=task, sample=0, sampling=Sampling(max_length=20), seed=7))
    (item,) = drained(live).values()
    return item.outcome


def counts_up(context):
    """Writes 1, and after each skill that failed the next number."""
    return str(1 + context.count("=0;"))


def test_each_skill_is_written_after_all_outcomes_and_tried_by_the_solver():
    asked = []

    def solves(context):
        asked.append(context)
        return context.partition("@")[0]

    episode = outcome(evolution(solves, generations=4), counts_up)
    assert [row.task.prompt for row in episode.rows] == [
        "n?\n!", "n?\n1>1\n1=0;!", "n?\n1>1\n1=0;2>2\n2=0;!", "n?\n1>1\n1=0;2>2\n2=0;3>3\n3=1;!",
    ]  # fmt: skip
    assert asked == [f"{skill}@n?\n" for skill in "11223333"]
    assert [row.scores["outcome"] for row in episode.rows] == [0, 0, 1, 1] and episode.score == 1
    assert all(row.role == "" and row.mask_S.all() for row in episode.rows)


def test_an_outcome_is_the_mean_of_the_tries_and_the_last_one_is_the_score():
    said = iter(["3", "0", "3", "3", "0", "0", "0", "3"])
    episode = outcome(evolution(lambda context: next(said), generations=2, tries=4), lambda context: "x")
    assert [row.scores["outcome"] for row in episode.rows] == [0.75, 0.25] and episode.score == 0.25
    assert episode.rows[1].task.prompt == "n?\nx>3\n0\n3\n3=0.75;!"


def test_one_generation_is_a_single_turn():
    (row,) = outcome(evolution(lambda context: "3", generations=1, write="{prompt}"), lambda context: "a").rows
    assert row.task.prompt == TASK.prompt and row.text == "a" and row.score == 1


def test_a_solver_that_does_not_read_the_skill_gives_all_the_same():
    workflow = evolution(lambda context: "3")
    episodes = [outcome(workflow, lambda context, said=said: said) for said in ("a", "b")]
    assert {row.scores["outcome"] for episode in episodes for row in episode.rows} == {1}


def test_a_try_without_a_score_drops_the_attempt():
    dropped = outcome(evolution(lambda context: "3"), lambda context: "ab", replace(TASK, answer=None))
    assert isinstance(dropped, Drop) and dropped.reason == "unscored" and dropped.drawn == 3


def test_rows_of_a_chain_reach_the_estimator_in_order():
    chains = [
        outcome(evolution(lambda context: context.partition("@")[0]), writes)
        for writes in (counts_up, lambda context: "3")
    ]
    chains[1] = chains[1].map(lambda row: replace(row, sample=1))
    batch = pack([Group(index=0, task=TASK, episodes=tuple(chains))])
    assert batch.facts["score/outcome"].tolist() == [0, 0, 1, 1, 1, 1]
    plain = RevisionNormalized(across=0.0, ddof=0)(batch)[:, 0]
    torch.testing.assert_close(plain, torch.tensor([-1.0, -1, 0, 1, 1, 0]), atol=1e-5, rtol=0)
    # Gains: 0, 0, 1 and 1, 0, 0.
    both = RevisionNormalized(across=0.5, ddof=0)(batch)[:, 0]
    torch.testing.assert_close(both, torch.tensor([-1.5, -1, 0.5, 1.5, 1, -0.5]), atol=1e-5, rtol=0)
    assert RevisionNormalized().report(batch) == {
        "outcome/0": 0.5, "outcome/1": 0.5, "outcome/2": 1.0, "gained/0": 0.5, "gained/1": 0.0, "gained/2": 0.5
    }  # fmt: skip


def rows(outcomes, group=0):
    """A batch of episodes with these outcomes of their revisions."""
    flat = torch.tensor([value for one in outcomes for value in one])
    return TrainBatch(
        mask_NS=torch.ones(len(flat), 2, dtype=torch.bool),
        reward_NS=torch.stack([torch.zeros(len(flat)), flat], dim=1),
        group_N=torch.full((len(flat),), group),
        episode_N=torch.tensor([number for number, one in enumerate(outcomes) for _ in one]),
        facts={
            "score/outcome": flat,
            "score/before": torch.tensor([value for one in outcomes for value in (0.0, *one[:-1])]),
            "score/revision": torch.tensor([g for one in outcomes for g in range(len(one))]),
        },
    )


def test_across_0_is_group_normalized_of_every_revision():
    batch = rows([[0.1, 0.5], [0.4, 0.2], [0.9, 0.7]])
    found = RevisionNormalized(across=0.0)(batch)
    for place in (0, 1):
        own = torch.tensor([place, place + 2, place + 4])
        torch.testing.assert_close(found[own], GroupNormalized()(batch.select(own)))


def test_within_0_is_group_normalized_of_what_each_revision_gained():
    outcomes = [[0.1, 0.5, 0.5], [0.4, 0.2, 1.0], [0.9, 0.7, 0.0]]
    found = RevisionNormalized(within=0.0, across=1.0)(rows(outcomes))
    gained = [[b - a for a, b in pairwise((0.0, *one))] for one in outcomes]
    assert [sum(one) for one in gained] == pytest.approx([one[-1] for one in outcomes])
    torch.testing.assert_close(found, RevisionNormalized(across=0.0)(rows(gained)))


def test_one_revision_is_a_multiple_of_group_normalized():
    batch = rows([[0.1], [0.4], [0.9]])
    torch.testing.assert_close(RevisionNormalized(across=0.5)(batch), 1.5 * GroupNormalized()(batch))
    torch.testing.assert_close(RevisionNormalized(within=0.0, across=0.5)(batch), 0.5 * GroupNormalized()(batch))


def test_equal_outcomes_of_a_revision_count_what_was_gained():
    found = RevisionNormalized(across=1.0)(rows([[0.0, 0.5], [1.0, 0.5]]))[:, 0]
    assert found[1] > 0 > found[3] and torch.isclose(found[1], -found[3])


def test_a_group_of_one_has_no_advantage():
    assert not RevisionNormalized()(rows([[0.0, 1.0]])).any()


def test_families_hide_as_many_digits_as_they_are_told():
    hidden = [Families(families=2, period=1, digits=3)[index] for index in range(200)]
    assert {task.answer for task in hidden} == {"0", "1", "2"} and len({task.prompt for task in hidden}) == 200
    assert {task.answer for task in (Families(period=1)[index] for index in range(200))} == set("0123456789")
    for digits in (0, 11):
        with pytest.raises(ValueError, match=f"digits is {digits}"):
            Families(digits=digits)


def test_settings_that_would_do_nothing_are_refused():
    for wrong, said in (
        ({"generations": 0}, "both count from 1"),
        ({"tries": 0}, "both count from 1"),
        ({"solve": "{prompt}"}, "never reads it"),
        ({"write": "{prompt}"}, "nothing is revised"),
    ):
        with pytest.raises(ValueError, match=said):
            SkillEvolution(**wrong)
    for wrong in ({"across": -1.0}, {"across": float("nan")}, {"within": -1.0}, {"within": 0.0, "across": 0.0}):
        with pytest.raises(ValueError, match="0 or above, and not both 0"):
            RevisionNormalized(**wrong)
    assert SkillEvolution().roles.keys() == {SOLVER}
