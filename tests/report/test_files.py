"""What lies on disk after a run, after a kill, and after a resume."""

import json
import math
from dataclasses import replace

import made
import pytest
import torch
from report_records import batch, group, rollout

from gimbal.policies.commits import FILLED, WHERE, Commits, MaskedSampling
from gimbal.policies.control import STEPS
from gimbal.policies.paths import PATHS
from gimbal.policies.token import TEXT
from gimbal.report.files import JsonLines, Summary, cost, deterministic, drawn, lost
from gimbal.report.record import Record
from gimbal.report.rollouts import RolloutFile, filled, strip

NASTY = 'line\u2028separator \x85 \x1c next\nline "quoted" \\ \ud800 </script> 数'


def test_rows_come_back_and_nan_is_null(tmp_path):
    lines = JsonLines(tmp_path / "rollouts.jsonl")
    assert lines.read() == []
    lines.append({"step": 1, "loss": math.nan, "nested": {"a": [math.inf, 1.5]}})
    lines.append({"step": 2, "text": NASTY})
    assert lines.read() == [
        {"step": 1, "loss": None, "nested": {"a": [None, 1.5]}},
        {"step": 2, "text": NASTY},
    ]


@pytest.mark.parametrize("torn", range(1, 60))
def test_a_torn_last_line_is_left_out_wherever_it_was_torn(tmp_path, torn):
    lines = JsonLines(tmp_path / "rollouts.jsonl")
    lines.append({"step": 1, "text": NASTY})
    whole = lines.path.read_bytes()
    lines.append({"step": 2, "text": "数学" * 20})
    lines.path.write_bytes(lines.path.read_bytes()[: len(whole) + torn])
    assert [row["step"] for row in lines.read()] == [1]
    lines.cut(len(whole))
    assert lines.path.read_bytes() == whole


def test_what_is_written_behind_a_torn_line_is_whole(tmp_path):
    lines = JsonLines(tmp_path / "ledger.jsonl")
    for torn in ("", '{"step": 1, "te'):
        lines.path.write_text(torn)
        lines.append({"step": 2, "text": NASTY})
        lines.append({"step": 3})
        assert [row["step"] for row in lines.read()] == [2, 3]
        assert lines.path.read_bytes().count(b"\n") == 2 + bool(torn)


def test_a_spoilt_line_in_the_middle_costs_no_other(tmp_path):
    lines = JsonLines(tmp_path / "metrics.jsonl")
    lines.path.write_bytes(b'{"step": 1}\n{"step": 2, "x\n\xff\xfe\n3\n{"step": 4}\n')
    assert [row["step"] for row in lines.read()] == [1, 4]
    assert [row["step"] for row in lines.since(0)[0]] == [1, 4]


STRAY = {  # a line of metrics.jsonl that no run wrote
    "a list": b'{"step": 2, "reward/mean": [1]}',
    "text": b'{"step": 2, "reward/mean": "x"}',
    "a mapping": b'{"step": 2, "grad_norm": {"a": 1}}',
    "400 digits": b'{"step": 2, "loss": 1' + b"0" * 400 + b"}",
    "5,000 digits": b'{"step": 2, "loss": 1' + b"0" * 5000 + b"}",
    "nested": b"[" * 200_000,
    "nested in an object": b'{"step": 2, "loss": ' + b"[" * 200_000,
    "no step": b'{"loss": 1}',
    "a step that is text": b'{"step": "2", "loss": 1}',
    "a step between": b'{"step": 2.5, "loss": 1}',
    "a negative step": b'{"step": -5, "loss": 1}',
}


@pytest.mark.parametrize("kind", STRAY)
def test_a_line_of_no_figures_is_lost_like_a_torn_one(tmp_path, kind):
    (tmp_path / "metrics.jsonl").write_bytes(
        b'{"step": 1, "loss": 2.0}\n' + STRAY[kind] + b'\n{"step": 3, "loss": null}\n'
    )
    lines = JsonLines(tmp_path / "metrics.jsonl")
    assert [row["step"] for row in lines.read()] == [row["step"] for row in lines.since(0)[0]] == [1, 3]
    assert "no line of 1 of 3 steps (the first of them is step 2)" in lost(lines.read())
    assert Record(tmp_path)("loss") == [2.0]


def summary_with(**values):
    known = {"recipe": "sac", "seed": 0, "steps": 3, "seconds_training": 1.5, "tokens_generated": 9, "before": {}}
    known |= {"after": {}, "max_age": 0, "mean_discrepancy": None, "peak_memory_mb": 3.0}
    return json.dumps(known | values)


def test_a_whole_summary_is_read(tmp_path):
    (tmp_path / "summary.json").write_text(summary_with(before={"eval/score": math.nan, "eval/greedy": None}))
    assert Summary.load(tmp_path / "summary.json").steps == 3


