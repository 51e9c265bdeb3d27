"""Where a tree of beginnings splits, what is cut, what of it counts, and that what is sampled is the policy's, by enumeration."""

import math
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch

sys.path[:0] = [str(Path(__file__).parents[1] / name) for name in ("engines", "runtime")]
from small import small_run
from test_native import ids, policy, request

from gimbal.engines.base import drained
from gimbal.engines.native import Native
from gimbal.rewards.similarity import edit_distance
from gimbal.runtime import compose
from gimbal.runtime.run import HeldOut
from gimbal.workflows.lookahead import Lookahead
from gimbal.workflows.runner import Driven
from gimbal.workflows.single import SingleTurn

GROUP, PROMPT = 4, "hello"
TREE = Lookahead(above=0.0, within=1.0, alike=0.0, ages=(2, 3), longest=3)


@pytest.fixture(scope="module")
def made():
    return policy()


def live(made, workflow, slots=64):
    engine = Driven(engine=Native(slots=slots, precision="float32", rivals=True), workflow=workflow).start(made)
    engine.load(0, made.state_dict())
    return engine


def ask(engine, groups=1, samples=GROUP, prompt=PROMPT, **sampling):
    for group in range(groups):
        for sample in range(samples):
            engine.submit(request(prompt, group=group, sample=sample, **{"max_length": 6, **sampling}))


def groups(made, workflow, count=1, samples=GROUP, slots=64, **asked):
    engine = live(made, workflow, slots)
    ask(engine, count, samples, **asked)
    return {key: item.outcome for key, item in drained(engine).items()}, engine


@torch.no_grad()
def next_logprob(made, text_ids):
    return made.model(torch.tensor([text_ids])).logits[0, -1].double().log_softmax(-1)


@torch.no_grad()
def grown(made, spec, width):
    """The beginnings by a search of its own, token by token: what is left of them, and how many were cut."""
    start = made.tokenizer.encode(PROMPT)
    live, cut = [([], 0, None)], 0  # ids, born, parent
    for at in range(spec.longest):
        splits = []
        for own, _, _ in live:
            logprob = next_logprob(made, start + own)
            order = [int(i) for i in logprob.argsort(descending=True)]
            rival = next(i for i in order if i != order[0] and i not in made.end_ids)
            p, q = math.exp(logprob[order[0]]), math.exp(logprob[rival])
            if at < spec.longest - 1 and q > spec.above and p - q < spec.within:
                splits.append(([*own, rival], at, own))
            own.append(order[0])
        live += splits[: width - len(live)]
        for branch in list(live):
            own, born, parent = branch
            age = at + 1 - born
            if at == spec.longest - 1 or age not in spec.ages or not any(parent is other for other, _, _ in live):
                continue
            if edit_distance(own[born:], parent[born:]) / age < spec.alike:
                live = [other for other in live if other is not branch]
                cut += 1
    return [own for own, _, _ in live], cut


def test_the_engine_records_the_likeliest_token_beside_the_one_drawn(made):
    rows, _ = groups(made, SingleTurn(), samples=3)
    for row in (outcome.last for outcome in rows.values()):
        start = made.tokenizer.encode(PROMPT)
        for at, token in enumerate(ids(row)):
            logprob = next_logprob(made, start + ids(row)[:at])
            logprob[[token, *made.end_ids]] = -math.inf
            assert int(row.rival_S[at]) == int(logprob.argmax())
            assert float(row.rival_logprob_S[at]) == pytest.approx(float(logprob.max()), abs=1e-4)


@pytest.mark.parametrize(
    "spec",
    [TREE, replace(TREE, within=0.6, above=0.01, longest=6), replace(TREE, alike=1.01, ages=(2,), longest=6)],
    ids=["wide", "narrow", "cut"],
)
def test_beginnings_are_those_of_a_search_of_its_own_and_only_ends_count(made, spec):
    rows, _ = groups(made, spec, max_length=10)
    expected, cut = grown(made, spec, GROUP)
    assert len(expected) > 1 and bool(cut) == bool(spec.alike)
    own = [sample for sample in range(GROUP) if rows[0, sample].last.fork != (0, spec.longest)]
    found = [ids(rows[0, sample].last)[: spec.longest] for sample in own]
    assert sorted(found) == sorted(expected)
    for sample in range(GROUP):
        row = rows[0, sample].last
        row.validate()
        assert row.mask_S.tolist() == [False] * spec.longest + [True] * (row.length - spec.longest)
        if row.fork is not None:
            other, at = row.fork
            theirs = ids(rows[0, other].last)
            assert ids(row)[:at] == theirs[:at] and (at == spec.longest or ids(row)[at] != theirs[at])
        else:
            assert not any(ids(rows[0, other].last)[0] == ids(row)[0] for other in range(sample))
    assert rows[0, 0].spent > 0 if cut else rows[0, 0].spent == 1 - GROUP, "the first token of each branch was forced"
    assert not any(rows[0, sample].spent for sample in range(1, GROUP))


