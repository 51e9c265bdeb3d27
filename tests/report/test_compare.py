"""Runs compared: who is grouped with whom, what is refused, and what the verdict says, on run directories with known contents."""

import json
import math
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
import yaml

from gimbal import api
from gimbal.report.doctor import diagnose
from gimbal.report.files import JsonLines, Summary

EXAM = {"tasks": {"class": "Sums", "seed": 7}, "samples": 4, "every": 0, "engine": None, "rewards": None}


def write(directory, *, seed=0, rate=0.1, final=0.9, steps=12, tokens=100, exam=EXAM, ended=True, every=None, **fields):
    """A finished run whose pass rate rises by ``rate`` a step, ``tokens`` tokens and 2 seconds each."""
    directory.mkdir(parents=True)
    held_out = exam if every is None else {**exam, "every": every}
    run = {
        "tasks": {"class": "Sums", "seed": 1},
        "objective": {"class": "Clip", "clip": 0.2},
        "steps": steps,
        "seed": seed,
    }
    run |= {"threads": seed, "held_out": held_out, "rewards": [{"class": "Right", "weight": 1.0}], **fields}
    (directory / "recipe.yaml").write_text(yaml.dump({"recipe": "grpo", "run": run}))
    lines = JsonLines(directory / "metrics.jsonl")
    for step in range(1, steps + 1):
        row = {
            "step": step,
            "tokens": tokens * step,
            "time/step": 2.0,
            "pass_rate": min(1.0, rate * step),
            "reward/mean": rate * step,
        }
        if every and step % every == 0:
            row["eval/pass@1"] = min(1.0, rate * step)
        lines.append(row)
    if ended:
        after = {} if exam is None else {"eval/pass@1": final, "eval/score": final}
        summary = Summary(
            recipe="grpo",
            seed=seed,
            steps=steps,
            seconds_training=1.0,
            tokens_generated=1,
            before=dict.fromkeys(after, 0.0),
            after=after,
            max_age=0,
            mean_discrepancy=0.0,
            peak_memory_mb=1.0,
        )
        summary.save(directory / "summary.json")
    return directory


def arm(root, name, rates, finals, **fields):
    for seed, (rate, final) in enumerate(zip(rates, finals, strict=True)):
        write(root / f"{name}-s{seed}", seed=seed, rate=rate, final=final, **fields)


FAST, SLOW = [0.2, 0.21, 0.19, 0.22, 0.2], [0.1, 0.11, 0.1, 0.09, 0.1]
ALIKE, WORSE = [0.9, 0.91, 0.89, 0.92, 0.88], [0.5, 0.52, 0.51, 0.49, 0.53]
OTHER = {"objective": {"class": "Clip", "clip": 0.3}}


def test_a_faster_arm_of_equal_end(tmp_path):
    arm(tmp_path, "fast", FAST, ALIKE)
    arm(tmp_path, "slow", SLOW, ALIKE[::-1], **OTHER)
    found = api.compare([tmp_path / "fast-s*", tmp_path / "slow-s*"], threshold=0.8)
    fast, slow = found.arms
    # fast: the mean of 4 steps reaches 0.8 at step 6 (5.5 for 0.2), slow at 9 or 10.
    assert fast.tokens.times == [[600.0, 600.0, 600.0, 600.0, 600.0]] or fast.tokens.times[0][0] == 600.0
    assert slow.tokens.times[0][0] == 1000.0 and slow.seconds.times[0][0] == 20.0
    (pair,) = found.pairs
    assert pair.tokens.value == pytest.approx(fast.tokens.mean.value / slow.tokens.mean.value)
    assert pair.tokens.low <= pair.tokens.value <= pair.tokens.high < 0.7
    assert (pair.tokens_differ, pair.differ) == (True, False) and pair.improvement.value == 0.5
    assert re.fullmatch(
        r"fast reaches 0.8 in 0\.\d\dx \[0\.\d\d, 0\.\d\d\] the tokens of slow; "
        r"no difference shown in final pass@1: 0.90 \[0.8\d, 0.9\d\] and 0.90 \[0.8\d, 0.9\d\]\.",
        found.verdict,
    )
    assert [a.settings for a in found.arms] == [{"objective.clip": 0.2}, {"objective.clip": 0.3}]


