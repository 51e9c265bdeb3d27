"""Runs that share a directory: who trains on whose groups, what is believed, who is waited for, and that a killed one continues."""

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "runtime")]
from killing import differing
from small import small_run
from test_group_stores import fail, group

from gimbal.dataflow.replay.swarm import Swarm, SwarmStore
from gimbal.objectives import TruncatedWeight
from gimbal.records import Drop
from gimbal.runtime.local import Trainer


def store(home, name="a", peers=("b",), **spec):
    return Swarm(directory=str(home), name=name, peers=peers, **{"patience": 0.0} | spec).start(0)


def believed(group):
    """A judge of whom every first rollout is right."""
    return replace(group, episodes=tuple(e.scored(float(n == 0), {}) for n, e in enumerate(group.episodes)))


def round_of(version, start=0):
    return [group(start + 10 * version + n, 1, 0, version=version) for n in range(4)]


def foreign(groups):
    return [g for g in groups if any(e.origin for e in g.episodes)]


def test_what_a_peer_wrote_in_the_rounds_before_is_taken_and_judged_anew(tmp_path):
    own, peer = store(tmp_path, taken=2), store(tmp_path, "b", ("a",), taken=2)
    for version in range(3):
        mine = own.join(round_of(version), version, believed)
        its = peer.join([group(100 * version + n, 0, 0, version=version) for n in range(4)], version, believed)
        assert [g.index for g in mine[:4]] == [10 * version + n for n in range(4)]
        assert len(foreign(mine)) == len(foreign(its)) == (2 if version else 0)
        for g in foreign(mine):
            assert [e.origin for e in g.episodes] == ["b", "b"] and [e.earned for e in g.episodes] == [1, 0], (
                "not as it said"
            )
            assert version - g.episodes[0].oldest == 1 and g.index < 0
            assert float(g.episodes[0].last.behavior_S[0]) != 0, "with the log-probability that its sampler recorded"
    assert own.metrics()["replay/used"] == 4 and own.metrics()["replay/absent"] == 0


def test_who_lies_or_writes_nonsense_does_no_harm(tmp_path):
    store(tmp_path, "b", ()).join(round_of(0), 0, fail)
    own = store(tmp_path)
    file = next((tmp_path / "b").iterdir())
    good = torch.load(file, weights_only=False)
    broken = replace(good[0].episodes[0].last, behavior_S=torch.tensor([float("nan")]))
    bad = [
        replace(good[1], episodes=good[1].episodes[:1]),  # not whole
        replace(good[2], episodes=(replace(good[2].episodes[0], rows=(broken,)), good[2].episodes[1])),
        replace(good[3], index=3),
        "no group",
    ]
    torch.save([good[0], *bad], file)
    came = foreign(own.join(round_of(1), 1, believed))
    assert len(came) == 2 and own.metrics()["replay/malformed"] == 3
    assert foreign(store(tmp_path).join(round_of(1), 1, lambda g: Drop("unscored"))) == []
    for text in (b"", b"not a file of torch", b"\x80\x04cos\nsystem\n."):
        file.write_bytes(text)
        assert foreign((found := store(tmp_path)).join(round_of(1), 1, believed)) == []
        assert found.metrics()["replay/malformed"] == 1
    late = [replace(e, rows=(replace(e.last, version_S=torch.tensor([9])),)) for e in good[0].episodes]
    torch.save([replace(good[0], episodes=tuple(late))], file)
    assert foreign(store(tmp_path).join(round_of(1), 1, believed)) == [], "of a version that was not there yet"


def test_groups_whose_scores_are_equal_are_left_out_and_no_peer_has_more_than_its_share(tmp_path):
    for name in "bc":
        store(tmp_path, name, ()).join(round_of(0, start=ord(name)), 0, fail)
    own = store(tmp_path, peers=("b", "c"), taken=3)
    came = foreign(own.join(round_of(1), 1, believed))
    assert len(came) == 3 and max(Counter(g.episodes[0].origin for g in came).values()) == 2
    dull = store(tmp_path, peers=("b", "c"))
    assert (
        foreign(dull.join(round_of(1), 1, lambda g: replace(g, episodes=tuple(e.scored(1.0, {}) for e in g.episodes))))
        == []
    )
    assert dull.metrics()["replay/all_equal"] == 8


def test_a_peer_is_waited_for_and_then_left_out(tmp_path):
    now = [0.0]

    def sleep(seconds):
        now[0] += seconds
        if now[0] >= 3 and not (tmp_path / "b" / "round_000000.pt").exists():
            store(tmp_path, "b", ()).join(round_of(0), 0, fail)

    spec = Swarm(directory=str(tmp_path), peers=("b",), patience=5.0)
    waiting = SwarmStore(spec, 0, clock=lambda: now[0], sleep=sleep)
    assert len(foreign(waiting.join(round_of(1), 1, believed))) == 4 and 3 <= now[0] < 3.5
    assert foreign(waiting.join(round_of(2), 2, believed)) == [] and now[0] >= 8
    assert waiting.metrics()["replay/absent"] == 1


@pytest.mark.parametrize("spec", [{"taken": 0}, {"peers": ()}, {"directory": ""}])
def test_alone_it_is_isolated_training_and_files_are_bounded(tmp_path, spec):
    alone = Swarm(**{"directory": str(tmp_path), "peers": ("b",), "keep": 2, "patience": 0.0} | spec).start(0)
    for version in range(5):
        assert foreign(alone.join(round_of(version), version, fail)) == []
    files = sorted(file.name for file in tmp_path.rglob("*.pt"))
    assert files == ([] if spec.get("directory") == "" else ["round_000003.pt", "round_000004.pt"])
    assert alone.spec.most_age(1) == 1


def test_bad_settings_are_refused():
    for wrong, said in (
        ({"window": 0}, "at least 1 round"),
        ({"name": "b"}, "name of its own"),
        ({"taken": -1}, "0 or above"),
    ):
        with pytest.raises(ValueError, match=said):
            Swarm(peers=("b",), **wrong)


@pytest.mark.slow
def test_two_runs_share_and_one_that_is_stopped_continues_bit_for_bit(tmp_path):
    def run(name, peer):
        spec = Swarm(directory=str(tmp_path / "swarm"), name=name, peers=(peer,), taken=2, patience=0.0)
        return small_run(store=spec, correction=TruncatedWeight(), seed=ord(name), max_staleness=1)

    def figures(metrics):
        return {name: x for name, x in metrics.items() if not name.startswith(("time/", "perf/"))}

    runs = {"a": run("a", "b"), "b": run("b", "a")}
    trainers = {name: Trainer(r) for name, r in runs.items()}
    steps = {"a": [], "b": []}
    for step in range(4):
        for name, trainer in trainers.items():
            metrics, groups, batch = trainer.advance()
            steps[name].append(figures(metrics))
            assert metrics["staleness/max"] <= runs[name].store.most_age(1) and batch.shape[0] == 4 * len(groups)
            assert bool(foreign(groups)) == (step > 0)
            if (name, step) == ("a", 1):
                saved = trainer.save(tmp_path / "run", {})
    ended = {name: trainer.learner.policy.state_dict() for name, trainer in trainers.items()}
    resumed = Trainer(runs["a"], saved)
    assert [figures(resumed.advance()[0]) for _ in range(2)] == steps["a"][2:]
    assert differing(dict(resumed.learner.policy.state_dict()), dict(ended["a"])) is None
    for trainer in (*trainers.values(), resumed):
        trainer.close()
