"""What ails a run, told from what it left on disk: a name, the evidence in figures, and one experiment that would settle it.

A rule looks at one thing and has one limit, stated with its reason. The rules are tried from causes to effects, because a lost
delivery or a mismatch takes entropy, length and reward along; the first that holds names the run, and all that hold are reported.
Nothing a fault left behind (``faults`` of the recipe, ``scores["faults"]``) is read.
"""

from __future__ import annotations

import json
import math
import shlex
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from gimbal.config import read_file
from gimbal.report.files import STOPPED, JsonLines

NOTHING = "nothing wrong"

# Share of repeated texts whose scores differ: a verifier that looks at the text gives 0. Rewards that compare within the group may
# differ, so a few are let pass, and none are judged on fewer texts than REPEATS.
UNLIKE, REPEATS = 0.05, 10
# Groups that pass the filters: below a quarter, a batch costs four times its generation. Dynamic sampling at work keeps 0.4 to 1.
KEPT = 0.25
# A gradient norm of float32 rounding alone; and a share of decisions with a gradient that leaves one in a hundred.
NO_GRADIENT, LIVE = 1e-6, 0.01
SOLVED = 0.95  # above it groups are all alike, and gradients small, because the tasks are solved
# KL(sampler || trainer) a decision, in nats, where the weights are equal. An int8 sampler of gimbal-tiny has 2e-5 and a bfloat16 one
# 1e-4; where it is 1e-3, a rollout of 1000 decisions is e times as likely under the one as under the other.
DISCREPANCY = 1e-3
FRESH = (
    0.9  # share of decisions of the learner's own version from which a step speaks of the sampler and not of staleness
)
# Mean |p - p'| of decisions at least two versions old. Clipping starts at a ratio of 1.2; at 0.05 every fifth decision of probability
# 0.5 is beyond it before the step has begun. A gap that large at age 1 is the size of the step and not the age.
STALE, OLD = 0.05, 1.5
ENTROPY_LEFT = 0.25  # of that at the beginning, without more tasks solved; one that is being learned also takes entropy
GROWN = 2.0  # of length against the beginning, without more tasks solved; careful working may take half as long again
CUT_OFF = 0.3  # rollouts that end at max_length: an answer is usually at their end, so they cannot be right
SIGNIFICANT = 3.0  # standard errors, told from step to step
WORTH = 0.05  # a change of the pass rate that is worth a name
SEVERAL = 4  # steps from which groups that all score alike are no accident
TREND = 8  # steps from which a run has a beginning and an end, a quarter of it each


@dataclass(frozen=True, kw_only=True)
class Sign:
    """One signature that a run shows."""

    name: str
    evidence: str
    experiment: str


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """What the doctor says of a run; ``signs`` are in the order of causes before effects."""

    run: str
    steps: int
    signs: tuple[Sign, ...]
    looked_at: str

    @property
    def name(self) -> str:
        return self.signs[0].name if self.signs else NOTHING

    def text(self) -> str:
        lines = [f"{self.run}: {self.name}"]
        for sign in self.signs:
            lines.append(f"  {sign.name}: {sign.evidence}")
        if not self.signs:
            lines.append(f"  {self.looked_at}")
        else:
            lines.append(f"  next: {self.signs[0].experiment}")
        return "\n".join(lines)

    def json(self) -> str:
        return json.dumps({"name": self.name, **asdict(self)}, indent=1)