def test_what_was_drawn_has_the_unit_of_its_family(tmp_path):
    for place in ("a", "b"):
        directory = write(tmp_path / place, steps=12, seed=place == "b")
        text = (directory / "metrics.jsonl").read_text()
        (directory / "metrics.jsonl").write_text(text.replace('"tokens"', '"denoising_steps"'))
    found = api.compare([tmp_path])
    assert found.unit == "denoising steps" and "after" in found.verdict and "denoising steps (" in found.verdict
    assert "denoising steps to" in found.text and "tokens" not in found.text and "tokens" not in found.svg
    (directory / "metrics.jsonl").write_text(text)
    assert api.compare([tmp_path]).unit == "decisions"


def test_a_better_end_is_called_better_whichever_comes_first(tmp_path):
    arm(tmp_path, "good", SLOW, ALIKE)
    arm(tmp_path, "bad", SLOW, WORSE, **OTHER)
    one = api.compare([tmp_path / "good-*", tmp_path / "bad-*"])
    assert "final pass@1 of good is higher than that of bad: 0.90" in one.verdict and one.pairs[0].p == pytest.approx(
        2 / 252
    )
    assert one.pairs[0].improvement.value == 1.0 and one.pairs[0].difference.value == pytest.approx(0.39, abs=0.01)
    other = api.compare({"bad": tmp_path / "bad-*", "good": tmp_path / "good-*"})
    assert "final pass@1 of bad is lower than that of good: 0.51" in other.verdict


def test_the_threshold_by_default_is_one_that_all_reach(tmp_path):
    arm(tmp_path, "a", [0.05, 0.06], [0.6, 0.6])  # the slowest's last 4 steps have a mean of 0.525
    arm(tmp_path, "b", [0.1, 0.1], [0.9, 0.9], **OTHER)
    found = api.compare([tmp_path])
    assert found.thresholds == [0.52] and [a.tokens.reached for a in found.arms] == [2, 2]


def test_runs_that_never_arrive_are_told_and_bound_the_horizon(tmp_path):
    arm(tmp_path, "a", [0.1] * 5, ALIKE, steps=20)  # 0.9 after 11 steps (its last 4 having a mean of 0.95)
    arm(tmp_path, "b", [0.1, 0.1, 0.02, 0.02, 0.02], ALIKE, **OTHER)
    found = api.compare([tmp_path], threshold=0.9)
    a, b = found.arms
    assert (a.tokens.reached, b.tokens.reached, found.horizon) == (5, 2, [1200.0])
    assert "a reaches 0.9 in 5 of 5 runs and b reaches 0.9 in 2 of 5 runs" in found.verdict
    assert "steps differ: a 20, b 12" in found.notes and "2/5" in str(found) and "censored" in str(found)
    late = api.compare([tmp_path], threshold=0.98)  # a gets there after 1300 tokens, when b's runs had ended
    assert late.arms[0].tokens.times == [[math.inf] * 5]
    assert "a reaches 0.98 in 5 of 5 runs and b reaches 0.98 in 0 of 5 runs (no difference shown)" in late.verdict
    assert api.compare([tmp_path], threshold=1.1).verdict.startswith("No run reaches 1.1; ")


def test_exams_on_the_way_are_the_curve_where_all_have_them(tmp_path):
    arm(tmp_path, "a", FAST, ALIKE, every=2, tasks={"class": "Harder"})
    arm(tmp_path, "b", SLOW, ALIKE, every=2)
    found = api.compare([tmp_path], threshold=0.8)
    assert (found.curve, found.window) == ("eval/pass@1", 1)
    assert found.arms[0].tokens.times[0][0] == 400.0 and found.arms[1].tokens.times[0][0] == 800.0
    assert found.arms[0].curve[0][0] == 0.0  # the evaluation before
    assert api.compare([tmp_path], threshold=0.8, metric="pass@1") == found  # the short name means the same


