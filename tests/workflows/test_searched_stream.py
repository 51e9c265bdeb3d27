"""Streams that are searched: what stays, what noise candidates begin with, what the search costs, and what it reduces to."""

import pickle
from dataclasses import dataclass, replace

import pytest
import torch

pytest.importorskip("diffusers", reason="diffusers is not installed: pip install -e '.[denoising]'")

from test_streamed import ASKED, ODE, asked, episodes, made, started

from gimbal import recipes
from gimbal.config.own import OwnError
from gimbal.engines.base import drained
from gimbal.ops import philox
from gimbal.policies.denoiser import Denoiser
from gimbal.policies.paths import NO_LABEL
from gimbal.records import Episode
from gimbal.rewards.samples import AbstractSampleReward
from gimbal.runtime import compose
from gimbal.runtime.run import HeldOut
from gimbal.workflows.base import AbstractWorkflow, Attempt, Draw
from gimbal.workflows.searched_stream import SearchedStream
from gimbal.workflows.streamed import Streamed


@dataclass(frozen=True, kw_only=True)
class Brightness(AbstractSampleReward):
    name: str = "brightness"
    sign: float = 1.0

    def of_samples(self, x_ND, label_N):
        return self.sign * x_ND.mean(-1)


REWARD = Brightness()


@pytest.fixture(scope="module")
def policy():
    torch.set_num_threads(1)
    return Denoiser(model="gimbal-digits-stream", batch=8).load()


def start_of(row):
    return row.decisions.state_NXD[0, 0]


def calls(workflow, answers):
    """The calls of a search over these finished rows, without an engine: ``answers`` picks a row for each call."""
    attempt = Attempt(group=0, task=ASKED, samples=(0,), sampling=ODE, seed=3)
    flow, said, seen = workflow(attempt), None, []
    while True:
        try:
            call = flow.send(said)
        except StopIteration as end:
            return seen, end.value
        seen.append(call)
        said = [answers(one) for one in call] if isinstance(call, list) else answers(call)


