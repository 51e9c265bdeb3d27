"""gimbal record: a run's policy plays, and what it did is data that runs learn from."""

import pytest

pytest.importorskip("h5py")

from gimbal.cli import main
from gimbal.environments.minari import Minari


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    home = tmp_path_factory.mktemp("runs")
    words = [
        "td3",
        "steps=2",
        "held_out=none",
        "checkpoint_every=1",
        "policy.hidden=(8,)",
        "--name",
        "two",
        "--runs",
        str(home),
    ]
    assert main(["train", *words]) == 0
    return home


@pytest.mark.slow
def test_a_run_is_recorded_and_learned_from(runs, tmp_path, capsys):
    words = [
        "record",
        "two",
        "gimbal/pendulum/random-v0",
        str(tmp_path / "mixed"),
        "--episodes",
        "3",
        "--runs",
        str(runs),
    ]
    assert main(words) == 0
    assert "103 episodes, 20600 steps of Pendulum-v1; returns -1" in capsys.readouterr().out
    data = Minari(dataset=str(tmp_path / "mixed")).recording
    assert data.source == "Pendulum-v1" and data.interface == "3 observations, 1 real actions"
    assert not any(episode.terminated for episode in data.episodes) and {e.length for e in data.episodes} == {200}
    assert (
        main(
            [
                "train",
                "bc",
                f"tasks={tmp_path / 'mixed'}",
                "steps=1",
                "store.moves=2",
                "held_out=none",
                "--runs",
                str(tmp_path),
            ]
        )
        == 0
    )


def test_the_same_seed_records_the_same(runs, tmp_path):
    for name in ("one", "other"):
        assert main(["record", "two", str(tmp_path / name), "--episodes", "2", "--runs", str(runs)]) == 0
    one, other = (Minari(dataset=str(tmp_path / name)).recording.episodes for name in ("one", "other"))
    assert all((a.action_SA == b.action_SA).all() and a.seed == b.seed for a, b in zip(one, other, strict=True))
    assert main(["record", "two", str(tmp_path / "else"), "--episodes", "2", "--seed", "1", "--runs", str(runs)]) == 0
    assert (Minari(dataset=str(tmp_path / "else")).recording.episodes[0].action_SA != one[0].action_SA).any()


def test_actions_are_recorded_as_the_environment_took_them(tmp_path):
    """A Gaussian draws beyond the bounds: data that say so would teach a critic of actions that nobody took."""
    words = ["pendulum", "steps=1", "held_out=none", "prompts_per_step=1", "minibatches=1", "epochs=1", "log_std=1"]
    assert main(["train", *words, "--name", "wide", "--runs", str(tmp_path)]) == 0
    assert main(["record", "wide", str(tmp_path / "set"), "--episodes", "2", "--runs", str(tmp_path)]) == 0
    for episode in Minari(dataset=str(tmp_path / "set")).recording.episodes:
        assert abs(episode.action_SA).max() == 2 and (abs(episode.action_SA) == 2).mean() > 0.2


def test_choices_are_recorded_as_they_are(tmp_path):
    words = ["cartpole", "steps=1", "held_out=none", "prompts_per_step=1", "minibatches=1", "epochs=1"]
    assert main(["train", *words, "--name", "poles", "--runs", str(tmp_path)]) == 0
    assert main(["record", "poles", str(tmp_path / "set"), "--episodes", "2", "--runs", str(tmp_path)]) == 0
    data = Minari(dataset=str(tmp_path / "set")).recording
    assert data.choices == 2 and {int(a) for e in data.episodes for a in e.action_SA.ravel()} == {0, 1}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["two"], "and a new directory"),
        (["two", "DIR", "--episodes", "none"], "--episodes is none"),
        (["two", "DIR", "--episodes", "0"], "1 or above"),
        (["two", "DIR", "--temperature", "nan"], "--temperature is nan"),
        (["two", "gimbal/maze/stitch-v0", "DIR", "--episodes", "1"], "are not of one environment"),
        (["nothing", "DIR"], "nothing"),
        (["two", "DIR", "seed=1"], "takes no key seed"),
    ],
)
def test_what_cannot_be_recorded_is_refused(words, said, runs, tmp_path, capsys):
    words = [word.replace("DIR", str(tmp_path / "new")) for word in words]
    assert main(["record", *words, "--runs", str(runs)]) == 2
    assert said in capsys.readouterr().err and not (tmp_path / "new" / "data").exists()