def test_all_that_is_cut_leaves_the_first_beginning_and_what_it_cost_is_counted(made):
    rows, engine = groups(made, replace(TREE, alike=1.01, ages=(1,)))
    assert {rows[0, sample].last.fork for sample in range(1, GROUP)} == {(0, 3)}
    drawn = sum(outcome.drawn for outcome in rows.values())
    assert rows[0, 0].spent == 2, "one branch at each of two places, of two tokens, of which one was forced"
    prompt = len(made.tokenizer.encode(PROMPT))
    assert engine.inner.computed >= drawn + prompt - 1


def test_a_share_of_0_is_independent_samples_and_0_and_a_half_is_one_beginning(made):
    plain, _ = groups(made, SingleTurn())
    none, _ = groups(made, replace(TREE, shares=((0, 0.0),)))
    assert all(ids(none[key].last) == ids(plain[key].last) and none[key].last.fork is None for key in plain)
    half, _ = groups(made, replace(TREE, shares=((0, 0.5),)))
    for sample in (2, 3):
        assert ids(half[0, sample].last) == ids(plain[0, sample].last), "samples beyond the tree's are the engine's own"
    one, _ = groups(made, replace(TREE, above=0.51))
    assert len({tuple(ids(one[0, sample].last)[:3]) for sample in range(GROUP)}) == 1
    faded = replace(TREE, shares=((0, 1.0), (4, 0.0)))
    assert faded.remember(2, replace_attempt(2), [one[0, 0].last]) == 2
    steps = faded(replace_attempt(memory=4))
    calls = next(steps)
    assert [call.sample for call in calls] == [0, 1, 2, 3], "from step 4 on all are sampled from the prompt"


def replace_attempt(memory):
    from gimbal.policies.token import Sampling
    from gimbal.records import Task
    from gimbal.workflows.base import Attempt

    samples = tuple(range(GROUP))
    return Attempt(
        group=0, task=Task(id="t", prompt=PROMPT), samples=samples, sampling=Sampling(), seed=0, memory=memory
    )


@pytest.mark.slow
def test_what_is_sampled_is_the_policys_given_its_beginning(made):
    """The first sampled token behind each beginning against the exact distribution, and its recorded log-probability."""
    rows, _ = groups(made, TREE, count=80, slots=256, temperature=4.0)
    seen: dict[tuple, Counter] = {}
    for outcome in rows.values():
        row = outcome.last
        seen.setdefault(tuple(ids(row)[:3]), Counter())[ids(row)[3]] += 1
    assert len(seen) == GROUP
    statistic = cells = 0
    for kept, found in seen.items():
        with torch.no_grad():
            tokens = torch.tensor([made.tokenizer.encode(PROMPT) + list(kept)])
            logprob = made.model(tokens).logits[0, -1].double().div(4.0).log_softmax(-1)
        expected = logprob.exp() * sum(found.values())
        big = [i for i in range(27) if expected[i] >= 5]
        rest = float(sum(expected[i] for i in range(27) if i not in big))
        statistic += sum((found[i] - float(expected[i])) ** 2 / float(expected[i]) for i in big)
        cells += len(big) - (rest < 1)
        some = next(o.last for o in rows.values() if tuple(ids(o.last)[:3]) == kept)
        assert float(some.behavior_S[3]) == pytest.approx(float(logprob[ids(some)[3]]), abs=1e-4)
    # The 99.9% point of chi-square with d degrees of freedom lies below d + 3.1 sqrt(2 d) + 6.
    assert cells >= 8 and statistic < cells + 3.1 * math.sqrt(2 * cells) + 6, (statistic, cells)


def test_a_state_goes_on_to_the_same_bits(made):
    whole, _ = groups(made, TREE, count=2, slots=3)
    first = live(made, TREE, slots=3)
    ask(first, 2)
    for _ in range(4):
        first.step()
    second = live(made, TREE, slots=3)
    second.load_state_dict(first.state_dict())
    rows = {key: item.outcome for key, item in drained(second).items()}
    assert rows.keys() == whole.keys()
    for key, outcome in rows.items():
        assert ids(outcome.last) == ids(whole[key].last) and outcome.last.fork == whole[key].last.fork
        assert torch.equal(outcome.last.behavior_S, whole[key].last.behavior_S) and outcome.spent == whole[key].spent
        assert torch.equal(outcome.last.rival_S, whole[key].last.rival_S)


def test_what_it_needs_is_refused_where_it_is_missing():
    run = small_run(workflow=TREE, engine=Native(slots=8, rivals=True), held_out=HeldOut(tasks=small_run().tasks))
    with pytest.raises(ValueError, match=r"not measure the policy: held_out.workflow='SingleTurn\(\)'"):
        compose.check(run)
    with pytest.raises(ValueError, match=r"engine\.rivals=true"):
        compose.check(small_run(workflow=TREE, held_out=None))
    for wrong, said in (
        ({"ages": (3, 2)}, "rising counts"),
        ({"alike": -1.0}, "0 or above"),
        ({"shares": ((1, 1.0),)}, "rising steps from 0"),
    ):
        with pytest.raises(ValueError, match=said):
            Lookahead(**wrong)