def test_steps_beyond_counting_are_lost_in_no_time():
    assert "no line of 999999999998 of 1000000000000 steps (the first of them is step 2)" in lost(
        [{"step": 1}, {"step": 10**12}]
    )


def test_a_spoilt_summary_is_refused_by_its_name(tmp_path):
    for text, sentence in (
        ("{", "summary.json is not readable as json"),
        ("{}", "summary.json is no complete summary .*: remove it, and gimbal train --resume .* writes it again"),
        ("null", "summary.json is no complete summary"),
        (summary_with(after=5), r"no complete summary of a run \(after is 5, not figures by name\): remove it"),
        (summary_with(after={"eval/score": "x"}), r"\(after.eval/score is 'x', not a number\): remove it"),
        (summary_with(steps="x"), r"\(steps is 'x', not a number\): remove it"),
        (summary_with(max_age=10**400), r"\(max_age is an int of some 400 digits, not a number\): remove it"),
        (summary_with(drops=[1]), r"\(drops is \[1\], not figures by name\): remove it"),
        ("[" * 200_000, "summary.json is nested too deeply"),
    ):
        (tmp_path / "summary.json").write_text(text)
        with pytest.raises(ValueError, match=sentence):
            Summary.load(tmp_path / "summary.json")


@pytest.mark.parametrize(
    ("steps", "of", "said"),
    [
        ([1, 2, 3], None, ""),
        ([1, 2, 3], 3, ""),
        ([], None, ""),
        ([1, 2, 3], 5, "has no line of 2 of 5 steps (the first of them is step 4)"),
        ([1, 3], None, "has no line of 1 of 3 steps (the first of them is step 2)"),
        ([1, "2", 3], None, "the first of them is step 2"),
        ([], 2, "2 of 2 steps"),
    ],
)
def test_lines_that_are_lost_are_counted(steps, of, said):
    found = lost([{"step": step} for step in steps], of)
    assert said in found and bool(said) == bool(found)


def test_a_spoilt_end_of_a_run_is_refused_by_its_name(tmp_path):
    for text, sentence in (("{", "stopped.json is not readable as json"), ('{"step": 3}', "it has no error, sentence")):
        (tmp_path / "stopped.json").write_text(text)
        with pytest.raises(ValueError, match=sentence):
            Record(tmp_path)


def test_cutting_keeps_the_beginning_to_the_byte_and_makes_a_new_file(tmp_path):
    lines = JsonLines(tmp_path / "rollouts.jsonl")
    for step in (1, 1, 2, 3):
        lines.append({"step": step, "text": NASTY, "x": 0.1 + 0.2})
    written, file = lines.path.read_bytes(), lines.path.stat().st_ino
    lines.cut(len(written) - 20)
    assert lines.path.read_bytes() == written[:-20] and lines.path.stat().st_ino != file
    assert not list(tmp_path.glob("*.partial"))


def test_clocked_metrics_alone_may_differ():
    row = {"step": 1, "loss": 0.5, "time/step": 1.0, "perf/tokens_per_s": 9.0, "timeless": 2.0}
    assert deterministic(row) == {"step": 1, "loss": 0.5, "timeless": 2.0}


def pieces(rollout):
    return [str(i) for i in range(rollout.length)]


def test_rollouts_lie_beside_the_rows_of_their_batch(tmp_path):
    groups = [
        group(rollout(1.0, 2, sample=0), rollout(0.0, 3, sample=2, entropy=0.25), index=4),  # a filter took sample 1
        group(rollout(0.5, 1), index=7),
        group(rollout(0.5, 1), index=9),
    ]
    behavior = [[-1.0, -2.0, 0.0], [-1.0, -2.0, -3.0], [-1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]]
    proximal = [[-1.5, -2.0, 0.0], [-1.0, -2.25, -3.0], [-4.0, 0.0, 0.0], [-1.0, 0.0, 0.0]]
    made = batch(behavior, proximal, advantage=[[1.0] * 3, [-1.0] * 3, [0.5] * 3, [0.0] * 3], group_N=[4, 4, 7, 9])
    file = RolloutFile(tmp_path / "rollouts.jsonl", 10, groups=2)
    file.append(3, groups, made, pieces)
    first, second, third = JsonLines(tmp_path / "rollouts.jsonl").read()
    assert [(row["group"], row["sample"]) for row in (first, second, third)] == [(4, 0), (4, 2), (7, 0)]
    assert (
        first["proximal"] == [-1.5, -2.0] and second["proximal"] == [-1.0, -2.25, -3.0] and third["proximal"] == [-4.0]
    )
    assert first["advantage"] == [1.0, 1.0] and first["entropy"] is None and second["entropy"] == [0.25] * 3
    assert first["pieces"] == ["0", "1"] and first["version"] == [0, 0]
    assert (first["score"], first["stop"], first["prompt"], first["answer"]) == (1.0, "stop", "3 + 4 =", "7")