def test_training_curves_on_different_tasks_are_not_held_against_one_threshold(tmp_path):
    arm(tmp_path, "a", FAST, ALIKE, tasks={"class": "Harder"})
    arm(tmp_path, "b", SLOW, ALIKE)
    found = api.compare([tmp_path], threshold=0.8)
    assert found.thresholds == [] and any("training curves are not comparable" in note for note in found.notes)


def test_three_runs_show_nothing_and_one_has_no_interval(tmp_path):
    arm(tmp_path, "a", FAST[:3], ALIKE[:3])
    arm(tmp_path, "b", SLOW[:3], WORSE[:3], **OTHER)
    found = api.compare([tmp_path])
    assert found.pairs[0].p == pytest.approx(0.1) and not found.pairs[0].differ
    assert "3 runs each cannot show a difference (4 each can)" in found.verdict
    single = api.compare([tmp_path / "a-s0", tmp_path / "b-s0"])
    assert single.arms[0].score.low is None and any("--seeds" in note for note in single.notes)
    assert "1 run each cannot show" in single.verdict and "[" not in single.verdict


def test_an_arm_alone(tmp_path):
    arm(tmp_path, "a", FAST, ALIKE)
    found = api.compare([tmp_path])
    assert re.fullmatch(
        r"a: pass@1 0.90 \[.*\] over 5 runs; reaches [\d.]+ after [\d.]+ tokens \(\d+ s\)\.", found.verdict
    )
    assert found.pairs == []


def test_several_pairs_share_the_level(tmp_path):
    for number in range(4):
        arm(tmp_path, f"arm{number}", SLOW[:4], (np.array(ALIKE[:4]) - number / 5).tolist(), objective={"clip": number})
    found = api.compare([tmp_path])
    # The smallest p of 4 runs each is 2 / 70, above 0.05 / 6: nothing is called different.
    assert len(found.pairs) == 6 and {p.differ for p in found.pairs} == {False}
    assert found.pairs[0].p == pytest.approx(2 / 70) and "(5 each can)" in found.verdict


def test_three_arms_are_ranked_by_their_wins(tmp_path):
    for name, shift in (("best", 0.0), ("mid", 0.2), ("last", 0.4)):
        arm(tmp_path, name, SLOW, (np.array(ALIKE) - shift).tolist(), objective={"clip": shift})
    found = api.compare([tmp_path])
    best, last, mid = (one.strength for one in found.arms)
    assert best.value > mid.value > last.value and mid.value == pytest.approx(0, abs=1e-6)
    assert best.low == best.high == best.value  # every run of one is above every run of the next, in any resample
    assert "strength" in str(found) and "Bradley-Terry" in str(found)
    found.save(tmp_path / "c.json")
    assert json.loads((tmp_path / "c.json").read_text())["arms"][0]["strength"]["value"] == pytest.approx(best.value)
    two = api.compare([tmp_path / "best-*", tmp_path / "mid-*"])
    assert two.arms[0].strength is None and "strength" not in str(two)


def test_where_less_is_better_the_smallest_is_the_strongest(tmp_path):
    for name, loss in (("best", 0.1), ("mid", 0.2), ("last", 0.4)):
        arm(tmp_path, name, SLOW, [loss] * 5, objective={"clip": loss})
        for file in tmp_path.glob(f"{name}-s*/summary.json"):
            summary = json.loads(file.read_text())
            summary["after"] = {"eval/loss": loss}
            file.write_text(json.dumps(summary))
    best, last, mid = api.compare([tmp_path], metric="loss").arms
    assert best.strength.value > mid.strength.value > last.strength.value


