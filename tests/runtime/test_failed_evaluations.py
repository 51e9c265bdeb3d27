"""A held-out rollout that failed is neither a success nor a 0: it is counted, and in no figure."""

import math
from dataclasses import dataclass

import made
import pytest

from gimbal.engines.base import AbstractEngine, Finished
from gimbal.environments.base import AbstractTasks
from gimbal.policies.paths import PathSampling
from gimbal.policies.token import Sampling
from gimbal.records import Drop, Episode, Task
from gimbal.rewards.base import AbstractReward
from gimbal.rewards.function import Function
from gimbal.rewards.majority import Majority
from gimbal.rewards.scoring import NoVerdict
from gimbal.runtime import best
from gimbal.runtime.evaluate import evaluate
from gimbal.runtime.run import HeldOut

GONE = "gone"


@dataclass(frozen=True, kw_only=True)
class Written(AbstractReward):
    """The number that the text is; none where it is "none", and no verdict where it is "late"."""

    name: str = "written"

    def __call__(self, group):
        special = {"none": None, "late": NoVerdict("written_timeout")}
        return [special[r.text] if r.text in special else float(r.text) for r in group.rollouts]


@dataclass(frozen=True, kw_only=True)
class Asking(Written):
    """Asks the policy about each of its texts, and takes its answer for the score."""

    def follow_ups(self, group):
        return [Task(id=f"{r.task.id}/{r.sample}", prompt=r.text) for r in group.rollouts]

    def __call__(self, group):
        return [float(answer) for answer in group.replies[self.name]]


@dataclass(frozen=True, kw_only=True)
class Few(AbstractTasks):
    names: tuple[str, ...]

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        return Task(id=self.names[index], prompt=self.names[index])


class Scripted(AbstractEngine):
    """Answers a request with what was scripted for its task: texts of the samples, then of the greedy one; ``GONE`` breaks."""

    def __init__(self, **scripts):
        self.scripts, self.queue = scripts, []

    @property
    def in_flight(self):
        return len(self.queue)

    def submit(self, request):
        self.queue.append(request)

    version = tolerance = 0

    def load(self, version, state):
        raise NotImplementedError

    cancel = score = reading = state_dict = load_state_dict = load

    def step(self):
        done, self.queue = [self._answer(request) for request in self.queue], []
        return done

    def _answer(self, request):
        script = self.scripts.get(request.task.id, [request.task.prompt] * 9)
        said = script[-1] if request.sampling.temperature == 0 else script[request.sample]
        if said == "dropped":
            return Finished(key=request.key, outcome=Drop("agent_timeout", said="it took long"))
        row = made.rollout(request.task, sample=request.sample, text="" if said == GONE else said)
        return Finished(key=request.key, outcome=Episode(rows=(row,), error="lost contact" if said == GONE else ""))


def examined(rewards=(Written(),), samples=2, **scripts):
    tasks = Few(names=tuple(scripts))
    return evaluate(Scripted(**scripts), tasks, rewards, Sampling(), samples=samples, seed=0)


def test_what_failed_is_counted_by_reason_and_counts_as_nothing():
    """-4 of what is left, where a 0 for each failure would make -1.5 of it."""
    found = examined(a=["-2", GONE, "-3"], b=["late", "-6", GONE], c=["dropped", "none", "dropped"])
    assert (found.score, found.greedy_score, found.greedy) == (-4.0, -3.0, 0.0)
    assert found.failed == {"environment_error": 2, "agent_timeout": 2, "written_timeout": 1, "unscored": 1}
    assert found.metrics()["eval/failed"] == 6 and found.metrics()["eval/failed/agent_timeout"] == 2
    assert "6 of 9 held-out rollouts failed" in found.failures() and "a: lost contact" in found.failures()


def test_a_whole_evaluation_says_nothing_of_failures():
    found = examined(a=["1", "0", "1"], b=["0", "0", "1"])
    assert (found.score, found.pass_at[1], found.pass_at[2], found.greedy) == (0.25, 0.25, 0.5, 1.0)
    assert found.failures() == "" and not any("failed" in name for name in found.metrics())


