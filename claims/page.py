"""Writes claims/README.md and the figure from the recorded results: python claims/page.py. A test holds them against the record."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import actor_critics  # noqa: E402
import adversarial  # noqa: E402
import age_page  # noqa: E402
import atoms  # noqa: E402
import balance  # noqa: E402
import blackbox  # noqa: E402
import branches  # noqa: E402
import branches_slower  # noqa: E402
import branches_slower_page  # noqa: E402
import cached  # noqa: E402
import campaign  # noqa: E402
import cases  # noqa: E402
import cases_page  # noqa: E402
import closed_form  # noqa: E402
import closed_form_page  # noqa: E402
import combinatorial  # noqa: E402
import composed  # noqa: E402
import composed_page  # noqa: E402
import control  # noqa: E402
import control_page  # noqa: E402
import curve  # noqa: E402
import curve_page  # noqa: E402
import demo  # noqa: E402
import demo_page  # noqa: E402
import distillation  # noqa: E402
import dose  # noqa: E402
import drafter  # noqa: E402
import drafter_page  # noqa: E402
import drafts  # noqa: E402
import echo  # noqa: E402
import echo_page  # noqa: E402
import failing  # noqa: E402
import families  # noqa: E402
import few_steps  # noqa: E402
import few_steps_page  # noqa: E402
import flow_maps  # noqa: E402
import flow_maps_page  # noqa: E402
import flows  # noqa: E402
import forecasts  # noqa: E402
import fours  # noqa: E402
import fours_page  # noqa: E402
import gardo  # noqa: E402
import gardo_page  # noqa: E402
import glance  # noqa: E402
import goals  # noqa: E402
import graded  # noqa: E402
import grid  # noqa: E402
import grid_page  # noqa: E402
import group_matching  # noqa: E402
import half_good  # noqa: E402
import holds  # noqa: E402
import holds_page  # noqa: E402
import horizon  # noqa: E402
import horizons  # noqa: E402
import kuhn  # noqa: E402
import kuhn_page  # noqa: E402
import locomotion  # noqa: E402
import locomotion_page  # noqa: E402
import masked  # noqa: E402
import memory  # noqa: E402
import offline  # noqa: E402
import offline_page  # noqa: E402
import prior  # noqa: E402
import proposals  # noqa: E402
import residual  # noqa: E402
import reviews  # noqa: E402
import reward_gradients  # noqa: E402
import reward_gradients_page  # noqa: E402
import robust  # noqa: E402
import roles  # noqa: E402
import roles_page  # noqa: E402
import rulebook  # noqa: E402
import safe  # noqa: E402
import safe_page  # noqa: E402
import scarce  # noqa: E402
import seeded  # noqa: E402
import skills  # noqa: E402
import steered  # noqa: E402
import stream_scores  # noqa: E402
import streams  # noqa: E402
import swarm  # noqa: E402
import terminal  # noqa: E402
import terminal_page  # noqa: E402
import tokens  # noqa: E402
import tokens_page  # noqa: E402
import tuned_page  # noqa: E402
import turn_splits  # noqa: E402
import turn_splits_page  # noqa: E402
import turns  # noqa: E402
import turns_page  # noqa: E402
import two_flows  # noqa: E402
import two_modes  # noqa: E402
import two_modes_page  # noqa: E402
import votes  # noqa: E402
import worlds  # noqa: E402
import worlds_page  # noqa: E402
from panels import GAP, HEIGHT, LEFT, TOP, WIDTH, drawing, frame  # noqa: E402

from gimbal.report.figure import COLOURS  # noqa: E402

Runs = Sequence[Mapping[str, Any]]

HEAD = """# Claims

One file a claim: the question, the rule by which it is decided, the command, the record. Everything below is written by
`python claims/page.py` from the record, and a test recomputes it.

"""
DOSE = """## Stale data, a coarse sampler, and a price on discrepancy (`dose.py`)

![Held-out pass@1 against age, and against the learning rate](dose.svg)

