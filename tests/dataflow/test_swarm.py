"""Runs that share a directory: who trains on whose groups, what is believed, who is waited for, and that a killed one continues."""

import io
import os
import sys
import zipfile
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import made
import pytest
import torch

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "runtime")]
from killing import differing
from small import Shallow, read_once, small_run
from test_group_stores import fail, group

from gimbal.dataflow.replay import peers
from gimbal.dataflow.replay.peers import rescored, unjudged
from gimbal.dataflow.replay.swarm import Swarm, SwarmStore
from gimbal.objectives import TruncatedWeight
from gimbal.policies.token import Sampling, Tokens
from gimbal.records import Acted, Drop, Episode, Group, Task
from gimbal.rewards.base import AbstractReward
from gimbal.runtime import local
from gimbal.runtime.local import Trainer


def store(home, name="a", peers=("b",), **spec):
    return Swarm(directory=str(home), name=name, peers=peers, **{"patience": 0.0} | spec).start(0)


def reader(home, **spec):
    """Another run that reads of b; each has a directory of its own."""
    return store(home, f"reader-{len(list(home.iterdir()))}", **spec)


def believed(group):
    """A judge of whom every first rollout is right."""
    return replace(group, episodes=tuple(e.scored(float(n == 0), {}) for n, e in enumerate(group.episodes)))


def write(file, groups, run="another", round_=0):
    torch.save({"run": run, "round": round_, "groups": groups}, file)


def round_of(version, start=0):
    return [group(start + 10 * version + n, 1, 0, version=version) for n in range(4)]


def foreign(groups):
    return [g for g in groups if any(e.origin for e in g.episodes)]


def test_what_a_peer_wrote_in_the_rounds_before_is_taken_and_judged_anew(tmp_path):
    own, peer = store(tmp_path, taken=2), store(tmp_path, "b", ("a",), taken=2)
    for version in range(3):
        mine = own.join(round_of(version), version, believed)
        its = peer.join([group(20 * version + n, 0, 0, version=version) for n in range(4)], version, believed)
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
    file = tmp_path / "b" / "round_000000.pt"
    good = torch.load(file, weights_only=False)["groups"]
    broken = replace(good[0].episodes[0].last, behavior_S=torch.tensor([float("nan")]))
    bad = [
        replace(good[1], episodes=good[1].episodes[:1]),  # not whole
        replace(good[2], episodes=(replace(good[2].episodes[0], rows=(broken,)), good[2].episodes[1])),
        replace(good[3], index=3),
        "no group",
    ]
    write(file, [good[0], *bad])
    came = foreign(own.join(round_of(1), 1, believed))
    assert len(came) == 2 and own.metrics()["replay/malformed"] == 3
    assert foreign(reader(tmp_path).join(round_of(1), 1, lambda g: Drop("unscored"))) == []
    for text in (b"", b"not a file of torch", b"\x80\x04cos\nsystem\n."):
        file.write_bytes(text)
        assert foreign((found := reader(tmp_path)).join(round_of(1), 1, believed)) == []
        assert found.metrics()["replay/malformed"] == 1
    late = [replace(e, rows=(replace(e.last, version_S=torch.tensor([9])),)) for e in good[0].episodes]
    write(file, [replace(good[0], episodes=tuple(late))])
    assert foreign(reader(tmp_path).join(round_of(1), 1, believed)) == [], "of a version that was not there yet"


def test_groups_whose_scores_are_equal_are_left_out_and_no_peer_has_more_than_its_share(tmp_path):
    for name in "bc":
        store(tmp_path, name, ()).join(round_of(0, start=ord(name) - 90), 0, fail)
    own = store(tmp_path, peers=("b", "c"), taken=3)
    came = foreign(own.join(round_of(1), 1, believed))
    assert len(came) == 3 and max(Counter(g.episodes[0].origin for g in came).values()) == 2
    dull = reader(tmp_path, peers=("b", "c"))
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


def unmade(record, **fields):
    """A record as a file may hold it: its constructor never saw it."""
    found = object.__new__(type(record))
    vars(found).update(vars(record) | fields)
    return found


def changed(**fields):
    """A change to every row of a group."""

    def change(group):
        episodes = [unmade(e, rows=tuple(unmade(row, **fields) for row in e.rows)) for e in group.episodes]
        return unmade(group, episodes=tuple(episodes))

    return change


def tokens(**fields):
    return changed(decisions=unmade(Tokens.row([1], [2]), **fields))


def tasked(**fields):
    def change(group):
        task = unmade(group.task, **fields)
        return unmade(changed(task=task)(group), task=task)

    return change


