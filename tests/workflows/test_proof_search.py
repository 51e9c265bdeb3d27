"""Searches by hand: which state is shown next, what is drawn of a rollout, and where a search ends."""

from dataclasses import dataclass, replace

import pytest
from dice import POLICY
from speaker import Speaker

from gimbal.engines.base import Request, drained
from gimbal.environments.base import AbstractEnvironment, AbstractEnvironmentSpec, Moment
from gimbal.policies.token import Sampling
from gimbal.recipes.papers.data.seg_atp import seg_atp
from gimbal.records import Drop, Task
from gimbal.runtime import compose
from gimbal.workflows.proof_search import ProofSearch
from gimbal.workflows.runner import Driven

THEOREM = "p,q?>r&p&qr"  # i, then s, a1, s, a2, a3
PROOF = {
    THEOREM: "i",
    "p,q,r?&p&qr": "s",
    "p,q,r?p;p,q,r?&qr": "a1",
    "p,q,r?&qr": "s",
    "p,q,r?q;p,q,r?r": "a2",
    "p,q,r?r": "a3",
}


def searched(says, workflow, theorem=THEOREM, length=60, temperature=1.0):
    """The outcome, and the states that the policy was shown, in order."""
    shown = []

    def spoken(context):
        shown.append(context.rstrip("\n"))
        return says(shown[-1])

    task = Task(id="t", prompt=f"{theorem}\n")
    live = Driven(engine=Speaker(says=spoken), workflow=workflow).start(POLICY)
    sampling = Sampling(max_length=length, temperature=temperature)
    live.submit(Request(group=0, task=task, sample=0, sampling=sampling, seed=0))
    (found,) = drained(live).values()
    return found.outcome, shown


@pytest.mark.parametrize("candidates", [1, 3])
def test_single_tactics_are_done_one_after_another(candidates):
    episode, shown = searched(PROOF.get, ProofSearch(candidates=candidates))
    assert shown == [state for state in PROOF for _ in range(candidates)]  # what is alike is gone on from once
    assert [row.text for row in episode.rows] == list(PROOF.values())
    assert episode.earned == 1 and float(episode.last.reward_S[-1]) == 1
    # A tactic is one or two letters and its end.
    assert episode.drawn == candidates * sum(len(tactic) + 1 for tactic in PROOF.values())


def test_a_whole_proof_is_one_row_and_one_with_an_error_leaves_what_was_right():
    whole = "\n".join(PROOF.values())
    episode, shown = searched({THEOREM: whole}.get, ProofSearch(candidates=1))
    assert shown == [THEOREM] and episode.earned == 1 and len(episode.rows) == 1
    says = {**dict.fromkeys(PROOF, "x"), THEOREM: "i\ns\na2\na1", "p,q,r?p;p,q,r?&qr": "a1\ns\na2\na3"}
    episode, shown = searched(says.get, ProofSearch(candidates=1))
    assert episode.earned == 1 and [row.text.strip() for row in episode.rows] == ["i\ns", "a1\ns\na2\na3"]
    assert shown[0] == THEOREM and shown[-1] == "p,q,r?p;p,q,r?&qr"


def test_the_best_state_is_next_by_its_length():
    """The speaker's log-probability of a token is minus a hundredth of the length of its context."""
    says = {"p,q?>r>r|pr": "i\ni\nl", "p,q,r?>r|pr": "x", "p,q,r?|pr": "x", "p,q,r?p": "x"}
    order = {
        alpha: searched(says.get, ProofSearch(candidates=1, alpha=alpha), "p,q?>r>r|pr")[1] for alpha in (0.0, 1.0)
    }
    assert order[0.0] == ["p,q?>r>r|pr", "p,q,r?>r|pr", "p,q,r?|pr", "p,q,r?p"]
    assert set(order[1.0]) == set(order[0.0])


def test_a_rollout_follows_a_change_of_the_number_of_goals_up_to_the_next():
    # i keeps the number and s changes it: after s the same candidate goes on with a1, which changes it again and ends the rollout.
    episode, shown = searched(PROOF.get, ProofSearch(candidates=1, rollout=3, tokens=4))
    assert shown == list(PROOF)[:3] and episode.earned == 0
    _, shown = searched(PROOF.get, ProofSearch(candidates=1, rollout=0, tokens=4))
    assert shown == list(PROOF)[:2]
    # The states within a rollout are states to go on from like any other.
    episode, shown = searched(PROOF.get, ProofSearch(candidates=1, rollout=3))
    assert episode.earned == 1 and set(shown) == set(PROOF)
    assert [row.text for row in episode.rows] == list(PROOF.values())