def test_one_candidate_is_a_stream_as_it_comes(policy):
    searched = episodes(policy, SearchedStream(blocks=3, candidates=1, reward=REWARD))
    for one, other in zip(searched, episodes(policy, Streamed(blocks=3)), strict=True):
        assert all(torch.equal(made(a), made(b)) for a, b in zip(one.rows, other.rows, strict=True))
        assert one.drawn == other.drawn and [row.row for row in one.rows] == [row.row for row in other.rows]


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_of_the_candidates_for_a_block_the_best_stays(policy, sign):
    """Candidates are drawn again one by one from their noise and their past, and compared by hand."""
    reward = replace(REWARD, sign=sign)
    workflow = SearchedStream(blocks=3, candidates=3, carried=0.5, reward=reward)
    episode = episodes(policy, workflow, 1)[0]
    assert len(episode.rows) == 3 and episode.drawn == 9 * 3, "the steps of all candidates"
    before, level_SL = None, episode.rows[0].decisions.level_NSL[0]
    for block, row in enumerate(episode.rows):
        starts = []
        for number in range(3):
            eps = philox("candidate", 3, ASKED.id, 0, block, number).standard_normal((1, 8, 8), dtype="float32")
            eps = torch.from_numpy(eps)
            starts.append(eps if before is None else 0.5**0.5 * start_of(before) + 0.5**0.5 * eps)
        if before is None:  # the sample's own noise is that of the first
            starts[0] = start_of(episodes(policy, Streamed(blocks=2), 1)[0].rows[0])
        label = torch.tensor([5 if before is None else NO_LABEL] * 3)
        given = policy.given(None if before is None else made(before)).expand(3, -1, -1, -1)
        x = torch.stack(starts)
        with torch.no_grad():
            for s in range(3):
                at = level_SL[s].expand(3, -1), row.decisions.time_NS[0, s].expand(3), torch.zeros(3)
                x = policy.step(x, *at, label, "ode", given)[0]
        kept = int((sign * x.flatten(1).mean(1)).argmax())
        torch.testing.assert_close(made(row), x[kept], atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(start_of(row), starts[kept])
        before = row


def test_a_beam_lets_streams_compete_by_what_they_have(policy):
    """By hand, on blocks whose brightness the test chooses: a dull block that leads to bright ones stays in the beam."""
    (row, *_) = episodes(policy, Streamed(blocks=2), 1)[0].rows

    def lit(value):
        decisions = replace(row.decisions, state_NXD=row.decisions.state_NXD.clone())
        decisions.state_NXD[:, -1] = value
        return replace(row, decisions=decisions)

    def after(call):
        if call.after is None:
            return lit(1.0 if call.start is None else 0.6)
        came = float(call.after.mean())
        return lit(0.0 if came > 0.95 else 0.8 if came > 0.7 else 0.9)

    def drawn(**fields):
        _, episode = calls(SearchedStream(reward=REWARD, **fields), after)
        return [round(float(made(one).mean()), 2) for one in episode.rows], episode

    assert drawn(blocks=2, candidates=2)[0] == [1.0, 0.0], "the best first block"
    assert drawn(blocks=2, candidates=1, beam=2)[0] == [0.6, 0.9], "what comes of each"
    assert drawn(blocks=3, candidates=1, beam=2)[0] == [1.0, 0.0, 0.9], "by the last block alone"
    found, episode = drawn(blocks=3, candidates=1, beam=2, window=3)
    assert found == [0.6, 0.9, 0.8] == drawn(blocks=3, candidates=1, beam=2, window=9)[0], "by all of them"
    assert episode.spent == 3 * row.drawn


def test_all_handed_on_is_one_noise_for_all_blocks(policy):
    episode = episodes(policy, SearchedStream(blocks=3, candidates=1, carried=1.0, reward=REWARD), 1)[0]
    first, *rest = map(start_of, episode.rows)
    assert all(torch.equal(first, other) for other in rest)


def test_a_search_in_progress_goes_on_after_a_checkpoint(policy):
    workflow = SearchedStream(blocks=3, candidates=2, carried=0.5, reward=REWARD)
    whole = episodes(policy, workflow, 2)
    live, found = asked(started(policy, workflow), 2, ODE), {}
    for _ in range(8):
        found |= {one.key: one for one in live.step()}
    other = started(policy, workflow)
    other.load_state_dict(pickle.loads(pickle.dumps(live.state_dict())))
    found |= drained(other)
    for episode in whole:
        again = found[0, episode.sample].outcome
        assert again.spent == episode.spent
        assert all(torch.equal(made(one), made(two)) for one, two in zip(episode.rows, again.rows, strict=True))


def test_what_cannot_be_searched_is_refused_by_name():
    for wrong, said in (
        ({"candidates": 0}, "each is 1 or more"),
        ({"beam": 0}, "each is 1 or more"),
        ({"window": 0}, "each is 1 or more"),
        ({"carried": 1.1}, "from 0 to 1"),
        ({"carried": float("nan")}, "from 0 to 1"),
        ({"carried": 1.0}, "one and the same"),
        ({"blocks": 1}, r"SearchedStream\.blocks is 1"),
    ):
        with pytest.raises(ValueError, match=said):
            SearchedStream(reward=REWARD, **wrong)
    run = replace(recipes.load("streams"), rewards=(REWARD,))
    search = SearchedStream(reward=REWARD)
    with pytest.raises(ValueError, match="SearchedStream chooses blocks by their reward"):
        compose.check(replace(run, workflow=search, held_out=HeldOut(tasks=run.tasks)))
    with pytest.raises(ValueError, match="SearchedStream goes by Brightness"):
        compose.check(replace(run, workflow=SearchedStream(reward=Brightness(sign=-1.0))))
    with pytest.raises(ValueError, match="SearchedStream draws each block after the one before"):
        compose.check(replace(run, workflow=search, policy=Denoiser()))
    assert isinstance(run.held_out, HeldOut)
    climbing = replace(
        recipes.load("flow_grpo"), policy=run.policy, rewards=(REWARD,), held_out=replace(run.held_out, workflow=search)
    )
    with pytest.raises(ValueError, match="a policy gradient would count them as drawn: set workflow='Streamed"):
        compose.check(replace(climbing, workflow=search))
    compose.check(replace(climbing, workflow=Streamed()))
    compose.check(replace(run, workflow=search))
    compose.check(replace(run, held_out=replace(run.held_out, workflow=search)))


def test_noise_of_another_shape_is_refused_by_name(policy):
    @dataclass(frozen=True, kw_only=True)
    class From(AbstractWorkflow):
        def __call__(self, attempt):
            return Episode.of((yield Draw(task=attempt.task, sample=attempt.sample, start=torch.zeros(8, 8))))

    with pytest.raises(OwnError, match=r"it must be noise of the shape \(1, 8, 8\)"):
        asked(started(policy, From()), 1, ODE)
