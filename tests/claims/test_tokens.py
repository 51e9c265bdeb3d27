"""Arms differ from plain GRPO in what they are named after, and costs and verdicts follow from the record by the rule."""

import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest

CLAIMS = Path(__file__).parent.parent.parent / "claims"
sys.path.insert(0, str(CLAIMS))

import tokens
import tokens_page

from gimbal.runtime.compose import check

RUNS = tokens.load()
CHANGES = {
    "dynamic": {"filters"},
    "until_mixed": {"num_generations", "budget", "filters"},
    "vade": {"curriculum"},
    "dps": {"curriculum"},
    "greso": {"curriculum", "filters"},
    "paced": {"curriculum"},
    "replay": {"store", "correction"},
    "bands": {"curriculum"},
    "retiring": {"curriculum"},
    "dars": {"budget", "filters"},
    "xrpo": {"budget"},
    "gdro": {"budget"},
    "duet": {"budget"},
    "sgpo": {"curriculum", "filters", "max_empty_batches"},
    "partial": {"max_staleness"},
    "arrol": {"num_generations", "workflow"},
    "latr": {"engine", "workflow"},
    "prompt_gdro": {"curriculum", "rewards", "shaping"},
}


def run(arm: str, seed: int, ends: float, half: int = 18_000, rate: float = 1e-4) -> dict:
    """A record that rises in two straight lines: to .3 at ``half``, and from there to ``ends`` at 36,000."""
    marks = [(0, 0.0, 0.1), (half, half / 1000, 0.3), (36_000, 36.0, ends)]
    return {"kind": "spread", "arm": arm, "rate": rate, "seed": seed, "marks": marks}


def record(arm: str, halves: list[int], ends: float = 0.5) -> list[dict]:
    tried = [run(arm, tokens.TUNING, 0.5 if rate == 1e-4 else 0.2, rate=rate) for rate in tokens.RATES]
    return tried + [run(arm, seed, ends, half) for seed, half in enumerate(halves)]


def test_each_arm_changes_what_it_is_named_after_and_nothing_else():
    assert set(CHANGES) == set(tokens.ARMS) - {"plain"}
    for kind in tokens.KINDS:
        plain = tokens.run_of(tokens.Job(kind, "plain", 1e-4, 0))
        for arm, changes in CHANGES.items():
            own = tokens.run_of(tokens.Job(kind, arm, 1e-4, 0))
            check(own)
            assert {f.name for f in fields(own) if vars(own)[f.name] != vars(plain)[f.name]} == changes, arm


def test_each_stage_has_other_arms_and_each_arm_is_asked():
    staged = [(kind, arm) for kind, arms in tokens.STAGES for arm in arms]
    assert len(set(staged)) == len(staged) and tokens.whole() == 8 * len(staged)
    assert {arm for _, arm in staged} == {arm for kind, arm in staged if kind == "sparse"} == set(tokens.ARMS)
    assert all((kind, "plain") in staged for kind in tokens.KINDS)


def test_the_cost_is_where_the_line_through_the_marks_first_crosses_the_target():
    marked = run("plain", 0, 0.5)
    for wanted, tokens_to, seconds in ((0.2, 9_000, 9.0), (0.4, 27_000, 27.0)):
        found = tokens.cost(marked, wanted)
        assert (found.tokens, found.seconds) == (pytest.approx(tokens_to), pytest.approx(seconds)) and found.reached
    assert tokens.cost(marked, 0.05) == tokens.Cost(0, 0.0, True)
    missed = tokens.cost(marked, 0.6)
    assert (missed.tokens, missed.reached, missed.rank) == (36_000, False, float("inf"))
    once = marked | {"marks": [(0, 0.0, 0.1), (12_000, 1.0, 0.3), (24_000, 2.0, 0.2), (36_000, 3.0, 0.4)]}
    assert tokens.cost(once, 0.3).tokens == pytest.approx(12_000)


def test_the_rate_is_the_one_that_gets_to_the_target_first_and_else_ends_highest():
    runs = record("plain", [])
    assert tokens.best(runs, "spread", "plain") == 1e-4 and tokens.target(runs, "spread") == pytest.approx(0.45)
    rising = [
        run("plain", tokens.TUNING, end, 18_000, rate) for end, rate in zip((0.5, 0.6, 0.2), tokens.RATES, strict=True)
    ]
    early = run("plain", tokens.TUNING, 0.59, 1_000, 3e-4)  # ends lower than another, and got to .54 before it
    assert tokens.best(rising, "spread", "plain") == 1e-4
    assert tokens.best([*rising[:2], early], "spread", "plain") == 3e-4
    flat = zip((0.4, 0.3, 0.4), rising, strict=True)
    below = [one | {"arm": "vade", "marks": [*one["marks"][:2], (36_000, 36.0, end)]} for end, one in flat]
    assert tokens.best([*rising, *below], "spread", "vade") == 3e-5, "the smaller of equals"
    assert tokens.best(runs[:2], "spread", "plain") is None and tokens.target(runs[:2], "spread") is None


def test_on_sparse_the_target_is_halfway_and_there_is_none_where_plain_hardly_rises():
    tried = zip((0.05, 0.2, 0.31), tokens.RATES, strict=True)
    ends = [run("plain", tokens.TUNING, end, rate=rate) | {"kind": "sparse"} for end, rate in tried]
    assert tokens.target(ends, "sparse") == pytest.approx((0.045 + 0.31) / 2)
    flat = [one | {"marks": [*one["marks"][:-1], (36_000, 36.0, 0.14)]} for one in ends]
    assert tokens.target(flat, "sparse") is None