@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_what_goes_by_the_others_of_a_group_is_no_figure(weight):
    """A greedy rollout always agrees with itself; what knows the answer counts in full, though it only measures in training."""
    vote = Majority(opening="", closing="")
    found = examined((vote, Written(weight=weight)), a=["1", "0", "0"], b=["0", "0", "1"])
    assert (found.score, found.greedy_score, found.pass_at[1], found.greedy) == (0.25, 0.5, 0.25, 0.5)
    with pytest.raises(ValueError, match="agrees with itself"):
        examined((vote,), a=["1", "0", "0"])


def test_a_task_counts_once_however_many_of_its_samples_failed():
    found = examined(a=["1", GONE, GONE, GONE, "1"], b=["0", "0", "0", "0", "0"], samples=4)
    assert found.score == found.pass_at[1] == 0.5
    assert found.pass_at[2] == found.pass_at[4] == 0.0  # of one sample there is no pass@2: that task is left out


def test_of_nothing_there_is_no_score():
    found = examined(a=[GONE, GONE, GONE])
    assert math.isnan(found.score) and math.isnan(found.pass_at[1]) and math.isnan(found.greedy)
    assert found.metrics().keys() == {"eval/tasks", "eval/failed", "eval/failed/environment_error"}
    assert "no score is left" in found.failures()


def test_a_group_whose_reward_has_no_answer_fails_as_a_whole():
    """One answer is missing, and the others would stand in each other's places."""
    scripts = {"a": ["1", "0", "1"], "a/1": [GONE] * 3, "b": ["1", "1", "0"]}
    tasks = Few(names=("a", "b"))
    found = evaluate(Scripted(**scripts), tasks, (Asking(),), Sampling(), samples=2, seed=0)
    assert found.failed == {"unanswered": 2} and found.score == 1.0 and found.greedy_score == 0.5


def test_a_return_has_a_standard_error_and_a_reward_none():
    tasks = Few(names=("a", "b"))
    engine = Scripted(a=["x", "x"], b=["x", "x"])
    engine._answer = lambda r: Finished.of(r.key, made.rollout(r.task, score=-1.0 if r.task.id == "a" else -3.0))
    found = evaluate(engine, tasks, (), Sampling(), samples=1, seed=0)
    assert found.score == -2.0 and found.error == pytest.approx(1.0)  # std sqrt(2) over sqrt(2) tasks
    assert examined(a=["1", "1", "1"], b=["0", "0", "0"]).error is None


@pytest.mark.parametrize(
    ("figures", "kept"),
    [
        ({"eval/score": -5.0}, True),
        ({"eval/score": -5.0, "eval/failed": 2.0}, True),
        ({"eval/score": -5.0, "eval/failed": 3.0}, False),  # of four
        ({"eval/failed": 2.0}, False),  # all samples, of which the score is
    ],
)
def test_the_best_model_is_by_an_evaluation_of_which_half_is_left(figures, kept):
    tasks = Few(names=("a", "b"))
    held_out = HeldOut(tasks=tasks, samples=1, every=1, save_best="score")
    totals = {"best": {"step": 0, "metric": "eval/score", "value": -9.0}}
    assert (best.improved(held_out, 3, figures, totals) is not None) is kept
    assert totals["best"]["step"] == (3 if kept else 0)


def compared(group):
    """The share of the others that a text is above; nothing of a text alone."""
    others = len(group.rollouts) - 1
    return [sum(r.text > o.text for o in group.rollouts) / others if others else None for r in group.rollouts]


def test_a_greedy_answer_that_a_reward_of_groups_leaves_out_has_not_failed():
    reward = Function(function=compared).open()
    try:
        found = examined((reward,), a=["2", "1", "3"], b=["late", "1", GONE])
        assert found.score == 0.5 and math.isnan(found.greedy_score) and "unscored" not in found.failed
        assert sum(found.failed.values()) == 1  # the greedy one that broke
        alone = examined((reward,), samples=1, a=["2", "1"])
        assert alone.failed == {"unscored": 1}
    finally:
        reward.close()


def test_pictures_without_a_reward_have_no_score():
    engine = Scripted(a=["x", "x"], b=["x", "x"])
    found = evaluate(engine, Few(names=("a", "b")), (), PathSampling(), samples=1, seed=0, paid=False)
    assert not {"eval/score", "eval/greedy_score", "eval/score_error"} & found.metrics().keys()
