"""Few steps of few decisions: what chance explains is no sign; the same figures of many decisions are one."""

import json

import pytest
from test_doctor import FLAT, TOKENS, causes, record, relabel  # noqa: F401

from gimbal import cli
from gimbal.report.doctor import diagnose

FEW = TOKENS | {"prompts_per_step": 2, "num_generations": 2}  # 80 decisions a step


@pytest.mark.parametrize(
    "figures",
    [
        {"cause__discrepancy": -1.05e-3},  # a mean of signed log-ratios strays
        {"mismatch__k3": 2e-3, "mismatch__logp_diff_max": 1.0},  # one decision of 80 makes this
    ],
)
def test_a_mismatch_that_a_few_decisions_make(record, figures):  # noqa: F811
    assert causes(record(**figures, steps=4, run=FEW)) == []
    assert causes(record(**figures, steps=4, run=TOKENS)) == ["mismatch"]


@pytest.mark.parametrize("norms", [[0.3, 0.4, 0.0, 0.3, 0.0], [0.3, 0.4, 0.0, 0.0]])
def test_a_gradient_is_dead_only_where_enough_groups_gave_none(record, norms):  # noqa: F811
    directory = record(steps=len(norms), run=FEW)
    relabel(directory, grad_norm=norms)
    assert causes(directory) == [], "half of the steps, or four groups"
    directory = record(steps=len(norms), run=TOKENS)
    relabel(directory, grad_norm=norms)
    assert causes(directory) == (["dead gradient"] if norms[3] == 0 else [])


@pytest.mark.parametrize("steps", [2, 12])
def test_rollouts_that_are_cut_off_are_named_however_short_the_run(record, steps):  # noqa: F811
    cut = record(length__truncated_frac=0.85, pass_rate=0.1, steps=steps)
    sign = next(sign for sign in diagnose(cut).causes if sign.name == "max_length too small")
    assert sign.name == "max_length too small" and sign.evidence.startswith(
        "85% of rollouts are cut off at max_length=64"
    )
    assert sign.experiment.endswith("sampling.max_length=256")
    assert "max_length too small" in causes(record(length__truncated_frac=(0.98, 0.4), pass_rate=0.1, steps=steps))
    assert causes(record(length__truncated_frac=(0.98, 0.0), pass_rate=0.1, steps=12)) == [], "it learns to end"
    assert causes(record(length__truncated_frac=0.75, pass_rate=0.1, steps=2)) == []
    assert causes(record(length__truncated_frac=0.85, pass_rate=0.3, steps=steps)) == [], (
        "being cut off keeps none from passing"
    )


@pytest.mark.parametrize(("sampled", "greedy", "named"), [(0.1, 0.9, True), (0.6, 0.4, True), (0.4, 0.4, False)])
def test_an_evaluation_without_answers_is_named(record, sampled, greedy, named):  # noqa: F811
    directory = record(exam=(0.3, 0.3), steps=3)
    ended = json.loads((directory / "summary.json").read_text())
    for begin, command in ((0.0, "learning_rate=3e-05"), (0.8, f"gimbal report {directory}")):
        ended["before"] |= {"eval/score": 0.3, "eval/empty_frac": begin, "eval/greedy_empty_frac": begin}
        ended["after"] |= {"eval/score": 0.1, "eval/empty_frac": sampled, "eval/greedy_empty_frac": greedy}
        ended["after"]["eval/pass@1"] = 0.1
        (directory / "summary.json").write_text(json.dumps(ended))
        signs = [sign for sign in diagnose(directory).causes if sign.name == "empty answers"]
        assert bool(signs) == named
        assert not named or (
            signs[0].experiment.endswith(command) and f"{greedy:.0%} of the greedy" in signs[0].evidence
        )
        if named and begin:  # prompts may be text or chats, and max_length may be what cuts them
            assert "only whole beyond max_length=64" in signs[0].evidence and "of a chat that" in signs[0].evidence
    ended["after"]["eval/pass@1"] = 0.95
    (directory / "summary.json").write_text(json.dumps(ended))
    assert "empty answers" not in causes(directory), "no answer is the right one"


def test_why_a_run_stopped_comes_first_whatever_else_is_found(record):  # noqa: F811
    ill = FLAT | {"samples__doubled": 1.0, "sync__moved": 1e-4}
    assert causes(record(**ill, stopped="CheckpointError"))[0] == "stopped by an error"
    said = diagnose(record(**ill, stopped="CheckpointError", exam=(0.47, 0.06))).text()
    assert "may explain the rest" not in said and said.endswith(f"--resume {record()}")
    for error, name in (("NotFinite", "not finite"), ("Starved", "filter starvation"), ("NotDelivered", "no delivery")):
        assert causes(record(**ill, stopped=error))[0] == name
        assert "stopped by an error" not in causes(record(**ill, stopped=error))


def test_one_step_does_not_say_that_the_rate_is_too_low(record):  # noqa: F811
    assert causes(record(steps=1, stopped="CheckpointError", sync__moved=1e-4)) == ["stopped by an error"]
    assert "learning rate too low" in causes(record(steps=2, stopped="CheckpointError", sync__moved=1e-4))


def test_an_unfinished_run_says_so_and_whether_it_can_be_resumed(record, capsys):  # noqa: F811
    import hashlib

    directory = record(steps=2, run=TOKENS | {"steps": 3, "checkpoint_every": 1})

    def said():
        assert cli.main(["doctor", str(directory)]) == 0
        return capsys.readouterr().out

    assert "metrics.jsonl has 2 steps on record, but there is no checkpoint to continue from" in said()
    assert "  unfinished (2 of 3 steps)\n  cannot be resumed: " in said()
    place = directory / "checkpoints" / "step_000002"
    (place / "model").mkdir(parents=True)
    files = {"state.pt": b"state", "model/config.json": b"{}"}
    for name, content in files.items():
        (place / name).write_bytes(content)
    logs = {}
    for name in ("metrics.jsonl", "rollouts.jsonl", "schedule.jsonl"):
        lines = (directory / name).read_bytes() if (directory / name).is_file() else b""
        logs[name] = {"bytes": len(lines), "digest": hashlib.blake2b(lines, digest_size=16).hexdigest()}
    digests = {name: hashlib.blake2b(content).hexdigest() for name, content in files.items()}
    (place / "manifest.json").write_text(json.dumps({"step": 2, "files": digests, "logs": logs}))
    assert f": nothing wrong\n  unfinished (2 of 3 steps); gimbal train --resume {directory} goes on\n" in said()
    (place / "model" / "config.json").write_text("{} ")
    assert "cannot be resumed: " in said() and "config.json differs from what was written" in said()
    (place / "model" / "config.json").unlink()
    assert "is not a complete checkpoint" in said()
