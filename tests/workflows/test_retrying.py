"""Retries begin before the first wrong step, what they keep does not train, and what they draw is the policy's, by enumeration."""

import sys
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

sys.path[:0] = [str(Path(__file__).parents[1] / name) for name in ("engines", "runtime")]
from small import small_run
from test_native import ids, policy, request

from gimbal.engines.base import drained
from gimbal.engines.native import Native
from gimbal.records import Group
from gimbal.rewards.base import AbstractReward
from gimbal.runtime import compose
from gimbal.runtime.run import HeldOut
from gimbal.workflows.branching import Branching
from gimbal.workflows.retrying import Retrying
from gimbal.workflows.runner import Driven

PROMPT, LENGTH = "abc", 3
HEAT = 4.0  # the random model is too sure of itself
GROUPS, GROUP = 300, 4


@dataclass(frozen=True, kw_only=True)
class Leading(AbstractReward):
    """How many letters of the text come before the first of the second half of those that the model knows."""

    name: str = "leading"

    def __call__(self, group: Group) -> list[float | None]:
        return [float(next((n for n, c in enumerate(r.text) if c > "m"), len(r.text))) for r in group.rollouts]


LETTERS = Retrying(firsts=1, right=Leading(), opening="", closing="", separator=r"(?<=.)(?=.)")


def driven(workflow, groups, samples, slots=256):
    """All rollouts of so many groups of one prompt, by (group, sample)."""
    made = policy()
    live = Driven(engine=Native(slots=slots, precision="float32"), workflow=workflow).start(made)
    live.load(0, made.state_dict())
    for group in range(groups):
        for sample in range(samples):
            live.submit(request(PROMPT, group=group, sample=sample, max_length=LENGTH, temperature=HEAT))
    return made, {key: item.rollout for key, item in drained(live).items()}


def wrong(rollout):
    """The place of the first letter of the second half, None if there is none."""
    return next((n for n, c in enumerate(rollout.text) if c > "m"), None)


@pytest.fixture(scope="module")
def drawn():
    return driven(LETTERS, GROUPS, GROUP)


@pytest.mark.slow
def test_a_retry_keeps_what_was_right_and_it_trains_in_neither(drawn):
    _, rollouts = drawn
    retried = 0
    for group in range(GROUPS):
        first, retry = rollouts[group, 0], rollouts[group, 3]
        at = wrong(first)
        if at:
            retried += 1
            assert retry.fork == (0, at) and ids(retry)[:at] == ids(first)[:at]
            assert torch.equal(retry.behavior_S[:at], first.behavior_S[:at])
            for row in (first, retry):
                assert row.mask_S.tolist() == [False] * at + [True] * (row.length - at)
        else:
            assert retry.fork is None and bool(first.mask_S.all()) and bool(retry.mask_S.all())
    assert GROUPS / 10 < retried < 9 * GROUPS / 10


@pytest.mark.slow
def test_what_a_retry_draws_is_the_policys_given_what_was_kept(drawn):
    """The letter after what was kept, over all beginnings, against the exact distribution; and its recorded log-probability."""
    made, rollouts = drawn
    seen: dict[str, Counter] = {}
    for group in range(GROUPS):
        first = rollouts[group, 0]
        if at := wrong(first):
            kept = seen.setdefault(first.text[:at], Counter())
            kept.update(ids(rollouts[group, sample])[at] for sample in range(1, GROUP))
    expected, counts = torch.zeros(27, dtype=torch.double), Counter()
    for kept, found in seen.items():
        with torch.no_grad():
            tokens = torch.tensor([made.tokenizer.encode(PROMPT + kept)])
            exact = made.model(tokens).logits[0, -1].double().div(HEAT).softmax(-1)
        expected += exact * sum(found.values())
        counts.update(found)
    cells = [i for i in range(27) if expected[i] >= 5]
    statistic = sum((counts[i] - float(expected[i])) ** 2 / float(expected[i]) for i in cells)
    # 99.9% points of chi-square: 26 degrees of freedom 54.1; fewer cells, and expectations of several kinds, less.
    assert sum(counts.values()) > 150 and len(cells) > 10 and statistic < 54.1, statistic
    some = next(rollouts[g, 1] for g in range(GROUPS) if wrong(rollouts[g, 0]))
    with torch.no_grad():
        logits = made.model(some.decisions.ids_NL).logits[0].double().div(HEAT).log_softmax(-1)
    start = int(some.decisions.prompt_N[0])
    exact = [float(logits[start - 1 + n, token]) for n, token in enumerate(ids(some))]
    assert some.behavior_S.tolist() == pytest.approx(exact, abs=1e-4)


@pytest.mark.slow
def test_as_many_first_attempts_as_samples_are_independent_samples():
    _, plain = driven(replace(LETTERS, firsts=4), groups=3, samples=4, slots=8)
    _, alone = driven(LETTERS.inside, groups=3, samples=4, slots=8)
    assert all(ids(plain[key]) == ids(alone[key]) and plain[key].fork is None for key in alone)
    _, shared = driven(replace(LETTERS, pivotal=False), groups=20, samples=3, slots=8)
    assert all(bool(shared[g, 0].mask_S.all()) for g in range(20)), "the attempt trains whole"
    assert any(shared[g, 2].fork for g in range(20)) and all(
        row.fork is None or row.fork[0] == 0 for row in shared.values()
    )


def test_an_evaluation_is_not_drawn_by_it_and_bad_numbers_are_refused():
    with pytest.raises(ValueError, match=r"not measure the policy: held_out.workflow='SingleTurn\(\)'"):
        compose.check(small_run(workflow=Retrying(firsts=2), held_out=HeldOut(tasks=small_run().tasks)))
    assert any("nothing is retried" in said for said in compose.check(small_run(workflow=Retrying(firsts=4))))
    with pytest.raises(ValueError, match="at least 1"):
        Retrying(firsts=0)
    with pytest.raises(ValueError, match="put Retrying into it"):
        Retrying(inside=Branching())
