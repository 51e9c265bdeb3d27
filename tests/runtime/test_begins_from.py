"""Runs that go on from another run's policy and critics, and what is set at the start of a run and never at a resume."""

import shutil
from dataclasses import replace

import pytest
import torch
from killing import differing

from gimbal import recipes
from gimbal.dataflow.replay.transitions import Transitions
from gimbal.engines.episodes import Episodes
from gimbal.environments.gym import Gymnasium
from gimbal.environments.minari import Minari
from gimbal.learning.updates.off_policy import Explore
from gimbal.learning.updates.synthetic_replay import SyntheticReplay
from gimbal.runtime.compose import check
from gimbal.runtime.local import Trainer, run_local

pytest.importorskip("gymnasium")

SMALL = {"held_out": None, "threads": 1}
FEW = {"store.learning_starts": 10, "store.minibatch": 16}


def offline(name):
    return replace(recipes.load(name, {"store.moves": 3, "store.minibatch": 16}), **SMALL)


def acting(name):
    return replace(recipes.load(name, FEW), **SMALL)


def saved(run, where, steps=2):
    trainer = Trainer(run)
    for _ in range(steps):
        trainer.advance()
    return trainer.save(where, {})


def online(run, place, **changes):
    """It acts, from the policy and with the critics that were saved there."""
    store = Transitions(minibatch=16, learning_starts=10, prior=Minari(dataset="gimbal/pendulum/mixed-v0"))
    acts = {"tasks": Gymnasium(environment="Pendulum-v1"), "engine": Episodes(slots=1, segment=10), "store": store}
    return replace(
        run, policy=run.policy.at(place / "model"), update=replace(run.update, begin_from=str(place)), **acts
    )


def weights(trainer):
    """Of all its models."""
    found = trainer.learner.models.modules.items()
    return {name: {n: x.clone() for n, x in model.state_dict().items()} for name, model in found}


CARRIED = {
    "iql": {"critic", "target", "value"},
    "cql": {"critic", "target", "temperature"},
    "td3_bc": {"critic", "target"},
    "fql": {"critic", "target", "flow"},
}


@pytest.mark.parametrize("name", CARRIED)
def test_critics_go_on_as_they_were_and_learn_on(tmp_path, single_thread, name):
    place = saved(run := offline(name), tmp_path)
    held = torch.load(place / "state.pt", weights_only=False)["learner"]["models"]
    begun, without = Trainer(online(run, place)), Trainer(replace(online(run, place), update=run.update))
    first, own = weights(begun), weights(without)
    assert {one for one in held if one in first and differing(first[one], held[one]) is None} >= CARRIED[name]
    assert {one for one in first if differing(first[one], own[one]) is not None} == CARRIED[name], "and nothing else"
    begun.advance(), begun.advance()
    assert all(differing(weights(begun)[one], first[one]) is not None for one in CARRIED[name])


def test_a_run_is_named_like_its_newest_checkpoint(tmp_path, single_thread):
    place = saved(run := offline("iql"), tmp_path)
    one, other = (
        Trainer(replace(online(run, place), update=replace(run.update, begin_from=str(named))))
        for named in (place, tmp_path)
    )
    assert differing(weights(one), weights(other)) is None


def test_critics_of_iql_begin_a_run_of_td3_and_of_what_is_around_it(tmp_path, single_thread):
    place = saved(offline("iql"), tmp_path)
    held = torch.load(place / "state.pt", weights_only=False)["learner"]["models"]
    run = offline("td3_bc")
    update = replace(run.update, begin_from=str(place))
    for begun in (update, SyntheticReplay(inside=update, warmup=1)):
        found = weights(Trainer(replace(run, update=begun)))
        assert differing(found["critic"], held["critic"]) is None and "value" not in found


def test_a_resumed_run_reads_nothing_of_the_other(tmp_path, single_thread):
    place = saved(offline("iql"), tmp_path / "other")
    run = online(offline("iql"), place)
    whole = Trainer(run)
    whole.advance(), whole.advance()
    cut = whole.save(tmp_path / "own", {})
    shutil.rmtree(tmp_path / "other")
    resumed = Trainer(run, cut)
    resumed.begin()
    assert differing(weights(resumed), weights(whole)) is None
    whole.advance(), resumed.advance()
    assert differing(weights(resumed), weights(whole)) is None