"""
SCARCE = {
    "return": "return",
    "aims of the coder": "coder's",
    "draws are off by": "off",
    "draws are off the policy by": "off_policy",
    "seconds of CPU": "cpu",
}
HALF_GOOD = {"return": "return", "balance higher where poor by": "follows", "seconds of CPU": "cpu"}
COMBINATORIAL = {"return": "return", "seconds of CPU": "cpu"}
TWO_FLOWS = {"return": "return", "seconds of CPU": "cpu"}
PRIOR = {"return": "return", "recorded, of a minibatch": "prior", "seconds of CPU": "cpu"}
ADDITIONS = {"return": "return", "weight by errors": "importance", "edited": "edited", "seconds of CPU": "cpu"}
GOALS = {"goals reached": "success", "return": "return", "paid otherwise": "relabelled", "seconds of CPU": "cpu"}
RESIDUAL = {"return": "return", "size of a correction": "size", "seconds of CPU": "cpu"}
STEERED = {"return": "return", "mean of squared noise": "size", "seconds of CPU": "cpu"}
ROBUST = {"worst case": "worst case", "as it is": "as it is", "seconds of CPU": "cpu"}
FAMILIES = {"in the worst": "worst", "over all nine": "mean", "seconds of CPU": "cpu"}
HORIZON = {
    "success after": "after",
    "of 2 turns": "turns_2",
    "of 3": "turns_3",
    "of 4": "turns_4",
    "mean pass rate": "mean",
    "cut": "cut",
    "tokens": "tokens",
    "steps": "steps",
}
HORIZONS = {"mean of six evaluations": "learned", "last": "last", "explained": "explained"}
PROPOSALS = {
    "return": "return",
    "drawn by weights": "drawn",
    "a single proposal": "cloned",
    "gain of the best": "gain",
    "seconds of CPU": "cpu",
}
SEEDED = {"pass@1": "pass", "at the end": "end", "groups seeded": "seeded", "of them solved": "solved"} | {
    "mixed groups per 1,000 tokens": "mixed",
    "steps": "steps",
}
BRANCHES = {name: name for name in ("reward", "true", "coverage", "shared", "steps")} | {"seconds of CPU": "cpu"}
MEMORY = {name: name for name in ("success", "context", "learner", "gap", "broken")} | {"seconds of CPU": "cpu"}
ATOMS = {"held out": "held", "before": "before", "trained pairs": "trained", "seconds of CPU": "cpu"}
RULEBOOK = {"known": "known", "reward of readers": "aware", "of the others": "unaware", "seconds of CPU": "cpu"}
SKILLS = {name + when: name + key for name in skills.NAMES for when, key in ((" before", "_before"), (", after", ""))}
GRADED = {"success": "success", "steps kept": "steps", "of them right": "right"}
SWARM = {
    "mean of its marks": "mean",
    "at the end": "end",
    "groups of the peer, of all that trained": "taken",
    "steps": "steps",
}
DISTILLATION = {"mean of its marks": "mean", "at the end": "end", "steps": "steps"}
VOTES = {
    "mean of its marks": "mean",
    "at the end": "end",
    "right labels": "right",
    "pruned": "pruned",
    "steps": "steps",
}
BALANCE = {name: name for name in ("score", "fitted", "error")}
FLOWS = {name: name for name in ("overlap", "modes", "reward")}
MASKED = {
    "speed": "speed",
    "right at 0.9": "right",
    "tokens per pass at 0.9": "pace",
    "drawn": "drawn",
}
MATCHING = {name: name for name in ("nearness", "coverage", "classes", "distance", "uneven")}
ADVERSARIAL = {name: name for name in ("nearness", "coverage", "classes", "distance")} | {"seconds of CPU": "seconds"}
CACHED = {name: name for name in ("true", "reward", "coverage", "cosine", "steps")} | {"seconds of CPU": "cpu"}
STREAMS = {name: name.replace(" ", "_") for name in ("kept", "kept 6", "kept 1", "nearness", "coverage")}
STREAM_SCORES = {**STREAMS, "seconds of CPU": "seconds"}
FORECASTS = {name: name for name in ("nearness", "fours", "coverage")} | {"seconds of CPU": "seconds"}
BLACKBOX = {name: name for name in ("nearness", "fours", "coverage", "distance")} | {"seconds of CPU": "seconds"}
REVIEWS = {name: name for name in ("right", "gain", "five", "again", "passes")}
DRAFTS = {name: name for name in ("reward", "true", "coverage", "agreement", "steps")} | {"seconds of CPU": "cpu"}
READING = f"""Tuning: the scores of one run each at {", ".join(f"{rate:g}" for rate in dose.RATES)}, the best in bold; "stable" is the
largest stable rate. Score: median (least to most) of the fresh seeds at the best one. Means over those runs and their steps: "clipped",
the share of decisions that the clip left without gradient; "gap", |p - p'| between the sampler and what the clip is anchored to;
"priced", the same against what the price is measured at; "gap at the end", the mean of the last four steps.
"""
COMPARING = """**Comparisons.** By how much the score of the first is above that of the second: the median of all differences, its exact
interval of 96.8 %, and the p of the rule.
"""
PRICES = """**Whether a price on discrepancy helps is not decided here**, and not for want of seeds. The multiplier rose, so by the
rule it acts. But it averaged less than a tenth of the advantage ("price / advantage"), and at equal rates no gap ended lower than
without it ("gap at the end"; *version-version* had another best rate than *none-version*): the gap falls because the policy becomes
sure. That takes a longer run, or a sampler whose gap stays. The comparisons at one rate for all were added because a run had
collapsed there.
"""
# What an arm is on fresh data, where it has no run of its own.
FRESH = {"plain": "plain", "weighted": "plain", "unclipped": "unclipped"}
# (arm, the arm beside it): what they differ in.
PAIRS = {
    "age": {
        ("weighted", "plain"): "the weight",
        ("unclipped", "plain"): "4 updates for one",
        ("clip", "plain"): "4 updates for one, and the clip",
        ("clip", "unclipped"): "the clip",
        ("sampler", "clip"): "what the clip is anchored to",
        ("decoupled", "clip"): "the weight",
        ("truncated", "clip"): "the weight",
    },
    "gap": {("token", "clip"): "the price", ("rollout", "clip"): "the price"},
    "price": {
        ("present-present", "none-present"): "the price",
        ("version-present", "none-present"): "the price",
        ("none-version", "none-present"): "what the clip is anchored to",
        ("present-version", "none-version"): "the price",
        ("version-version", "none-version"): "the price",
    },
}
SHOWN = {  # in the README
    "plain": "policy gradient, no correction",
    "weighted": "the same with importance weights",
    "unclipped": "four updates a batch, no correction",
    "sampler": "PPO's clip around the sampler, four updates",
    "clip": "PPO's clip around the recomputed policy, four updates",
    "truncated": "the same with weights cut at 2 (TIS)",
    "decoupled": "decoupled PPO, four updates",
}
TITLES = {
    "age": "Age {}, float32 sampler.",
    "gap": "int4 sampler at the trainer's version.",
    "price": "int4 sampler, age {}: what the price is measured against, and what the clip is anchored to.",
}


def main() -> None:
    for name, text in pages().items():
        (HERE / name).write_text(text, encoding="utf-8")


def pages() -> dict[str, str]:
    runs, cells = dose.load(), grid.load()
    sections = [
        section(runs),
        grid_page.section(cells),
        holds_page.section(grid.load(holds.RECORD)),
        age_page.section(campaign.load(age_page.age.RECORD)),
        curve_page.section(grid.load(curve.RECORD)),
        tokens_page.section(tokens.load()),
        composed_page.section(tokens.load(composed.RECORD)),
        tuned(memory, "A context that the policy edits", MEMORY),
        cases_page.section(campaign.load(cases.RECORD)),
        tuned(rulebook, "Rules that are read and then known", RULEBOOK),
        tuned(atoms, "Skills that are composed", ATOMS),
        tuned(skills, "Skills that are revised by what came of them", SKILLS),
        tuned_page.section(
            balance, "Old data without a weight", BALANCE, balance.beside(campaign.load(balance.RECORD))
        ),
        tuned(flows, "Ends in proportion to their reward", FLOWS),
        flows.bar(campaign.load(flows.RECORD)),
        tuned(swarm, "Two runs that share their rollouts", SWARM),
        tuned(distillation, "A teacher that grades every token", DISTILLATION),
        tuned(seeded, "Solved examples for tasks that only failed", SEEDED),
        tuned(votes, "Votes of a tree, without labels", VOTES),
        demo_page.section(campaign.load(demo.RECORD)),
        terminal_page.section(grid.load(terminal.RECORD)),
        kuhn_page.section(campaign.load(kuhn.RECORD)),
        echo_page.section(campaign.load(echo.RECORD)),
        tuned_page.section(
            graded, "Right steps, or runs that succeed", GRADED, graded.counted(campaign.load(graded.RECORD))
        ),
        turn_splits_page.section(campaign.load(turn_splits.RECORD)),
        turns_page.section(campaign.load(turns.RECORD)),
        tuned(horizon, "A limit on turns that rises", HORIZON),
        roles_page.section(campaign.load(roles.RECORD)),
        fours_page.section(campaign.load(fours.RECORD)),
        offline_page.section(campaign.load(offline.RECORD)),
        safe_page.section(campaign.load(safe.RECORD)),
        tuned(prior, "Recorded episodes beside one's own", PRIOR),
        tuned(actor_critics, "Additions to soft actor-critic, early", ADDITIONS),
        tuned(horizons, "Several horizons of one critic", HORIZONS),
        tuned(steered, "A frozen flow that is steered", STEERED),
        tuned(residual, "A frozen policy that is corrected", RESIDUAL),
        tuned(goals, "Goals that were reached, for those that were wanted", GOALS),
        tuned(scarce, "Few good actions among few recorded episodes", SCARCE),
        tuned(half_good, "Recorded actions that are good in half of the states", HALF_GOOD),
        tuned(two_flows, "Two flows at once", TWO_FLOWS),
        tuned(combinatorial, "Sets of workers to send", COMBINATORIAL),
        tuned(robust, "Caution where transitions are not as they were", ROBUST),
        tuned(families, "Worst cases of a family, one at a time", FAMILIES),
        two_modes_page.section(campaign.load(two_modes.RECORD)),
        tuned(proposals, "A choice among a flow's proposals", PROPOSALS),
        gardo_page.section(campaign.load(gardo.RECORD)),
        tuned(drafts, "Candidates in few steps", DRAFTS),
        tuned(branches, "Paths that share their first steps", BRANCHES),
        branches_slower_page.section(campaign.load(branches_slower.RECORD)),
        few_steps_page.section(campaign.load(few_steps.RECORD)),
        flow_maps_page.section(campaign.load(flow_maps.RECORD)),
        tuned(group_matching, "Scores that a group normalises", MATCHING),
        tuned(adversarial, "Real samples beside scores", ADVERSARIAL),
        tuned(streams, "Blocks after one's own blocks", STREAMS),
        tuned(stream_scores, "Streams distilled by scores that a reward weighs", STREAM_SCORES),
        tuned(blackbox, "A teacher of which only samples are known", BLACKBOX),
        closed_form_page.section(campaign.load(closed_form.RECORD)),
        tuned(masked, "Tokens of a forward pass", MASKED),
        tuned(reviews, "Masked text that is read again", REVIEWS),
        reward_gradients_page.section(campaign.load(reward_gradients.RECORD)),
        tuned(forecasts, "What a sample earned beyond a forecast", FORECASTS),
        tuned(cached, "The way back through a path that is kept", CACHED),
        failing.section(tokens.load(failing.RECORD)),
        worlds_page.section(campaign.load(worlds.RECORD)),
        control_page.section(campaign.load(control.RECORD)),
        locomotion_page.section(campaign.load(locomotion.RECORD)),
        drafter_page.section(campaign.load(drafter.RECORD)),
    ]
    text = "\n".join([HEAD + glance.overview(sections), *sections])
    return {"README.md": text, "dose.svg": figure(runs), "grid.svg": grid_page.figure(cells)}


def tuned(claim: tuned_page.Claim, title: str, figures: Mapping[str, str]) -> str:
    return tuned_page.section(claim, title, figures, campaign.load(claim.RECORD))


def section(runs: Runs) -> str:
    lines = [DOSE + "\n\n".join((dose.__doc__ or "").split("\n\n")[1:-1]), ""]
    lines.append(f"{len(runs)} of {dose.whole()} runs are recorded.")
    lines += ["", READING]
    for question in dose.QUESTIONS:
        for age in sorted({stage.age for stage in dose.STAGES if stage.question == question}):
            if shown := table(runs, question, age):
                lines += [f"**{TITLES[question].format(age)}**", "", shown, ""]
    return "\n".join([*lines, COMPARING, comparisons(runs), "", PRICES, ""])


def comparisons(runs: Runs) -> str:
    """Every two arms that differ in a part, or an arm and the same on fresh data, and what the rule says of them."""
    lines = ["| question | age | arms | apart in | difference | p | verdict |", "| --- " * 7 + "|"]
    questions = list(dose.QUESTIONS)
    for place, age, rate in sorted({(questions.index(s.question), s.age, s.rate or 0.0) for s in dose.STAGES}):
        question = questions[place]
        pairs = [(one, (question, age, other), other, part) for (one, other), part in PAIRS[question].items()]
        if question == "age" and age:
            fresh = ((arm, FRESH.get(arm, "clip")) for arm in dose.AGE)
            pairs += [(arm, ("age", 0, same), "fresh data", "age") for arm, same in fresh]
        for one, beside, name, part in pairs:
            own, other = values(runs, question, age, one, rate), values(runs, *beside, rate)
            if own and other:
                p, (middle, low, high) = dose.p_value(own, other), campaign.shift(own, other)
                both = f"*{one}*, {name if part == 'age' else f'*{name}*'}" + (f", both at {rate:g}" if rate else "")
                cells = [question, str(age), both, part]
                cells += [f"{middle:+.3f} ({low:+.3f} to {high:+.3f})", f"{p:.3f}", verdict(p)]
                lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def ages(runs: Runs) -> str:
    """What the README shows of the question of age: the median of each arm, on fresh data that of the arm which it is there."""
    at = sorted({stage.age for stage in dose.STAGES if stage.question == "age"})
    lines = ["| method | " + " | ".join(f"age {age}" for age in at) + " |", "|---" * (1 + len(at)) + "|"]
    above: set[str] = set()
    for arm, name in SHOWN.items():
        cells = []
        for age in at:
            same = arm if age else FRESH.get(arm, "clip")
            found = values(runs, "age", age, same)
            cells.append(
                "as above" if not age and same in above else f"{statistics.median(found):.2f}" if found else "not run"
            )
        above.add(FRESH.get(arm, "clip"))
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def missed(runs: Runs, age: int, arms: Sequence[str]) -> float:
    """The largest loss against fresh data that the intervals of these arms do not exclude."""
    lows = (
        campaign.shift(values(runs, "age", age, arm), values(runs, "age", 0, FRESH.get(arm, "clip")))[1] for arm in arms
    )
    return -min(lows)


def recovered(runs: Runs, arm: str, age: int = 4) -> float:
    """The share of what *plain* loses at an age that an arm does not lose, by medians."""
    own, lost, fresh = (
        statistics.median(values(runs, "age", *one)) for one in ((age, arm), (age, "plain"), (0, "plain"))
    )
    return (own - lost) / (fresh - lost)


def verdict(p: float) -> str:
    return "**differ**" if p < dose.P else "not decided"


def spread(scores: Sequence[float]) -> str:
    return f"{statistics.median(scores):.3f} ({min(scores):.3f} to {max(scores):.3f})"


def arms(runs: Runs, question: str, age: int) -> list[str]:
    """Those of which all seeds are recorded."""
    return [arm for arm in dose.QUESTIONS[question] if len(dose.fresh(runs, question, age, arm)) == len(dose.SEEDS)]


def table(runs: Runs, question: str, age: int) -> str:
    names = arms(runs, question, age)
    if not names:
        return ""
    heads = ["arm", "tuning", "stable", "score", "clipped", "gap"]
    if question == "age":
        heads += ["weights above the cap"]
    else:
        heads += ["gap at the end", "priced", "multiplier, least to most", "price / advantage"]
    lines = [f"| {' | '.join(heads)} |", "| --- " * len(heads) + "|"]
    for arm in names:
        cells = [f"*{arm}*: {dose.QUESTIONS[question][arm].says}", *figures(runs, question, age, arm)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def values(runs: Runs, question: str, age: int, arm: str, rate: float | None = None) -> list[float]:
    """The scores of an arm with all its seeds, else none."""
    found = [run["score"] for run in dose.fresh(runs, question, age, arm, rate)]
    return found if len(found) == len(dose.SEEDS) else []


def figures(runs: Runs, question: str, age: int, arm: str) -> list[str]:
    """The cells of an arm: rates, scores, and whether its mechanism was at work."""
    here = dose.fresh(runs, question, age, arm)
    stable = dose.stable(runs, question, age, arm)
    tried, best = dose.tuning(runs, question, age, arm), dose.best(runs, question, age, arm)
    scores = ", ".join(f"**{score:.2f}**" if rate == best else f"{score:.2f}" for rate, score in tried.items())
    cells = [scores, "none" if stable is None else f"{stable:g}"]
    cells.append(spread([run["score"] for run in here]))
    cells.append(f"{statistics.fmean(run['clipped'] for run in here):.4f}")
    cells.append(mean(here, "gap"))
    if question == "age":
        return [*cells, f"{statistics.fmean(run['above_cap'] for run in here):.5f}" if arm in dose.CAPS else ""]
    cells.append(mean([{"gap": run["gap"][-4:]} for run in here], "gap") if "gap" in here[0] else "")
    if "multiplier" not in here[0]:
        return [*cells, "", "", ""]
    moved = [value for run in here for value in run["multiplier"]]
    share = statistics.fmean(sum(run["size"]) / sum(run["of"]) for run in here)
    return [*cells, mean(here, "priced"), f"{min(moved):.2f} to {max(moved):.2f}", f"{share:.3f}"]


def mean(runs: Runs, name: str) -> str:
    """Over seeds and steps; empty where the anchor is the sampler and leaves nothing to measure."""
    return f"{statistics.fmean(statistics.fmean(run[name]) for run in runs):.4f}" if name in runs[0] else ""


def figure(runs: Runs) -> str:
    """Two panels: the score against age, each arm at its best rate; the tuning runs at the oldest age that has them all."""
    ages = sorted({s.age for s in dose.STAGES if s.question == "age" and arms(runs, "age", s.age)})
    seen = [arm for arm in dose.AGE if any(arm in arms(runs, "age", age) for age in ages)]
    lines: dict[str, list[tuple[int, list[float]]]] = {arm: [] for arm in seen}
    for place, age in enumerate(ages):
        for arm in seen:
            if found := values(runs, "age", age, arm if age else FRESH.get(arm, "clip")):
                lines[arm].append((place, found))
    tuned = max((age for age in ages if len(arms(runs, "age", age)) > 2), default=0)
    tuning = {
        arm: [(place, [score]) for place, score in enumerate(dose.tuning(runs, "age", tuned, arm).values())]
        for arm in arms(runs, "age", tuned)
    }
    panels = [
        panel(LEFT, lines, [str(age) for age in ages], "age of the data (versions), at the best rate"),
        panel(
            LEFT + WIDTH + GAP,
            tuning,
            [f"{rate:g}" for rate in dose.RATES],
            f"learning rate, age {tuned}, one run each",
        ),
    ]
    title = f"Held-out pass@1 after {dose.STEPS} steps"
    return drawing(
        title,
        f"{title}: median and range of {len(dose.SEEDS)} seeds; dashed: before training",
        panels,
        [(colour(arm), f"{arm}: {dose.AGE[arm].says}") for arm in seen],
    )


def colour(arm: str) -> str:
    return COLOURS[list(dose.AGE).index(arm) % len(COLOURS)]


def panel(left: float, lines: Mapping[str, list[tuple[int, list[float]]]], ticks: Sequence[str], below: str) -> str:
    step = WIDTH / max(1, len(ticks) - 1)

    def at(place: int, value: float) -> str:
        return f"{left + place * step:.1f},{TOP + HEIGHT * (1 - value):.1f}"

    y = TOP + HEIGHT * (1 - dose.BEFORE)
    parts = frame(left, ticks, below)
    parts.append(f'<path class="axis" stroke-dasharray="4 4" d="M{left},{y:.1f} h{WIDTH}"/>')
    for arm, points in lines.items():
        band = [at(i, max(found)) for i, found in points] + [at(i, min(found)) for i, found in reversed(points)]
        middle = [at(i, statistics.median(found)) for i, found in points]
        parts.append(f'<polygon class="band" fill="{colour(arm)}" points="{" ".join(band)}"/>')
        parts.append(f'<polyline class="line" stroke="{colour(arm)}" points="{" ".join(middle)}"/>')
        parts += [f'<circle cx="{x}" cy="{y}" r="3" fill="{colour(arm)}"/>' for x, y in (p.split(",") for p in middle)]
    return "".join(parts)


if __name__ == "__main__":
    main()