class Record:
    """A run as its files tell it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.rows = JsonLines(directory / "metrics.jsonl").read()
        stopped, recipe = directory / STOPPED, directory / "recipe.yaml"
        self.stopped = read_file(stopped) if stopped.is_file() else None
        self.run = read_file(recipe).get("run", {}) if recipe.is_file() else {}

    def __call__(self, name: str) -> list[float]:
        """The values of a metric, of the steps that know it."""
        return [row[name] for row in self.rows if row.get(name) is not None]

    def late(self, name: str) -> float | None:
        """Its median over the second half of the run."""
        values = self(name)
        return statistics.median(values[len(values) // 2 :]) if values else None

    def ends(self, name: str) -> tuple[float, float, float] | None:
        """(mean of the first quarter, of the last quarter, standard error of the difference); None of a run too short to have them."""
        values = self(name)
        if len(values) < TREND:
            return None
        width = len(values) // 4
        # Neighbouring steps differ by noise more than by learning.
        steps = [later - earlier for earlier, later in pairwise(values)]
        variance = sum(step * step for step in steps) / (2 * len(steps))
        return statistics.fmean(values[:width]), statistics.fmean(values[-width:]), math.sqrt(2 * variance / width)

    def solved(self) -> bool:
        return (self.late("pass_rate") or 0.0) >= SOLVED

    def again(self, *changes: str) -> str:
        """The run anew and shorter, with these keys, as a shell takes it."""
        words = ["gimbal", "train", "--from", str(self.directory), f"steps={max(12, len(self.rows) // 4)}", *changes]
        return shlex.join(words)


def examine(directory: Path) -> Diagnosis:
    """The diagnosis of a run by its directory; a ValueError if nothing of it is on record."""
    record = Record(directory)
    if not record.rows and record.stopped is None:
        raise ValueError(f"{directory} has neither metrics nor a reason why it stopped: let it take a step first")
    found = [rule(record) for rule in RULES]
    return Diagnosis(
        run=str(directory),
        steps=len(record.rows),
        signs=tuple(sign for sign in found if sign is not None),
        looked_at=_looked_at(record),
    )


def no_delivery(record: Record) -> Sign | None:
    """The proof of delivery failed: it stopped the run, or was told not to."""
    failed, stopped = record("sync/failed"), record.stopped
    if stopped is not None and stopped["error"] == "NotDelivered":
        evidence = f"after step {stopped['step']} the proof of delivery failed: {stopped['sentence']}"
    elif sum(failed) > 0:
        evidence = f"the proof of delivery failed after {sum(failed):.0f} of {len(failed)} steps"
    else:
        return None
    return Sign(
        name="no delivery", evidence=evidence, experiment=record.again("sync=Direct()", "engine.precision=float32")
    )


def not_finite(record: Record) -> Sign | None:
    if record.stopped is None or record.stopped["error"] != "NotFinite":
        return None
    rate = record.run.get("optimization", {}).get("learning_rate", 1e-4)
    return Sign(
        name="not finite", evidence=record.stopped["sentence"], experiment=record.again(f"learning_rate={rate / 3:.2g}")
    )


def lost_samples(record: Record) -> Sign | None:
    """Rollouts trained on twice, or absent from their group without a counted reason."""
    doubled, missing = sum(record("samples/doubled")), sum(record("samples/missing"))
    counted = sum(max(record(name), default=0.0) for name in _names(record, "drops/rollouts/"))
    if doubled == 0 and missing <= counted:
        return None
    evidence = f"{doubled:.0f} rollouts were trained on twice; {missing:.0f} never came, {counted:.0f} of them for a counted reason"
    return Sign(name="lost samples", evidence=evidence, experiment=record.again("runtime=Local()"))


def noisy_reward(record: Record) -> Sign | None:
    repeats, unlike = record("reward/repeats"), record("reward/unlike_frac")
    texts = sum(repeats)
    if texts < REPEATS:
        return None
    share = sum(n * frac for n, frac in zip(repeats, unlike, strict=True)) / texts
    if share < UNLIKE:
        return None
    evidence = f"of {texts:.0f} texts written several times for one task, {share:.0%} were not scored alike (limit {UNLIKE:.0%})"
    return Sign(name="noisy reward", evidence=evidence, experiment=record.again("learning_rate=0", "record_every=1"))


def filter_starvation(record: Record) -> Sign | None:
    kept, more = record.late("kept_frac"), 2 * record.run.get("num_generations", 8)
    if record.stopped is not None and record.stopped["error"] == "Starved":
        evidence = f"the run stopped after step {record.stopped['step']}: {record.stopped['sentence']}"
    elif kept is not None and kept < KEPT and not record.solved():
        evidence = f"filters kept {kept:.0%} of the groups (median of the second half; limit {KEPT:.0%})"
    else:
        return None
    return Sign(name="filter starvation", evidence=evidence, experiment=record.again(f"num_generations={more}"))


def dead_gradient(record: Record) -> Sign | None:
    norm, live, alike = record.late("grad_norm"), record.late("live_frac"), record.late("reward/zero_std_frac")
    if (
        norm is None
        or len(record.rows) < SEVERAL
        or record.solved()
        or (norm >= NO_GRADIENT and (live is None or live >= LIVE))
    ):
        return None
    evidence = f"gradient norm {norm:.2g}, {live or 0:.1%} of decisions have a gradient, {alike or 0:.0%} of groups score alike"
    more = 2 * record.run.get("num_generations", 8)
    return Sign(name="dead gradient", evidence=evidence, experiment=record.again(f"num_generations={more}"))


def mismatch(record: Record) -> Sign | None:
    """Sampler and trainer disagree at equal weights: over the steps whose decisions are of the learner's own version."""
    exact = record.run.get("anchor", {}).get("class") in ("SamplingVersion", "Interruption")
    rows = [row for row in record.rows if exact or (row.get("staleness/share/0") or 0.0) >= FRESH]
    k3 = [row["mismatch/k3"] for row in rows if row.get("mismatch/k3") is not None]
    k1 = [-row["cause/discrepancy"] for row in rows if row.get("cause/discrepancy") is not None]
    if not k3:
        return None
    # Two estimates of one divergence; truncation shows in the first, rare large gaps in the second.
    largest = max(statistics.median(k1) if k1 else 0.0, statistics.median(k3))
    if largest < DISCREPANCY:
        return None
    gap = statistics.median([row["mismatch/prob_diff"] for row in rows])
    evidence = (
        f"at equal weights KL(sampler || trainer) is {largest:.2g} nats a decision (limit {DISCREPANCY:g}) and mean |p - p'| "
        f"{gap:.2g}, over {len(k3)} step{'s' * (len(k3) != 1)} without stale decisions"
    )
    engine = record.run.get("engine", {}).get("precision", "float32")
    weights = max(record.directory.glob("checkpoints/step_*"), default=record.directory / "checkpoints")
    command = f"gimbal doctor {weights} --engine native:{engine} --against native:float32"
    return Sign(name="mismatch", evidence=evidence, experiment=command)