def test_a_run_is_resumed_without_the_one_it_began_with(tmp_path, single_thread):
    place = saved(offline("iql"), tmp_path / "other")
    run = replace(online(offline("iql"), place), steps=2, checkpoint_every=1, record_every=0)
    run_local(run, tmp_path / "run")
    shutil.rmtree(place)
    summary = run_local(replace(run, steps=3), tmp_path / "run", resume=True)
    assert summary.steps == 3
    with pytest.raises(ValueError, match=r"other.*holds no config\.json"):
        run_local(run, tmp_path / "anew")


def test_a_run_that_has_not_ended_says_where_its_weights_are(tmp_path, single_thread):
    run = offline("iql")
    saved(run, tmp_path)
    with pytest.raises(ValueError, match=r"that run has not ended; .* is in .*step_000002/model"):
        run.policy.at(tmp_path / "model").load()


def test_noise_of_one_that_knows_nothing_is_advised_against(tmp_path, single_thread):
    place, acts = tmp_path / "td3", acting("td3")
    acts.policy.load(0).save(place / "model")
    run = replace(acts, policy=acts.policy.at(place / "model"), update=replace(acts.update, begin_from=str(place)))
    assert any("update.explore.first=0.1 keeps to what it learned" in said for said in check(run))
    calm = replace(run, update=replace(run.update, explore=Explore(first=0.1, last=0.1)))
    assert not any("explore" in said for said in check(calm))


def test_what_cannot_begin_is_refused_in_a_sentence(tmp_path, single_thread):
    place = saved(run := offline("iql"), tmp_path / "iql")
    wide = replace(run.update.critic, hidden=(32,))
    with pytest.raises(
        ValueError, match=r"critic has other sizes than this run.s \(.* there and .* here\): set tasks.environment"
    ):
        Trainer(replace(online(run, place), update=replace(run.update, critic=wide, begin_from=str(place))))
    for nothing, said in ((tmp_path / "none", "is no directory"), (place / "model", "holds no checkpoint")):
        with pytest.raises(ValueError, match=f"{said}: name .* of a run, as runs/RUN"):
            Trainer(replace(run, update=replace(run.update, begin_from=str(nothing))))
    cloned = saved(offline("bc"), tmp_path / "bc")
    with pytest.raises(ValueError, match="has no critic or target or value, which ImplicitQ could begin with"):
        Trainer(replace(run, update=replace(run.update, begin_from=str(cloned))))


def test_a_new_policy_is_advised_against(tmp_path):
    iql = offline("iql")
    alone = replace(iql, update=replace(iql.update, begin_from="runs/X"))
    assert any("a policy that knows nothing: policy.model=runs/X/model" in said for said in check(alone))
    iql.policy.load(0).save(tmp_path)
    assert check(replace(alone, policy=iql.policy.at(tmp_path))) == check(iql)


EXPLORES = Explore(first=0.4, last=0.1, over=100)


@pytest.mark.parametrize("name", ["residual", "td3", "dqn"])
def test_a_run_explores_from_its_start_and_goes_on_where_it_was(tmp_path, single_thread, name):
    run = acting(name)
    run = replace(run, update=replace(run.update, explore=EXPLORES))
    whole = Trainer(run)
    assert float(whole.policy.explore) == pytest.approx(0.4), "an evaluation before the first step has no other noise"
    whole.advance(), whole.advance()
    seen, cut = float(whole.policy.explore), whole.save(tmp_path, {})
    assert 0.1 <= seen < 0.4
    resumed = Trainer(run, cut)
    assert float(resumed.policy.explore) == seen, "before it is given its state too"
    whole.advance(), resumed.advance()
    assert differing(weights(resumed), weights(whole)) is None


@pytest.mark.parametrize("name", ["expo", "idql"])
def test_a_resumed_run_scores_proposals_by_the_critic_it_had(tmp_path, single_thread, name):
    run = acting("expo") if name == "expo" else offline("idql")
    whole = Trainer(run)
    first = weights(whole)["policy"]
    assert (
        differing({n: x for n, x in first.items() if n.startswith("judge.")}, judged(weights(whole)["target"])) is None
    )
    whole.advance(), whole.advance(), whole.advance()
    resumed = Trainer(run, whole.save(tmp_path, {}))
    resumed.begin()
    assert differing(weights(resumed), weights(whole)) is None
    assert differing(first, weights(whole)["policy"]) is not None


def judged(critic):
    return {f"judge.{name}": weight for name, weight in critic.items()}