def test_an_arm_of_several_exams_is_stratified(tmp_path):
    exams = [EXAM, {**EXAM, "tasks": {"class": "Words", "seed": 7}}]
    for name, fields, shift in (("a", {}, 0.0), ("b", OTHER, 0.1)):
        for number, exam in enumerate(exams):
            finals = (np.array(ALIKE[:3]) - shift - 0.3 * number).tolist()
            arm(tmp_path, f"{name}{number}", SLOW[:3], finals, exam=exam, **fields)
    found = api.compare({"a": tmp_path / "a?-*", "b": tmp_path / "b?-*"})
    assert np.array(found.arms[0].scores) == pytest.approx(np.array([ALIKE[:3], [x - 0.3 for x in ALIKE[:3]]]))
    assert found.pairs[0].improvement.value == 1.0 and found.pairs[0].differ  # 3 runs of 2 evaluations can show it
    assert len(found.thresholds) == 2 and found.arms[0].curve == []


def test_without_an_exam_the_last_steps_are_the_score(tmp_path):
    arm(tmp_path, "a", [0.1, 0.1], [0, 0], exam=None)
    found = api.compare([tmp_path])
    assert found.metric == "reward/mean" and found.arms[0].score.value == pytest.approx(0.1 * (9 + 10 + 11 + 12) / 4)


def test_a_reward_that_never_reaches_1_is_compared_by_its_mean(tmp_path):
    for name, score in (("a", 0.3), ("b", 0.6)):
        for seed in range(3):
            file = write(tmp_path / f"{name}-s{seed}", seed=seed, final=0.0) / "summary.json"
            saved = json.loads(file.read_text())
            saved["after"]["eval/score"] = score + seed / 100
            file.write_text(json.dumps(saved))
    found = api.compare({"a": str(tmp_path / "a-s*"), "b": str(tmp_path / "b-s*")})
    assert found.metric == "eval/score" and [round(arm.score.value, 2) for arm in found.arms] == [0.31, 0.61]
    assert "the mean score is compared instead of pass@1" in str(found)
    assert api.compare([str(tmp_path / "a-s*")], metric="pass@1").metric == "eval/pass@1"


def test_who_draws_an_exam_makes_no_other_exam(tmp_path):
    arm(tmp_path, "a", [0.1], [0.9])
    arm(tmp_path, "b", [0.1], [0.9], exam={**EXAM, "engine": {"class": "Native"}}, **OTHER)
    assert len(api.compare([tmp_path / "a-s*", tmp_path / "b-s*"]).arms) == 2


def test_the_note_on_evaluations_goes_by_the_engine_that_evaluated(tmp_path):
    def noted(name, own, beside, **fields):
        arm(tmp_path, f"{name}-a", [0.1], [0.9], engine=own, **fields)
        arm(tmp_path, f"{name}-b", [0.1], [0.9], engine=beside, **fields)
        found = str(api.compare([tmp_path / f"{name}-a-s*", tmp_path / f"{name}-b-s*"]))
        return "sampled their evaluations differently" in found

    one, other = {"class": "Episodes", "slots": 4, "segment": 0}, {"class": "Episodes", "slots": 8, "segment": 0}
    assert not noted("speed", one, other), "slots say how fast, not what"
    assert noted("segments", one, {**other, "segment": 16})


@pytest.mark.parametrize(
    ("second", "sentence"),
    [
        ({"seed": 0}, "have the same recipe and seed"),
        (
            {"seed": 1, "ended": False},
            "is not finished (12 of 12 steps are recorded); finish it with gimbal train --resume",
        ),
        ({"exam": {**EXAM, "samples": 8}}, "were not evaluated on the same held-out set (held_out.samples is 4 and 8)"),
        ({"exam": None}, "b-s0 was trained without held_out, and "),
        (
            {"rewards": [{"class": "Other"}]},
            "were not evaluated by the same rewards (rewards.0.class is Right and Other, rewards.0.weight is 1.0 and absent). Their "
            "scores cannot be compared; train both with the same held_out.rewards, which may differ from what they train on",
        ),
    ],
)
def test_what_cannot_be_compared_is_refused(tmp_path, second, sentence):
    write(tmp_path / "a-s0")
    write(tmp_path / "b-s0", **second)
    with pytest.raises(ValueError, match=re.escape(sentence)):
        api.compare([tmp_path])


