"""Supervised training is evaluated by its loss on held-out rows: by hand, before and after, and the best model by it."""

import json
import math
from pathlib import Path

import pytest
import torch

from gimbal import api, cli
from gimbal.runtime.directories import find_run
from gimbal.runtime.evaluate import error_of

ROWS = [{"prompt": f"{a} + 2 =", "completion": f" {a + 2}"} for a in range(6)]
PAIRS = [{"prompt": f"{a} + 2 =", "chosen": f" {a + 2}", "rejected": f" {a}"} for a in range(6)]


def train(tmp_path, recipe, rows, *words):
    for name, some in (("rows", rows[:4]), ("held", rows[4:])):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in some))
    words = ["tasks=rows.jsonl", "held_out=held.jsonl", "prompts_per_step=4", "threads=1", "--name", recipe, *words]
    return cli.main(["train", recipe, *words])


@pytest.mark.slow
def test_sft_reports_the_loss_of_its_held_out_rows(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert train(tmp_path, "sft", ROWS, "steps=2", "held_out.every=1", "held_out.save_best=loss") == 0, (
        capsys.readouterr().err
    )
    summary = json.loads(Path("runs/sft/summary.json").read_text())
    rows = [json.loads(line) for line in Path("runs/sft/metrics.jsonl").read_text().splitlines()]
    losses = [summary["before"]["eval/loss"], *(row["eval/loss"] for row in rows)]
    assert losses[2] < losses[0] and summary["after"] == {"eval/loss": losses[2]}
    # By hand: cross entropy of the answers and of the token that ends each, over all tokens of both rows.
    policy = find_run("sft") and api.to_evaluate("gimbal-tiny", "sft", Path("runs")).policy.load(0)
    nll = []
    for row in ROWS[4:]:
        asked = policy.tokenizer(row["prompt"])["input_ids"]
        ids = asked + policy.tokenizer(row["completion"])["input_ids"] + [policy.end_ids[0]]
        with torch.no_grad():
            logprob_LV = policy.model(torch.tensor([ids])).logits[0].log_softmax(-1)
        nll += [-float(logprob_LV[place - 1, ids[place]]) for place in range(len(asked), len(ids))]
    assert losses[0] == pytest.approx(sum(nll) / len(nll), rel=1e-4)
    best = json.loads(Path("runs/sft/best/evaluation.json").read_text())
    assert best["metric"] == "eval/loss" and best["value"] == min(losses)
    assert cli.main(["eval", "sft"]) == 2
    assert "this evaluation is the loss on held-out rows" in capsys.readouterr().err


@pytest.mark.slow
def test_dpo_reports_loss_and_accuracy_of_held_out_pairs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert train(tmp_path, "dpo", PAIRS, "steps=2", "learning_rate=1e-3") == 0, capsys.readouterr().err
    summary = json.loads(Path("runs/dpo/summary.json").read_text())
    assert summary["before"]["eval/loss"] == pytest.approx(math.log(2)), "the policy is the reference"
    assert (
        summary["before"]["eval/pair/accuracy"] == pytest.approx(0.5)
        and 0 <= summary["after"]["eval/pair/accuracy"] <= 1
    )
    assert summary["after"]["eval/loss"] != summary["before"]["eval/loss"]


def test_the_error_of_a_loss_is_what_rows_differ_by_beside_their_length():
    lengths = [3, 5, 9, 4, 8, 2, 7, 6]
    total = sum(lengths)
    assert error_of([1.5 * n / total for n in lengths], lengths) == pytest.approx(0, abs=1e-9)
    assert error_of([0.1] * 7, [1] * 7) is None
    parts = [value / 8 for value in (1.0, 2.0) * 4]  # rows of one length: s / sqrt(n), with s^2 by n - 1
    assert error_of(parts, [4] * 8) == pytest.approx((8 * 0.25 / 7 / 8) ** 0.5)
    assert error_of(parts, [4] * 7 + [120]) is None, "the long one alone fixes the line, and its own noise is unknown"