NOT_WRITTEN_BY_A_RUN = {
    "ids that are no integers": tokens(ids_NL=torch.tensor([[1.0, 2.0]])),
    "ids below 0": tokens(ids_NL=torch.tensor([[1, -5]])),
    "a prompt beyond the row": tokens(prompt_N=torch.tensor([1000])),
    "images, which are paths": tokens(images_N=(("/etc/passwd",),)),
    "no sampling": changed(sampling=None),
    "greedy sampling": changed(sampling=Sampling(temperature=0.0)),
    "truncated sampling": changed(sampling=Sampling(top_k=3)),
    "sampling that no constructor saw": changed(sampling=unmade(Sampling(), temperature=-1.0)),
    "sampling with words": changed(sampling=unmade(Sampling(), stop="now")),
    "log-probabilities above 0": changed(behavior_S=torch.tensor([0.5])),
    "log-probabilities of nothing that is drawn": changed(behavior_S=torch.tensor([-1e30])),
    "log-probabilities that are integers": changed(behavior_S=torch.tensor([-1])),
    "log-probabilities in one number": changed(behavior_S=torch.zeros(1).expand(10**12)),
    "versions below 0": changed(version_S=torch.tensor([-(10**12)])),
    "versions to come": changed(version_S=torch.tensor([1])),
    "versions that are no integers": changed(version_S=torch.tensor([0.0])),
    "masks of numbers": changed(mask_S=torch.tensor([1])),
    "nothing drawn": changed(mask_S=torch.tensor([False])),
    "rewards that are none": changed(reward_S=torch.tensor([float("nan")])),
    "parts that there are not": changed(part_S=torch.tensor([77])),
    "turns below 0": changed(turn_S=torch.tensor([-1])),
    "an inclusion of 0": changed(inclusion=0.0),
    "no text": changed(text=None),
    "a role of several lines": changed(role="a\nb"),
    "a stop of its own": changed(stop="because"),
    "a task without columns": tasked(columns=None),
    "a task with an object": tasked(columns={"x": torch.ones(1)}),
    "an answer that is a number": tasked(answer=-3),
    "a prompt that cannot be written": tasked(prompt="\ud800"),
    "a source that is a list": tasked(source=["a"]),
    "an episode that is broken": lambda g: unmade(g, episodes=tuple(unmade(e, error="no") for e in g.episodes)),
    "a record without fields": lambda g: unmade(g, episodes=tuple(object.__new__(Episode) for _ in g.episodes)),
    "the same number twice": changed(sample=0),
}


@pytest.mark.parametrize("what", NOT_WRITTEN_BY_A_RUN)
def test_what_no_run_writes_is_left_out_and_counted(what, tmp_path):
    (tmp_path / "b").mkdir()
    file = tmp_path / "b" / "round_000000.pt"
    good = group(0, 1, 0)
    write(file, [NOT_WRITTEN_BY_A_RUN[what](good), good])
    own = store(tmp_path)
    assert len(foreign(own.join(round_of(1), 1, believed))) == 1
    assert own.metrics()["replay/malformed"] == 1


def test_a_fork_shares_what_it_says():
    long, other = Tokens.row([0], [1, 2, 3]), Tokens.row([0], [1, 9, 9])

    def forked(**fields):
        rows = [made.rollout(sample=0, decisions=long), made.rollout(sample=1, **{"decisions": long} | fields)]
        return unjudged(Group.of(0, made.TASK, rows), "b", 2, 0)

    drawn = torch.tensor([False, False, True])
    assert forked() is not None and forked(fork=(0, 2), mask_S=drawn) is not None
    assert forked(fork=(0, 1), decisions=other, mask_S=drawn) is not None
    assert forked(fork=(0, 2), decisions=other, mask_S=drawn) is None, "of another row"
    assert forked(fork=(0, 2)) is None, "it counts what the other row drew"
    assert forked(fork=(-1, 2), mask_S=drawn) is None


def test_what_no_other_run_reads_is_not_written(tmp_path):
    """Steps of an environment are of a kind that is not taken out of a file: one of them would make the whole round unreadable."""
    acts = (Acted(turn=0, calls=1, failed=0, seconds=0.1),)
    drawn = round_of(0)
    used = [replace(g, episodes=tuple(replace(e, acts=acts) for e in g.episodes), replies={"x": ("y",)}) for g in drawn]
    store(tmp_path, "b", ()).join(used, 0, fail)
    own = store(tmp_path)
    assert len(foreign(own.join(round_of(1), 1, believed))) == 4 and own.metrics()["replay/malformed"] == 0