PLAIN = [18_000, 19_000, 20_000, 21_000, 22_000]


@pytest.mark.parametrize(
    ("halves", "ends", "verdict"),
    [
        ([4_000, 5_000, 6_000, 7_000, 8_000], 0.9, "supported"),
        ([one + 100 for one in PLAIN], 0.4, "refuted"),  # none gets there
        ([18_100, 19_100, 20_100, 21_100, 22_100], 0.5, "refuted"),  # a saving of a tenth is excluded
        ([4_000, 5_000, 6_000, 30_000, 31_000], 0.9, "undecided"),
    ],
)
def test_verdicts_follow_the_rule(halves, ends, verdict):
    runs = record("plain", PLAIN) + record("vade", halves, ends)
    found = tokens.compared(runs, "spread", "vade")
    assert found.verdict == verdict and found.tokens[1] <= found.tokens[0] <= found.tokens[2]
    assert (found.p < tokens.P) == (verdict == "supported" or ends < 0.45)
    assert tokens.compared(runs[:-1], "spread", "vade") is None


def test_what_two_runs_spent_that_did_not_get_there_bounds_nothing():
    there, short = tokens.Cost(10.0, 1.0, True), tokens.Cost(36.0, 2.0, False)
    assert tokens.quotient([there] * 5, [there] * 5, "tokens") == (1.0, 1.0, 1.0)
    assert tokens.quotient([short] * 5, [there] * 5, "tokens") == (3.6, 3.6, float("inf"))
    assert tokens.quotient([there] * 5, [short] * 5, "seconds") == (0.5, 0.0, 0.5)
    assert tokens.quotient([short] * 5, [short] * 5, "tokens") == (1.0, 0.0, float("inf"))
    assert tokens_page.between(1.0, 0.0, float("inf")) == "1.00 (open)"
    more = {"marks": [(0, 0.0, 0.1), (36_100, 36.1, 0.35)]}
    own = [one if one["seed"] == tokens.TUNING else one | more for one in record("vade", PLAIN, 0.35)]
    runs = record("plain", PLAIN, 0.35) + own
    assert tokens.compared(runs, "spread", "vade").verdict == "undecided", "none gets there, of either"


def test_an_arm_that_has_plains_costs_is_idle():
    runs = record("plain", PLAIN) + record("vade", [*PLAIN[:3], 4_000, 5_000])
    assert tokens.compared(runs, "spread", "vade").verdict == "idle"
    two = record("plain", PLAIN) + record("vade", [*PLAIN[:2], 20_500, 21_500, 22_500])
    assert tokens.compared(two, "spread", "vade").verdict != "idle"


def test_what_is_left_is_all_but_what_was_done():
    runs = record("plain", [1, 2])
    first = next(tokens.left(runs))
    assert {job.arm for job in first} == {"dynamic", "until_mixed", "vade"} and len(first) == 9
    todo = [job for jobs in tokens.left(runs) for job in jobs if (job.kind, job.arm) == ("spread", "plain")]
    assert [job.seed for job in todo] == [2, 3, 4] and {job.rate for job in todo} == {1e-4}


def test_every_recorded_run_is_of_the_campaign_and_each_mechanism_acted():
    known = {(kind, arm) for kind, arms in tokens.STAGES for arm in arms}
    keys = [(found["kind"], found["arm"], found["rate"], found["seed"]) for found in RUNS]
    assert len(set(keys)) == len(keys)
    for found in RUNS:
        assert (found["kind"], found["arm"]) in known and found["rate"] in tokens.RATES
        assert len(found["marks"]) == tokens.MARKS + 1
        assert found["ended"] or found["marks"][-1][0] >= tokens.BUDGET
    for kind, arm in known:
        if len(seeds := tokens.fresh(RUNS, kind, arm)) == len(tokens.SEEDS):
            assert any(found["shown"] and found["shown"][2] > 0 for found in seeds), (kind, arm)


def test_the_page_names_what_has_no_verdict_yet():
    said = tokens_page.verdicts(
        record("plain", PLAIN) + record("vade", [4_000, 5_000, 6_000, 7_000, 8_000], 0.9), "spread"
    )
    assert said.startswith(
        "Supported: *vade*. Refuted: none. Undecided: none. Idle: none. Without all their seeds yet: *dynamic*"
    )


@pytest.mark.slow
def test_a_run_is_measured_as_it_is_recorded(monkeypatch):
    for name, small in {"BUDGET": 400, "MARKS": 2}.items():
        monkeypatch.setattr(tokens, name, small)
    monkeypatch.setattr(
        tokens, "held_out", lambda kind: replace(tokens.held_out_tasks(size=4), parameters=tokens.KINDS[kind])
    )
    found = tokens.measure(tokens.Job("spread", "until_mixed", 1e-4, 0))
    assert [len(mark) for mark in found["marks"]] == [3, 3, 3] and found["marks"][-1][0] >= 400
    assert 0 < found["trained"] <= found["marks"][-1][0] and found["shown"][0] >= 4 and not found["ended"]
    assert all(0 <= score <= 1 for _, _, score in found["marks"])
