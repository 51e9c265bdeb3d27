"""Which figures of an evaluation show what was learned, and which of them are better smaller."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

# For tasks that can be solved, a graded reward, an environment's return, and written answers.
SOLVED = {"eval/pass@1": "held-out pass@1 (sampled)", "eval/greedy": "held-out accuracy (greedy)"}
SCORE = {"eval/score": "held-out score (sampled)", "eval/greedy_score": "held-out score (greedy)"}
RETURN = {"eval/score": "held-out return (sampled)", "eval/greedy_score": "held-out return (greedy)"}
WORST = {"eval/worst/greedy_score": "held-out return (greedy) of the worst source"}
SUCCESS = {"eval/greedy_success": "held-out success (greedy)"}  # by the environment's own word
COST = {"eval/greedy_cost": "held-out cost (greedy)"}  # of an episode, where its environment says so
LOSS = {"eval/loss": "held-out loss", "eval/pair/accuracy": "held-out accuracy (pairs)"}
SMALLER = " (smaller is better)"


def smaller(metric: str) -> bool:
    """Whether it is better the smaller it is: a loss, a cost or a distance."""
    return "/distance" in metric or metric.rpartition("/")[2] in ("loss", "cost", "greedy_cost")


def named(metric: str) -> str:
    """A metric of an evaluation or of rewards as a sentence names it."""
    return metric.removeprefix("eval/").removeprefix("reward/") + SMALLER * smaller(metric)


def only_graded(metrics: Mapping[str, Sequence[float | None]], *evaluations: Mapping[str, Any]) -> bool:
    """Whether scores are all that is known: not all are 0, and no answer of the run or of its evaluations reached 1."""
    shares = [value for name, values in metrics.items() if solving(name) for value in values]
    shares += [value for one in evaluations for name, value in one.items() if solving(name)]
    return any(metrics.get("reward/mean", ())) and not any(shares)


def solving(metric: str) -> bool:
    """Whether it is a share of tasks that are solved."""
    return metric in ("pass_rate", "eval/greedy") or metric.startswith(("eval/pass@", "eval/maj@"))


def measures(row: Mapping[str, object], kind: str) -> dict[str, str]:
    """What rewards say of many samples together (``AbstractReward.figures``), each with its name."""
    others = ("source", "worst", "failed", "pair")  # what else an evaluation has under a name of its own
    found = {
        key: key.removeprefix(kind) for key in row if key.startswith(kind) and key.removeprefix(kind).count("/") == 1
    }
    return {
        key: name.removeprefix("greedy_") + " (greedy)" * name.startswith("greedy_")
        for key, name in found.items()
        if name.partition("/")[0] not in others and not name.endswith(("/mean", "/unscored_frac"))
    }


def ranked(*evaluations: Mapping[str, Any]) -> dict[str, str]:
    """The figures that show what was learned in these evaluations, most informative first, each with its name. A reward with values
    other than 0 and 1 also has its mean, which comes first if no sample ever reached 1, and stands alone if no greedy answer did
    either. Where rewards only measure (a weight of 0), their sum is no figure, and what they measure is.
    """

    def ever(*names: str) -> bool:
        return any(one.get(name) for one in evaluations for name in names)

    known = {name: None for one in evaluations for name in one}
    measured = {key: f"held-out {name}{SMALLER * smaller(key)}" for key, name in measures(known, "eval/").items()}
    only = bool(measured) and not ever(*SCORE)
    if "eval/loss" in known:
        return LOSS
    if "eval/pass@1" not in known:
        others = {name: said for name, said in (WORST | SUCCESS | COST).items() if name in known}
        # Goals without rewards: a return that is always 0 shows nothing.
        unpaid = SUCCESS if SUCCESS.keys() <= known.keys() and not ever(*SCORE) else {}
        return measured if only else unpaid | RETURN | others
    if only:
        return SOLVED | measured
    if ever("eval/score") and not ever("eval/pass@1"):
        return SCORE | SOLVED if ever("eval/greedy") else SCORE
    alike = all(math.isclose(one.get("eval/pass@1") or 0.0, one.get("eval/score") or 0.0) for one in evaluations)
    return SOLVED if alike else SOLVED | SCORE


def figures(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, str]:
    """Those of ``ranked`` that both evaluations have."""
    return {key: name for key, name in ranked(before, after).items() if key in before and key in after}
