"""The store of a data set: what it draws, what running statistics see of it, and that a resume goes on to the same bits."""

from dataclasses import replace

import pytest
import torch

from gimbal.dataflow.replay.recorded import recorded
from gimbal.dataflow.replay.recordings import Recordings
from gimbal.dataflow.replay.transitions import FRESH, MOVE
from gimbal.engines.base import Request
from gimbal.engines.playback import played
from gimbal.environments.minari import DATASET, Minari
from gimbal.environments.recording import Recording
from gimbal.policies.control import StepSampling
from gimbal.recipes.papers.offline.td3_bc import td3_bc
from gimbal.records import Episode, Group
from gimbal.runtime.local import Trainer

DATA = Minari(dataset="gimbal/maze/stitch-v0")


def drawn(store, version):
    task = DATA[0]
    asked = Request(group=0, task=task, sample=0, sampling=StepSampling(max_length=5), seed=0)
    episode = Episode.of(played(asked, version))
    store.join([Group(index=0, task=task, episodes=(episode,))], version, lambda group: group)
    return store.take(recorded(Recording(source="", episodes=DATA.recording.episodes[:1]))[0])


def test_a_step_is_so_many_moves_of_rows_of_the_data():
    store = Recordings(moves=3, minibatch=5).start(0)
    first, second = drawn(store, 0), drawn(store, 1)
    rows = recorded(DATA.recording)[0]
    size = rows.shape[0]
    assert first.shape[0] == 15 + size and second.shape[0] == 15
    assert first.facts[MOVE].tolist() == [0] * 5 + [1] * 5 + [2] * 5 + [FRESH] * size
    assert second.facts[MOVE].tolist() == [3] * 5 + [4] * 5 + [5] * 5
    assert set(second.version_NS.flatten().tolist()) == {1}, "what was recorded is of no age"
    every = {
        tuple(row) for row in torch.cat([rows.decisions.observation_NSO, rows.decisions.action_NSA], -1)[:, 0].tolist()
    }
    for batch in (first, second):
        taken = torch.cat([batch.decisions.observation_NSO, batch.decisions.action_NSA], -1)[:15, 0].tolist()
        assert all(tuple(row) in every for row in taken)
    assert first.decisions.observation_NSO[:15].tolist() != second.decisions.observation_NSO.tolist()
    told = store.metrics()
    assert told == {"replay/held": size, "replay/moves": 6, "replay/passes": pytest.approx(30 / size)}


def test_all_rows_are_as_likely():
    store = Recordings(moves=50, minibatch=1000).start(0)
    batch = drawn(store, 0)
    ended = float(batch.decisions.terminated_N[:50_000].float().mean())
    assert ended == pytest.approx(float(recorded(DATA.recording)[0].decisions.terminated_N.float().mean()), abs=0.003)


def test_it_goes_on_where_it_was_saved():
    spec = Recordings(moves=2, minibatch=4)
    whole = spec.start(3)
    drawn(whole, 0)
    resumed = spec.start(3)
    resumed.load_state_dict(whole.state_dict())
    one, other = drawn(whole, 1), drawn(resumed, 1)
    assert torch.equal(one.facts[MOVE], other.facts[MOVE])
    for name in ("observation_NSO", "action_NSA", "final_NO", "terminated_N"):
        assert torch.equal(getattr(one.decisions, name), getattr(other.decisions, name))
    assert not torch.equal(
        drawn(spec.start(4), 0).decisions.action_NSA[:8], drawn(spec.start(3), 0).decisions.action_NSA[:8]
    )


def test_statistics_see_every_observation_of_the_data_once(tmp_path):
    """Before the first move, and on no later step; a resume does not show them again."""
    run = td3_bc()
    sizes = {"observations": 2, "actions": 2, "bound": 0.2}
    update = replace(run.update, critic=replace(run.update.critic, **sizes))
    policy = replace(run.policy, hidden=(8,), **sizes)
    store = Recordings(moves=2, minibatch=8)
    run = replace(run, tasks=DATA, store=store, policy=policy, update=update, held_out=None, steps=4)
    seen = recorded(DATA.recording)[0].decisions.observation_NSO[:, 0]
    trainer = Trainer(run)
    for _ in range(2):
        metrics, groups, _ = trainer.advance()
        normal = trainer.learner.policy.normalizer
        assert float(normal.count) == len(seen)
        torch.testing.assert_close(normal.mean_O, seen.mean(0), atol=1e-5, rtol=1e-4)
        assert metrics["staleness/max"] == 0 and isinstance(groups[0], Group) and groups[0].task.columns[DATASET]
    saved = trainer.save(tmp_path, {})
    trainer.advance()
    resumed = Trainer(run, saved)
    resumed.advance()
    assert float(resumed.learner.policy.normalizer.count) == len(seen)
    for one, other in zip(trainer.learner.policy.parameters(), resumed.learner.policy.parameters(), strict=True):
        assert torch.equal(one, other)
    for made in (trainer, resumed):
        made.close()