def staleness(record: Record) -> Sign | None:
    age, gap = record.late("staleness/mean"), record.late("mismatch/prob_diff/age_above_0")
    if age is None or gap is None or age < OLD or gap < STALE:
        return None
    share = record.late("mismatch/ess_sequence")
    evidence = (
        f"decisions are {age:.1f} versions old on average and differ by |p - p'| = {gap:.2g} from the learner (limit {STALE:g} beyond "
        f"age {OLD:g}); the effective share of rollouts is {share or math.nan:.2f}"
    )
    return Sign(name="staleness", evidence=evidence, experiment=record.again(f"max_staleness={int(age) // 2}"))


def length_runaway(record: Record) -> Sign | None:
    length, passes, cut = record.ends("length/mean"), record.ends("pass_rate"), record.late("length/truncated_frac")
    if length is None or passes is None:
        return None
    grown = length[1] >= GROWN * length[0] and length[1] - length[0] > SIGNIFICANT * length[2]
    in_vain = passes[1] - passes[0] < WORTH
    if not in_vain or not (grown or (cut or 0.0) >= CUT_OFF):
        return None
    evidence = (
        f"length went from {length[0]:.1f} to {length[1]:.1f} ({length[1] / length[0]:.2f}x, limit {GROWN:g}x), {cut or 0:.0%} are cut "
        f"off, and the pass rate went from {passes[0]:.3f} to {passes[1]:.3f}"
    )
    limit, count = record.run.get("sampling", {}).get("max_length", 64), len(record.run.get("rewards", ()))
    penalty = f"OverlongPenalty(limit={limit}, zone={limit // 2})"
    return Sign(name="length run-away", evidence=evidence, experiment=record.again(f"rewards.{count}={penalty}"))


def reward_hacking(record: Record) -> Sign | None:
    score, passes = record.ends("reward/mean"), record.ends("pass_rate")
    if score is None or passes is None:
        return None
    rose = score[1] - score[0] > SIGNIFICANT * score[2]
    fell = passes[0] - passes[1] > max(WORTH, SIGNIFICANT * passes[2])
    if not (rose and fell):
        return None
    evidence = (
        f"the score rose from {score[0]:.3f} to {score[1]:.3f} while the pass rate (the first reward's verdict) fell from "
        f"{passes[0]:.3f} to {passes[1]:.3f}, each by more than {SIGNIFICANT:g} standard errors"
    )
    others = len(record.run.get("rewards", ()))
    change = f"rewards.{others - 1}.weight=0" if others > 1 else "regularisers=(KLPenalty(),)"
    return Sign(name="reward hacking", evidence=evidence, experiment=record.again(change))


def entropy_collapse(record: Record) -> Sign | None:
    """Entropy gone without the tasks being learned: a policy that has become right is sure of itself as well."""
    entropy, passes = record.ends("entropy/sampled"), record.ends("pass_rate")
    if entropy is None or passes is None or record.solved():
        return None
    if entropy[1] > ENTROPY_LEFT * entropy[0] or passes[1] - passes[0] >= WORTH:
        return None
    evidence = (
        f"entropy went from {entropy[0]:.3f} to {entropy[1]:.3f} nats a decision (limit {ENTROPY_LEFT:.0%} of the beginning) while the "
        f"pass rate went from {passes[0]:.3f} to {passes[1]:.3f}"
    )
    return Sign(name="entropy collapse", evidence=evidence, experiment=record.again("entropy_coeff=0.003"))


# From causes to effects; the first that holds names the run.
RULES: Sequence[Callable[[Record], Sign | None]] = (
    no_delivery,
    not_finite,
    lost_samples,
    noisy_reward,
    mismatch,
    staleness,
    length_runaway,
    reward_hacking,
    entropy_collapse,  # before what it brings about: samples alike, groups that teach nothing
    filter_starvation,
    dead_gradient,
)


def _names(record: Record, prefix: str) -> list[str]:
    return sorted({name for row in record.rows for name in row if name.startswith(prefix)})


def _looked_at(record: Record) -> str:
    """The figures of a run that shows no signature, so that silence can be checked."""
    shown: list[str] = []
    figures: dict[str, Any] = {
        "pass rate": record.late("pass_rate"),
        "entropy": record.late("entropy/sampled"),
        "|p - p'|": record.late("mismatch/prob_diff"),
        "age": record.late("staleness/mean"),
        "groups kept": record.late("kept_frac"),
        "gradient norm": record.late("grad_norm"),
        "length": record.late("length/mean"),
    }
    shown = [f"{name} {value:.3g}" for name, value in figures.items() if value is not None]
    return f"{len(record.rows)} steps; medians of the second half: {', '.join(shown)}"