def test_any_file_is_survived(tmp_path, monkeypatch):
    """What torch raises on bytes that it did not write: KeyError, IndexError, TypeError, RecursionError ..."""
    (tmp_path / "b").mkdir()
    file = tmp_path / "b" / "round_000000.pt"
    write(file, [group(0, 1, 0)])
    good = file.read_bytes()
    own, draw = store(tmp_path), Random(0)

    def read():
        before = own.counts["malformed"]
        found = own._read("b", 0, wait=False)
        assert bool(found) != (own.counts["malformed"] - before == 1)
        return found

    assert read()
    for raw in (
        b"\x80\x02]q\x00h\x07h\x09e.",
        "h\xe4llo\n".encode() * 10,
        b"\x80\x02" + b"(" * 100_000 + b"t.",
        b"PK\x03\x04" + bytes(100),
        b"<html>",
        *(good[: draw.randrange(len(good))] for _ in range(20)),
    ):
        file.write_bytes(raw)
        assert not read()
    for _ in range(60):
        spoilt = bytearray(good)
        spoilt[draw.randrange(len(good))] ^= 1 << draw.randrange(8)
        file.write_bytes(spoilt)
        read()
    for content in ([group(0, 1, 0)], {"run": 3, "round": 0, "groups": []}, {"run": "x", "round": 1, "groups": []}, {}):
        torch.save(content, file)
        assert not read(), content
    write(file, [group(0, 1, 0)], run=own.own.run)
    assert not read(), "a peer is no run itself"
    file.write_bytes(good)
    assert read()
    monkeypatch.setattr(peers, "MOST_BYTES", len(good) - 1)
    assert not read(), "larger than any round"
    monkeypatch.undo()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as one, zipfile.ZipFile(file) as other:
        for name in other.namelist():
            one.writestr(name, other.read(name))
    file.write_bytes(packed.getvalue())
    assert not read(), "it may be a thousand times as large as it looks"


@pytest.mark.parametrize("kind", ["pipe", "directory", "link to nowhere", "device"])
def test_what_is_no_file_is_not_waited_for(kind, tmp_path):
    (tmp_path / "b").mkdir()
    file = tmp_path / "b" / "round_000000.pt"
    if kind == "pipe":
        os.mkfifo(file)
    elif kind == "directory":
        file.mkdir()
    else:
        file.symlink_to("/dev/zero" if kind == "device" else "nowhere")
    own = store(tmp_path, patience=1e9)
    assert foreign(own.join(round_of(1), 1, believed)) == [] and own.metrics()["replay/malformed"] == 1


def test_a_pipe_in_the_place_of_its_mark_is_told(tmp_path):
    (tmp_path / "a").mkdir()
    os.mkfifo(tmp_path / "a" / "run.json")
    with pytest.raises(ValueError, match=r"run\.json is no regular file"):
        store(tmp_path).claim(None, None)


def test_a_task_on_which_the_runs_rewards_raise_is_left_out(tmp_path):
    store(tmp_path, "b", ()).join(round_of(0), 0, fail)

    def raises(group):
        raise KeyError(group.task.answer)

    own = store(tmp_path)
    assert foreign(own.join(round_of(1), 1, raises)) == [] and own.metrics()["replay/unjudged"] == 4
    half = reader(tmp_path)
    assert foreign(half.join(round_of(1), 1, lambda g: replace(g, episodes=believed(g).episodes[:1]))) == []
    assert half.metrics()["replay/unjudged"] == 4, "a score for each, or none"


@dataclass(frozen=True, kw_only=True)
class Said(AbstractReward):
    """Whether a text is the answer."""

    name: str = "said"

    def __call__(self, group):
        return [float(row.text == group.task.answer) for row in group.rollouts]