def test_a_batch_of_other_groups_is_refused(tmp_path):
    file = RolloutFile(tmp_path / "rollouts.jsonl", 10)
    with pytest.raises(AssertionError, match="not the batch's"):
        file.append(1, [group(rollout(), rollout())], batch([[-1.0]], [[-1.0]]), pieces)


def test_rollouts_stop_at_their_limit(tmp_path):
    file = RolloutFile(tmp_path / "rollouts.jsonl", 10, max_bytes=10)
    one = batch([[-1.0, -2.0, -3.0]], [[-1.0, -2.0, -3.0]])
    for step in (1, 2, 3):
        file.append(step, [group(rollout())], one, pieces)
    assert [row["step"] for row in JsonLines(tmp_path / "rollouts.jsonl").read()] == [1]


def test_a_column_that_was_not_filled_is_null(tmp_path):
    one = batch([[-1.0, -2.0, -3.0]], [[-1.0, -2.0, -3.0]])
    file = RolloutFile(tmp_path / "rollouts.jsonl", 10)
    file.append(1, [group(rollout())], type(one)(mask_NS=one.mask_NS, behavior_NS=torch.full((1, 3), -1.0)), pieces)
    (row,) = JsonLines(tmp_path / "rollouts.jsonl").read()
    assert row["proximal"] is None and row["advantage"] is None and row["behavior"] == [-1.0] * 3


def summary(**changes):
    known = {
        "recipe": "demo",
        "seed": 0,
        "steps": 20,
        "seconds_training": 12.5,
        "tokens_generated": 12345,
        "before": {"eval/pass@1": 0.25, "eval/greedy": 0.5},
        "after": {"eval/pass@1": 0.75, "eval/greedy": 0.25},
        "max_age": 1,
        "mean_discrepancy": 0.0123,
        "peak_memory_mb": 900.0,
        "drops": {"zero_variance": 6},
    }
    return Summary(**(known | changes))


def conclude(directory, **changes):
    """A summary of the steps that are recorded there."""
    steps = len(JsonLines(directory / "metrics.jsonl").read())
    summary(steps=steps, **changes).save(directory / "summary.json")


def test_a_summary_comes_back(tmp_path):
    summary().save(tmp_path / "summary.json")
    assert Summary.load(tmp_path / "summary.json") == summary()
    assert "undone" not in " ".join(cost(summary())) and "closed loop: 3" in " ".join(cost(summary(undone=3)))


def test_the_end_of_a_long_run_is_on_record(tmp_path):
    file = RolloutFile(tmp_path / "rollouts.jsonl", 100, max_bytes=20_000)
    one = batch([[-1.0, -2.0, -3.0]], [[-1.0, -2.0, -3.0]])
    for step in range(1, 101):
        file.append(step, [group(rollout())], one, pieces)
    steps = [row["step"] for row in JsonLines(tmp_path / "rollouts.jsonl").read()]
    assert len(steps) < 90 and max(steps) >= 95
    assert (tmp_path / "rollouts.jsonl").stat().st_size < 22_000


def test_a_growing_file_is_followed_line_by_line(tmp_path):
    lines = JsonLines(tmp_path / "rollouts.jsonl")
    assert lines.since(0) == ([], 0)
    lines.append({"step": 1, "text": NASTY})
    rows, mark = lines.since(0)
    assert [row["step"] for row in rows] == [1] and mark == lines.path.stat().st_size
    with lines.path.open("ab") as file:
        file.write(b'{"step": 2')
    assert lines.since(mark) == ([], mark)  # half a line is no line yet
    with lines.path.open("ab") as file:
        file.write(b'}\n{"step": 3}\n{"st')
    rows, mark = lines.since(mark)
    assert [row["step"] for row in rows] == [2, 3] and lines.since(mark) == ([], mark)