def test_a_rollout_is_no_longer_than_it_may_be_and_not_begun_without_a_change():
    says = {"?>p>q>rp": "i", "p?>q>rp": "i", "p,q?>rp": "i", "p,q,r?p": "a1"}
    _, shown = searched(says.get, ProofSearch(candidates=1, rollout=5, tokens=1), "?>p>q>rp")
    assert shown == ["?>p>q>rp"]
    says = {"p?&p>q>rp": "s", "p?p;p?>q>rp": "x"}
    episode, shown = searched(says.get, ProofSearch(candidates=1, rollout=5, tokens=1), "p?&p>q>rp")
    assert shown == ["p?&p>q>rp", "p?p;p?>q>rp"] and episode.earned == 0
    says = {"|pq?>p>q>rp": "c1", "p?>p>q>rp;q?>p>q>rp": "i", "p?>q>rp;q?>p>q>rp": "i", "p,q?>rp;q?>p>q>rp": "i"}
    _, shown = searched(says.get, ProofSearch(candidates=1, rollout=2, tokens=1), "|pq?>p>q>rp")
    assert shown == list(says)[:3]


def test_it_ends_with_its_tokens_or_with_its_states():
    episode, shown = searched(lambda state: "x", ProofSearch(candidates=3))
    assert shown == [THEOREM] * 3 and episode.earned == 0 and episode.drawn == 6
    _, shown = searched(PROOF.get, ProofSearch(candidates=1, tokens=5))
    assert shown == list(PROOF)[:3]  # 2, 4, and 7 tokens
    _, shown = searched(PROOF.get, ProofSearch(candidates=4), temperature=0.0)
    assert shown == list(PROOF)  # greedy: all candidates would be one


def test_what_is_cut_off_is_not_done():
    """a1 of an a12 that had no room would be another tactic."""
    says = {THEOREM: "i\ns", "p,q,r?&p&qr": "x"}
    _, shown = searched(says.get, ProofSearch(candidates=1), length=3)
    assert shown == [THEOREM, "p,q,r?&p&qr"]


@dataclass(frozen=True, kw_only=True)
class SameMoment(AbstractEnvironmentSpec):
    """A prover that answers every tactic by this."""

    moment: Moment | None = None

    def open(self):
        return SameProver(self.moment)


class SameProver(AbstractEnvironment):
    def __init__(self, moment):
        self.moment = moment

    def reset(self, task, seed):
        return None

    def step(self, action):
        if self.moment is None:
            raise RuntimeError("out of memory")
        return self.moment


def test_a_prover_that_breaks_is_no_failure_of_the_policy():
    outcome, _ = searched(PROOF.get, ProofSearch(prover=SameMoment()))
    assert isinstance(outcome, Drop) and outcome.reason == "environment_error" and "out of memory" in outcome.said


@pytest.mark.parametrize("moment", [Moment(truncated=True, observation="?"), Moment(terminated=True)])
def test_an_end_that_pays_nothing_is_no_proof(moment):
    episode, shown = searched(PROOF.get, ProofSearch(prover=SameMoment(moment=moment), candidates=2))
    assert shown == [THEOREM] * 2 and episode.earned == 0


def test_a_prover_that_shows_nothing_is_refused():
    with pytest.raises(ValueError, match="SameMoment showed nothing after the tactic 'i'"):
        searched(PROOF.get, ProofSearch(prover=SameMoment(moment=Moment())))


def test_it_evaluates_and_does_not_train():
    run = seg_atp()
    compose.check(run)
    with pytest.raises(ValueError, match="its proofs are no sample to train on"):
        compose.check(replace(run, workflow=ProofSearch(), engine=run.held_out.engine))
    with pytest.raises(ValueError, match="ProofSearch shows the policy a state as plain text"):
        ProofSearch().accepts(Task(id="c", columns={"messages": [{"role": "user", "content": "p?p"}]}))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"candidates": 0}, "has candidates 0"),
        ({"tokens": 0}, "tokens 0"),
        ({"rollout": -1}, "rollout -1"),
        ({"alpha": 1.5}, "alpha is 1.5"),
        ({"goal": ""}, "goal is empty"),
    ],
)
def test_settings_that_cannot_be_are_refused(wrong, said):
    with pytest.raises(ValueError, match=said):
        ProofSearch(**wrong)