def test_a_group_is_read_by_the_runs_own_model():
    policy = read_once()
    size, ids = (
        policy.model.get_input_embeddings().weight.shape[0],
        policy.tokenizer.encode("12", add_special_tokens=False),
    )
    task = Task(id="t", answer="12")
    run = small_run(store=Swarm(directory="d", peers=("b",)), sampling=Sampling(max_length=len(ids) + 1))

    def read(said, version=1, **fields):
        rows_of = [
            made.rollout(task, sample=n, decisions=Tokens.row([5], x), text="12", **fields) for n, x in enumerate(said)
        ]
        return rescored(run, policy, [Said()], version, Group.of(0, task, rows_of))

    fair = read([ids, ids[:1]])
    assert [r.text for r in fair.rollouts] == ["12", policy.decode(ids[:1])] and fair.score_G.tolist() == [1, 0]
    assert read([ids, [size]]).reason == "malformed" and read([ids, [10**6]]).reason == "malformed"
    rival_S = torch.full((len(ids),), size)
    assert read([ids, ids], rival_S=rival_S).reason == "malformed"
    assert read([ids, [*ids, *ids, *ids]]).reason == "overlong"
    assert read([ids, ids], version=run.store.most_age(0)).score_G.tolist() == [1, 1]
    assert read([ids, ids], version=run.store.most_age(0) + 1).reason == "expired"
    wide = replace(run, sampling=Sampling(max_length=10**6))
    row = made.rollout(task, decisions=Tokens.row([5], [6] * policy.context))
    assert rescored(wide, policy, [Said()], 0, Group.of(0, task, [row])).reason == "overlong", (
        "than the model's context"
    )


def test_a_directory_is_that_of_one_run(tmp_path):
    swarm, home = tmp_path / "swarm", tmp_path / "run"
    first = store(swarm)
    first.claim(None, home)
    first.join(round_of(0), 0, believed)
    saved = first.state_dict()
    for other_home in (None, tmp_path / "other"):
        with pytest.raises(ValueError, match=r"holds rounds of another run.*store\.name=NAME.*rm -r"):
            store(swarm).claim(None, other_home)
    late = store(swarm)
    with pytest.raises(ValueError, match="holds rounds of another run"):
        late.join(round_of(0), 0, believed)  # both had found it empty
    resumed = store(swarm)
    resumed.claim(saved, tmp_path / "moved")
    resumed.load_state_dict(saved)
    resumed.join(round_of(1), 1, believed)
    again = store(swarm)  # killed before its first checkpoint, it begins again where it was
    again.claim(None, home)
    again.join(round_of(0), 0, believed)
    assert [file.name for file in sorted((swarm / "a").iterdir())] == ["round_000000.pt", "run.json"], (
        "the old are gone"
    )
    with pytest.raises(ValueError, match="holds rounds of another run"):
        store(swarm).claim(saved, home.with_name("third"))
    (swarm / "c").mkdir()
    store(swarm, "c").claim(None, None)
    (swarm / "file").write_text("")
    with pytest.raises(ValueError, match=r"no directory that it may write to: store\.directory=DIRECTORY"):
        store(swarm, "file").claim(None, None)
    (swarm / "a" / "run.json").write_text("{")
    with pytest.raises(ValueError, match="holds rounds of another run"):
        store(swarm).claim(None, home)
    older = {"counts": {}, "pooled": 0}  # of a checkpoint from before
    (swarm / "a" / "run.json").unlink()
    store(swarm).claim(older, home)


def test_a_run_claims_its_directory_before_its_model_is_loaded(tmp_path, monkeypatch):
    spec = Swarm(directory=str(tmp_path / "swarm"), peers=("b",), patience=0.0)
    store(tmp_path / "swarm").join(round_of(0), 0, believed)
    monkeypatch.setattr(Shallow, "load", None)
    with pytest.raises(ValueError, match="holds rounds of another run"):
        local.run_local(small_run(store=spec, correction=TruncatedWeight()), tmp_path / "run")
    claimed = []
    monkeypatch.setattr(SwarmStore, "claim", lambda self, saved, home: claimed.append((saved, home)))
    with pytest.raises(TypeError):
        local.run_local(small_run(store=spec, correction=TruncatedWeight()), tmp_path / "run")
    assert claimed == [(None, tmp_path / "run")], "by which a run that begins again is known"


def test_a_peer_that_is_another_run_than_before_is_told(tmp_path):
    (tmp_path / "b").mkdir()
    for round_, run in enumerate(("one", "one", "two")):
        write(tmp_path / "b" / f"round_{round_:06d}.pt", [group(0, 1, 0)], run=run, round_=round_)
    own, told = store(tmp_path), []
    for version in (1, 2, 3):
        own.join(round_of(version), version, believed)
        told.append(own.metrics()["replay/changed"])
        saved = own.state_dict()
        own.load_state_dict(saved)
    assert told == [0, 0, 1]


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", " ", "a b", "a\n", "a\0", "x" * 300, "\ud800"])
def test_a_name_is_that_of_a_directory(name):
    for spec in ({"name": name, "peers": ("b",)}, {"name": "a", "peers": (name,)}):
        with pytest.raises(ValueError, match="name of its own, once"):
            Swarm(**spec)


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match="name of its own, once"):
        Swarm(peers=("b", "b"))
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
