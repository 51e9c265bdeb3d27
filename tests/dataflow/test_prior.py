"""Minibatches that are partly of recorded episodes: how many, which, and that a resume goes on to the same bits."""

from dataclasses import replace

import pytest
import torch

from gimbal import recipes
from gimbal.config import Text
from gimbal.dataflow.replay.recorded import recorded
from gimbal.dataflow.replay.transitions import AHEAD, FRESH, MOVE, Transitions
from gimbal.environments.minari import Minari
from gimbal.environments.recording import Recording
from gimbal.report.files import deterministic
from gimbal.runtime import compose
from gimbal.runtime.local import Trainer

DATA = Minari(dataset="gimbal/maze/stitch-v0")
SPEC = Transitions(capacity=500, minibatch=8, learning_starts=0, update_to_data=0.05, prior=DATA)


def came(count=100):
    """What no recorded episode holds: rewards of 7."""
    rows = recorded(Recording(source="", episodes=DATA.recording.episodes[:10]))[0].select(torch.arange(count))
    return replace(rows, reward_NS=torch.full((count, 1), 7.0))


def drawn(spec, version=3):
    store = spec.start(0)
    store.join([], version, lambda group: group)
    return store, store.take(came())


@pytest.mark.parametrize(("share", "recorded_rows"), [(0.5, 4), (0.25, 2), (1.0, 8), (0.0, 0)])
def test_each_minibatch_has_its_share_of_the_data(share, recorded_rows):
    store, batch = drawn(replace(SPEC, share=share))
    number = batch.facts[MOVE]
    assert number.tolist() == [move for move in range(5) for _ in range(8)] + [FRESH] * 100
    of_data = (batch.reward_NS[:40, 0] != 7).reshape(5, 8)
    assert of_data.sum(1).tolist() == [recorded_rows] * 5
    assert set(batch.version_NS[:40, 0][of_data.flatten()].tolist()) <= {3}, "what was recorded is of no age"
    assert store.metrics()["replay/prior"] == share and store.held == 100, "the data take no room in the buffer"


def test_a_share_by_size_is_as_if_the_data_lay_in_the_buffer():
    size = len(recorded(DATA.recording)[0].reward_NS)
    store = replace(SPEC, share=None, update_to_data=1 / 20).start(0)
    store.join([], 0, lambda group: group)
    own = expected = 0.0
    for _ in range(200):  # of a minibatch of eight one's own are far less than a whole row: none if that were rounded
        batch = store.take(came(20))
        own += float((batch.reward_NS[:8, 0] == 7).sum())
        expected += 8 * store.held / (size + store.held)
    assert expected / 200 < 0.4 and own == pytest.approx(expected, abs=4 * expected**0.5)
    assert store.metrics()["replay/prior"] == size / (size + store.held)


def test_several_steps_of_the_data_stay_within_their_episodes():
    rows, goes_on = recorded(DATA.recording)
    _, batch = drawn(replace(SPEC, share=1.0, n=3))
    seen = {
        tuple(x): k
        for k, x in enumerate(torch.cat([rows.decisions.observation_NSO, rows.decisions.action_NSA], -1)[:, 0].tolist())
    }
    rewards = rows.reward_NS[:, 0]
    for row in range(40):
        key = torch.cat([batch.decisions.observation_NSO, batch.decisions.action_NSA], -1)[row, 0]
        place = seen[tuple(key.tolist())]
        there = [place]
        while len(there) < 3 and goes_on[there[-1]]:
            there.append(there[-1] + 1)
        ahead = batch.facts[AHEAD][row, 0]
        assert ahead[~ahead.isnan()].tolist() == rewards[there].tolist()
        assert torch.equal(batch.decisions.final_NO[row], rows.decisions.final_NO[there[-1]])


def small(**changes):
    text = {key: Text(value) for key, value in changes.items()}
    return recipes.load("rlpd", {"held_out": None, "store.learning_starts": 0, "store.minibatch": 16, **text})


def stepped(run, steps):
    trainer = Trainer(run)
    found = [deterministic(trainer.advance()[0]) for _ in range(steps)]
    weights = {
        f"{name}/{key}": x.clone()
        for name, module in trainer.learner.models.modules.items()
        for key, x in module.state_dict().items()
    }
    trainer.close()
    return found, weights


def test_a_share_of_zero_is_the_run_without_data_bit_for_bit(single_thread):
    """With two plain critics and the least of both: SAC."""
    plain = {"update.subset": "0", "update.critic.members": "2", "update.critic.layer_norm": "false"}
    sac = recipes.load("sac", {"held_out": None, "store.learning_starts": 0, "store.minibatch": 16})
    found = [stepped(run, 4) for run in (small(**plain, **{"store.share": "0"}), sac)]
    assert found[0][1].keys() == found[1][1].keys()
    assert all(torch.equal(found[0][1][name], found[1][1][name]) for name in found[0][1])
    other = stepped(small(**plain), 4)[1]
    assert not all(torch.equal(other[name], found[1][1][name]) for name in other)


def test_a_resumed_run_goes_on_to_the_same_bits(tmp_path, single_thread):
    run = small(**{"store.n": "2"})
    trainer = Trainer(run)
    trainer.advance(), trainer.advance()
    saved = trainer.save(tmp_path, {})
    resumed = Trainer(run, saved)
    for _ in range(3):
        assert deterministic(resumed.advance()[0]) == deterministic(trainer.advance()[0])
    for name, module in trainer.learner.models.modules.items():
        pairs = zip(module.parameters(), resumed.learner.models[name].parameters(), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs), name
    trainer.close(), resumed.close()


def test_data_of_another_environment_bring_it_unless_one_is_given():
    maze = {"store.prior.dataset": "gimbal/maze/stitch-v0"}
    with pytest.raises(ValueError, match="this run acts in Pendulum-v1"):
        recipes.load("rlpd", {**maze, "tasks.environment": "Pendulum-v1"})
    run, said = recipes.load("rlpd", maze, (notes := []).append), notes
    assert run.tasks.source == run.held_out.tasks.source == DATA.source and any(DATA.source in note for note in said)
    assert run.policy.observations == run.update.critic.observations == 2
    assert recipes.load("rlpd", {}).tasks.source == "Pendulum-v1"
    assert compose.check(recipes.load("rlpd")) == []
    with pytest.raises(ValueError, match="from 0 to 1"):
        Transitions(share=1.5)