def test_a_run_that_lost_lines_is_not_compared(tmp_path):
    arm(tmp_path, "a", [0.1, 0.1], [0.5, 0.6])
    file = tmp_path / "a-s1" / "metrics.jsonl"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:6]))
    with pytest.raises(ValueError, match=r"a-s1: metrics\.jsonl has no line of 6 of 12 steps .* put the file back"):
        api.compare([tmp_path])
    file.write_text("")
    with pytest.raises(ValueError, match=r"a-s1: metrics\.jsonl has no line of 12 of 12 steps .* put the file back"):
        api.compare([tmp_path])
    with pytest.raises(
        ValueError, match=r"a-s1: metrics\.jsonl has no line of 12 of 12 steps .* nothing to judge the run by"
    ):
        diagnose(tmp_path / "a-s1")


def test_more_refusals(tmp_path):
    arm(tmp_path, "a", [0.1, 0.1], [0.5, 0.6])
    write(tmp_path / "b-s0", **OTHER)
    with pytest.raises(ValueError, match="not repetitions of one recipe"):
        api.compare({"x": tmp_path / "*"})
    with pytest.raises(ValueError, match="given twice"):
        api.compare([tmp_path / "a-s0", tmp_path])
    with pytest.raises(ValueError, match="has no metric pass@9"):
        api.compare([tmp_path], metric="pass@9")
    with pytest.raises(ValueError, match="there is no run at"):
        api.compare([tmp_path / "nothing-*"])
    write(tmp_path / "w" / "a", exam={**EXAM, "samples": 8})
    with pytest.raises(ValueError, match="a has 2 and 1 runs for its 2 evaluations"):
        api.compare({"a": [tmp_path / "a-*", tmp_path / "w"]})


def test_each_pair_has_a_line_and_names_are_as_they_are_typed(tmp_path):
    for clip in (0.2, 0.3, 0.4):
        other = {"objective": {"class": "Clip", "clip": clip}}
        for seed in (0, 1):
            write(tmp_path / f"{clip}" / f"{seed}-{clip}", seed=seed, **other)
    found = api.compare([tmp_path / str(clip) for clip in (0.2, 0.3, 0.4)])
    assert [arm.name for arm in found.arms] == [f"grpo (objective.clip={clip})" for clip in (0.2, 0.3, 0.4)]
    lines = str(found).splitlines()
    assert lines[3] == "" and " ".join(lines[:3]) == found.verdict and all(line.endswith(".") for line in lines[:3])


def test_a_single_run_keeps_its_whole_name(tmp_path):
    for rate in ("1e-2", "1e-3"):
        write(tmp_path / f"lr{rate}", seed=0, objective={"class": "Clip", "clip": float(rate)})
    found = api.compare([tmp_path / "lr1e-2", tmp_path / "lr1e-3"])
    assert [arm.name for arm in found.arms] == ["lr1e-2", "lr1e-3"]


def test_json_and_figure(tmp_path):
    arm(tmp_path / "r", "a<b", [0.1] * 5, ALIKE, steps=20)
    arm(tmp_path / "r", "b", [0.1, 0.1, 0.02, 0.02, 0.02], ALIKE, **OTHER)
    found = api.compare([tmp_path / "r"], threshold=0.9)
    found.save(tmp_path / "c.json")
    found.draw(tmp_path / "c.svg")
    saved = json.loads((tmp_path / "c.json").read_text())
    assert saved["arms"][1]["tokens"]["times"][0][2] is None and saved["verdict"] == found.verdict
    assert saved["arms"][0]["runs"] == [f"a<b-s{seed}" for seed in range(5)]
    root = ET.parse(tmp_path / "c.svg").getroot()
    texts = ["".join(node.itertext()) for node in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "a<b (5 runs)" in texts and "b: 3 of 5 censored" in texts
    circles = [n for n in root.iter("{http://www.w3.org/2000/svg}circle") if n.get("r") == "4"]
    assert len(circles) == 10 + 7  # a dot a score, and one a run that arrived
    places = [float(n.get(k)) for n in circles for k in ("cx", "cy")]
    assert all(math.isfinite(place) and 0 <= place <= 960 for place in places)
    assert "http" not in (tmp_path / "c.svg").read_text().replace("http://www.w3.org/2000/svg", "")