def test_turns_parts_and_what_did_not_count_are_on_record(tmp_path):
    plain, talked = rollout(0.0), rollout(0.0, sample=1, scores={"right": 1.0, "length": -1.0})
    talked = replace(talked, turn_S=torch.tensor([0, 0, 1]), part_S=torch.tensor([0, 2, 0]), fork=(0, 2))
    made = batch([[-1.0] * 3] * 2, [[-1.0] * 3] * 2, mask=[[True] * 3, [True, False, True]], group_N=[0, 0])
    RolloutFile(tmp_path / "rollouts.jsonl", 10).append(1, [group(plain, talked)], made, pieces)
    first, second = JsonLines(tmp_path / "rollouts.jsonl").read()
    assert (first["mask"], first["part"], first["turn"], first["solved"]) == (None, None, None, False)
    assert first["fork"] is None and second["fork"] == [0, 2]
    assert (second["mask"], second["part"], second["turn"]) == ([1, 0, 1], [0, 2, 0], [0, 0, 1])
    assert second["solved"]  # by the first reward, whatever the others take away
    RolloutFile(tmp_path / "measured.jsonl", 10).append(1, [group(plain, talked)], made, pieces, judged=False)
    assert [row["solved"] for row in JsonLines(tmp_path / "measured.jsonl").read()] == [None, None]


def test_what_a_rollout_made_is_recorded_as_an_image_and_a_text_is_none():
    import base64
    import io

    from PIL import Image

    from gimbal.policies.paths import Paths
    from gimbal.report.rollouts import picture, strip

    zero_NS, states = torch.zeros(1, 1), torch.zeros(1, 2, 1, 8, 8)
    states[0, 1, 0, 3] = torch.linspace(-1.5, 1.5, 8)
    decisions = Paths(
        state_NXD=states,
        level_NSL=torch.zeros(1, 1, 4),
        time_NS=zero_NS,
        amplitude_NS=zero_NS,
        mean_NSD=states[:, :1],
        std_NS=zero_NS,
        label_N=torch.tensor([-1]),
        length_N=torch.tensor([1]),
        sampler="flow_sde",
        reduce="sum",
    )
    kind, _, data = (picture(made.rollout(decisions=decisions)) or "").partition(",")
    image = Image.open(io.BytesIO(base64.b64decode(data)))
    assert kind == "data:image/png;base64" and image.size == (8, 8)
    assert [image.getpixel((x, 3)) for x in (0, 3, 7)] == [0, 100, 255] and image.getpixel((0, 0)) == 128
    assert picture(made.rollout()) is None and strip(made.rollout()) is None
    kind, _, data = (strip(made.rollout(decisions=decisions)) or "").partition(",")
    path = Image.open(io.BytesIO(base64.b64decode(data)))
    assert kind == "data:image/png;base64" and path.size == (16, 8), "two states, from noise to the sample"
    assert path.crop((8, 0, 16, 8)).tobytes() == image.tobytes() != path.crop((0, 0, 8, 8)).tobytes()


def filling(place, at):
    count = len(place)
    return Commits(
        prompt_NP=torch.tensor([[5]]),
        prompt_N=torch.tensor([1]),
        place_NS=torch.tensor([place]),
        token_NS=torch.zeros(1, count, dtype=torch.long),
        pass_NS=torch.tensor([at]),
        seen_NS=torch.full((1, count), count),
        length_N=torch.tensor([count]),
        threshold_N=torch.tensor([0.9]),
        spread_N=torch.tensor([0.1]),
        keep_N=torch.tensor([0.5]),
        mask=9,
    )


def test_the_decisions_so_far_are_known_in_the_unit_of_each_family():
    """Without it a comparison of such runs has no axis."""
    for family in (TEXT, FILLED, PATHS, STEPS):
        assert drawn({"step": 1, family.unit: 9.0}) == 9.0, family.unit


def test_a_picture_drawn_in_scales_is_shown_by_its_finest():
    import base64
    import io

    from PIL import Image

    from gimbal.report.rollouts import picture

    row = made.rollout(decisions=filling(list(range(20)), [0] * 4 + [1] * 16))
    row = replace(row, text="eeee" + "aaaa" * 3 + "aaai", sampling=MaskedSampling(max_length=20, blocks=(4, 16)))
    image = Image.open(io.BytesIO(base64.b64decode(picture(row).partition(",")[2])))
    assert image.size == (4, 4) and [image.getpixel((x, 3)) for x in range(4)] == [0, 0, 0, 255]
    assert picture(replace(row, sampling=MaskedSampling(max_length=20))) is None, "text that is filled in"
    assert picture(replace(row, text="12345678901234567890")) is None, "these are no levels"


def test_a_text_that_is_filled_in_is_kept_after_each_pass():
    pieces = ["|", "c", "a", "|", "b", "d"]
    row = made.rollout(decisions=filling([WHERE, 2, 0, WHERE, 1, 3], [0, 0, 0, 1, 1, 2]))
    assert filled(row, pieces) == ["a\u00b7c\u00b7", "abc\u00b7", "abcd"] and strip(row) is None
    assert filled(made.rollout(), ["x"]) is None
    lines = filled(made.rollout(decisions=filling(list(range(40)), list(range(40)))), ["x"] * 40)
    assert len(lines) == 11 and lines[0].count("x") == 1 and lines[-1] == "x" * 40
