"""The doctor's rules for the machinery: signs that count whatever the run's outcome."""

from __future__ import annotations

import math
import shlex
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from gimbal.report.files import lost
from gimbal.report.record import CONTROL, CURVE, SAMPLES, TOKENS, Record, Sign, figure, names, noise, short

# Share of repeated texts whose scores differ: a verifier that reads the text gives 0. Rewards that sample may
# differ, so a few are tolerated, and fewer texts than REPEATS are not judged.
UNLIKE, REPEATS = 0.05, 10
# KL(sampler || trainer) per decision, in nats, at equal weights. An int8 sampler of gimbal-tiny has 2e-5, a bfloat16 one
# 1e-4; at 1e-3, a rollout of 1000 decisions is e times as likely under one as under the other.
DISCREPANCY = 1e-3
# Share of decisions of the learner's own version above which a step shows the sampler's gap and not staleness.
FRESH, ALL_FRESH = 0.9, 0.999
# Groups that pass the filters: below a quarter, a batch costs four times its generation. Active dynamic sampling keeps 0.4 to 1.
KEPT = 0.25
# A gradient norm from float32 rounding only; decisions with a gradient, one in a hundred.
NO_GRADIENT, LIVE = (1e-6, 0.01)
HOLDING = ("KLPenalty", "EntropyBonus", "ValueLoss")  # regularisers that teach no task
SEVERAL_FRESH = 3  # least steps for a mean of signed log-ratios, which scatter widely around a small divergence
SHORTEST = 8  # least steps to judge a closed loop by where its rate ended
SLIGHT = 0.01  # of a limit: what is above it by less is at it
LOST = 0.25  # share of steps undone: the run then learns from at most three quarters of its data
SEVERAL = 4  # steps from which equal scores in all groups are no accident
DESIGNED = ("drops/hinted", "drops/profile")  # groups that a method samples in order to drop them
GROUPS = 8  # the same for groups in the second half: two rollouts have equal scores in half of all cases
STOP = "stopped by an error"
# Errors that a rule explains.
ENDINGS = {"NotDelivered": "no delivery", "NotFinite": "not finite", "Starved": "filter starvation"}
STRAYS = 3.0  # standard errors by which a mean of signed log-ratios must differ from 0


def damaged(record: Record) -> Sign | None:
    """Lines of its metrics are lost, so all else is judged by what is left."""
    said = lost(record.rows, record.summary.get("steps"))
    return Sign(name="damaged", evidence=said, experiment=record.again()) if said else None


def no_delivery(record: Record) -> Sign | None:
    """The proof of delivery failed and stopped the run, or was set not to stop it."""
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


def no_updates(record: Record) -> Sign | None:
    """The buffer never held enough to learn from: every step only filled it."""
    moves, held, first = record("replay/moves"), record("replay/held"), record.setting("store.learning_starts", None)
    if first is None or not moves or moves[-1] > 0:
        return None
    evidence = f"none of {len(moves)} steps trained a weight: they put {held[-1]:,.0f} decisions into the buffer"
    if first < held[-1]:
        return Sign(
            name="no updates",
            evidence=f"{evidence}, too few for one update at store.update_to_data",
            experiment=record.again("store.update_to_data=1"),
        )
    start = max(1, int(held[-1]) // 10)
    return Sign(
        name="no updates",
        evidence=f"{evidence}, and the first {first:,} move nothing (store.learning_starts)",
        experiment=record.again(f"store.learning_starts={start}"),
    )


def not_finite(record: Record) -> Sign | None:
    if record.stopped is None or record.stopped["error"] != "NotFinite":
        return None
    change = _calmer(record) if record.held else record.rate(0.3)
    return Sign(name="not finite", evidence=record.stopped["sentence"], experiment=record.again(change))


def undone(record: Record) -> Sign | None:
    """The closed loop undid steps: the run continued but learned nothing from them."""
    kept = record("loop/kept")
    lost, broken = sum(share == 0 for share in kept), len(record("loop/not_finite"))
    if lost < max(1.0, LOST * len(kept)):
        return None
    evidence = (
        f"the closed loop undid {lost} of {len(kept)} steps (limit {LOST:.0%}): the loss or gradient of {broken} was not finite, and "
        f"{lost - broken} went too far at any scale"
    )
    return Sign(name="steps undone", evidence=evidence, experiment=record.again(_calmer(record)))


def pegged(record: Record) -> Sign | None:
    """The closed loop was at the end of its range for the last quarter of the run."""
    factors = record("loop/factor")
    last = factors[-max(1, len(factors) // 4) :]
    widest = float(record.setting("stability.widest", 100.0))
    if len(factors) < SHORTEST or not (min(last) >= widest or max(last) <= 1 / widest):
        return None
    rate = record.learning_rate * last[-1]
    evidence = (
        f"the closed loop kept the learning rate at {last[-1]:g} times the given one, the end of its range, in the last {len(last)} of "
        f"{len(factors)} steps: no rate within it fits"
    )
    return Sign(name="rate at its end", evidence=evidence, experiment=record.again(f"learning_rate={short(rate)}"))


def broken_limit(record: Record) -> Sign | None:
    """Costs that a Lagrangian holds to a limit were above it in the last quarter of the run, beyond noise. Other limits are a method's
    own, and some of them are never reached: a share of unsafe steps of 0."""
    for place in ("controllers", "update.controllers"):
        for path, rule in record.setting(place, {}).items():
            signal = str(rule.get("signal"))
            values = record(signal) if rule.get("class") == "Lagrangian" and signal.startswith("cost/") else []
            last, limit = values[-max(1, len(values) // 4) :], float(rule.get("limit", math.inf))
            if len(values) < SHORTEST:
                continue
            excess = statistics.fmean(last) - limit
            if excess <= CURVE * math.sqrt(noise(values) / len(last)) + SLIGHT * abs(limit):
                continue
            own, high = record(f"control/{path}")[-1:], float(rule.get("high", math.inf))
            spent = bool(own) and own[0] >= high
            evidence = (
                f"{signal} was {figure(statistics.fmean(last))} on average in the last {len(last)} of {len(values)} "
                f"steps, above its limit of {limit:g}; {path} ended at {', '.join(map(figure, own)) or 'no value'}"
                + (", the highest it may be" if spent else "")
            )
            change = f"high={short(10 * high)}" if spent else f"rate={short(3 * float(rule.get('rate', 1.0)))}"
            return Sign(name="limit broken", evidence=evidence, experiment=record.again(f"{place}.{path}.{change}"))
    return None


def _calmer(record: Record) -> str:
    """What to change in a run whose loop already lowers the learning rate."""
    if not record("loop/not_finite"):
        return f"learning_rate={short(0.1 * record.learning_rate)}"  # the loop's lowest factor was not low enough
    if record.setting("policy.dtype", "float32") != "float32":
        return "policy.dtype=float32"
    if "update" not in record.run and record.run.get("correction") is None:
        return "correction=MaskedWeight()"  # a log-ratio whose exponential overflows
    return "record_every=1"  # scores and log-probabilities of every rollout, to find the NaN


def lost_samples(record: Record) -> Sign | None:
    """Rollouts trained on twice, or missing from their group without a counted reason."""
    doubled, missing = sum(record("samples/doubled")), sum(record("samples/missing"))
    counted = sum(max(record(name), default=0.0) for name in names(record, "drops/rollouts/"))
    if doubled == 0 and missing <= counted:
        return None
    evidence = f"{doubled:.0f} rollouts were trained on twice; {missing:.0f} are missing, {counted:.0f} of these for a counted reason"
    return Sign(name="lost samples", evidence=evidence, experiment=record.again("runtime=Local()"))


def noisy_reward(record: Record) -> Sign | None:
    """A text gets one score, then another. Of recorded answers the data have the scores: two sides of a pair may say the same."""
    repeats, unlike = record("reward/repeats"), record("reward/unlike_frac")
    texts = sum(repeats)
    if texts < REPEATS or record.offline:
        return None
    share = sum(n * frac for n, frac in zip(repeats, unlike, strict=True)) / texts
    if share < UNLIKE:
        return None
    evidence = f"of {texts:.0f} texts sampled more than once for one task, {share:.0%} got different scores (limit {UNLIKE:.0%})"
    return Sign(name="noisy reward", evidence=evidence, experiment=record.again("learning_rate=0", "record_every=1"))


def mismatch(record: Record) -> Sign | None:
    """Sampler and trainer disagree at equal weights from the first step."""
    first = next(iter(_fresh(record)), None)  # one step gives a good second estimate and a poor first one
    return mismatch_grown(record) if first is not None and _discrepancy(record, [], [first]) >= DISCREPANCY else None


def mismatch_grown(record: Record) -> Sign | None:
    """They disagree in steps whose decisions are of the learner's own version; steps that are too large cause this too."""
    rows, whole = _fresh(record), _fresh(record, ALL_FRESH)
    if not whole or (largest := _discrepancy(record, rows, whole)) < DISCREPANCY:
        return None
    gaps = [row["mismatch/prob_diff"] for row in whole if row.get("mismatch/prob_diff") is not None]
    told = f" and mean |p - p'| {statistics.median(gaps):.2g}" if gaps else ""  # meaningless for densities
    evidence = (
        f"at equal weights KL(sampler || trainer) is {largest:.2g} nats a decision (limit {DISCREPANCY:g}){told}, "
        f"over {len(whole)} step{'s' * (len(whole) != 1)} without stale decisions"
    )
    engine = record.setting("engine.precision", "float32")
    weights = max(record.directory.glob("checkpoints/step_*"), default=record.directory / "checkpoints")
    command = f"gimbal doctor {weights} --engine native:{engine} --against native:float32"
    if record.family == SAMPLES:
        evidence += "; a sampler of your own with another guidance than policy.guidance looks like this too"
    if record.family in (CONTROL, SAMPLES):
        command = record.again(f"engine.{'precision' if record.setting('engine.precision', '') else 'dtype'}=float32")
    return Sign(name="mismatch", evidence=evidence, experiment=command)


def _fresh(record: Record, share: float = FRESH) -> list[Mapping[str, Any]]:
    """Steps that measured the mismatch almost only on decisions of the learner's own version."""
    exact = record.setting("anchor.class", "") in ("SamplingVersion", "Interruption")
    rows = [row for row in record.rows if row.get("mismatch/k3") is not None]
    return [row for row in rows if exact or (row.get("staleness/share/0") or 0.0) >= share]


def _discrepancy(record: Record, rows: Sequence[Mapping[str, Any]], whole: Sequence[Mapping[str, Any]]) -> float:
    """The larger of two estimates of one divergence: over fresh decisions, which catches rare large gaps, and over all decisions of
    steps with only fresh ones, which catches truncation. With few decisions neither counts what chance explains."""
    k1 = [-row["cause/discrepancy"] for row in rows if row.get("cause/discrepancy") is not None]
    signed = statistics.median(k1) if len(k1) >= SEVERAL_FRESH else 0.0
    # The mean of n signed log-ratios has an error of sqrt(2 KL / n) around a KL that k3 estimates far better.
    k3, count = statistics.median(row["mismatch/k3"] for row in whole), sum(_decisions(record, row) for row in rows)
    if count and signed <= STRAYS * math.sqrt(2 * k3 / count):
        signed = 0.0
    return max(signed, statistics.median(_without_largest(record, row) for row in whole))


def _without_largest(record: Record, row: Mapping[str, Any]) -> float:
    """k3 of a step without its largest gap: among few decisions, one rare gap says nothing about the sampler."""
    count, gap = _decisions(record, row), row.get("mismatch/logp_diff_max")
    if not count or gap is None:
        return row["mismatch/k3"]
    return row["mismatch/k3"] - (gap - 1 + math.exp(-gap)) / count


def _decisions(record: Record, row: Mapping[str, Any]) -> float:
    """How many decisions a step trained on; 0 if that is not recorded."""
    rollouts = record.setting("prompts_per_step", 16) * record.setting("num_generations", 8)
    return (row.get("length/mean") or 0.0) * rollouts


def starved_at_once(record: Record) -> Sign | None:
    """Filters let almost nothing through from the first steps: the tasks or the reward are to blame."""
    kept = _kept(record, early=True)
    return filter_starvation(record) if kept is None or kept < KEPT else None


def _kept(record: Record, early: bool = False) -> float | None:
    """The median share of groups that filters kept, of those that were not sampled to be dropped (``DESIGNED``)."""
    shares, before = list[float](), 0.0
    for row in record.rows:
        so_far = sum(row.get(name) or 0.0 for name in DESIGNED)
        if (share := row.get("kept_frac")) is not None:
            gone, before = (so_far - before) / record.setting("prompts_per_step", 16), so_far
            shares.append(min(1.0, share / max(share, 1 - share * gone)))  # with n kept groups n / share were finished
    half = shares[: (len(shares) + 3) // 4] if early else shares[len(shares) // 2 :]
    return statistics.median(half) if half else None


def filter_starvation(record: Record) -> Sign | None:
    kept, more = _kept(record), 2 * record.setting("num_generations", 8)
    if record.stopped is not None and record.stopped["error"] == "Starved":
        evidence = f"the run stopped after step {record.stopped['step']}: {record.stopped['sentence']}"
    elif kept is not None and kept < KEPT and not record.solved:
        evidence = f"filters kept {kept:.0%} of the groups (median of the second half; limit {KEPT:.0%})"
    else:
        return None
    return Sign(name="filter starvation", evidence=evidence, experiment=record.again(f"num_generations={more}"))


def dead_gradient(record: Record) -> Sign | None:
    """No gradient from the beginning; if it vanished later, something else caused that."""
    first = [next(iter(record(name)), None) for name in ("grad_norm", "live_frac")]
    early = [record.early(name) for name in ("grad_norm", "live_frac")]
    return gradient_died(record) if _dead(record, *first) and _dead(record, *early) else None


def gradient_died(record: Record) -> Sign | None:
    norm, live = record.late("grad_norm"), record.late("live_frac")
    if len(record.rows) < SEVERAL or record.solved or not _dead(record, norm, live):
        return None
    half = record.rows[len(record.rows) // 2 :]
    # The median of a few steps means little: a step of two groups sometimes has no gradient.
    if len(half) < SEVERAL and not all(_dead(record, row.get("grad_norm"), row.get("live_frac")) for row in half):
        return None
    if record.family == TOKENS and len(half) * record.setting("prompts_per_step", 16) < GROUPS:
        return None
    alike = record.late("reward/zero_std_frac") or 0.0
    evidence = (
        f"the gradient norm is {norm:.2g}, {live or 0:.1%} of decisions have a gradient, and in {alike:.0%} of the groups all scores "
        "are equal"
    )
    more = 2 * record.setting("num_generations", 8)
    return Sign(name="dead gradient", evidence=evidence, experiment=record.again(f"num_generations={more}"))


def _dead(record: Record, norm: float | None, live: float | None) -> bool:
    taught = any(part.get("class") not in HOLDING for part in record.run.get("regularisers") or ())
    return norm is not None and (norm < NO_GRADIENT or (live is not None and live < LIVE and not taught))


def stopped(record: Record) -> Sign | None:
    """An error ended the run: its own message, unless a rule for this error has it."""
    if record.stopped is None or record.stopped["error"] in ENDINGS:
        return None
    step = record.stopped["step"]
    return Sign(
        name=STOP,
        evidence=f"{f'after step {step}' if step else 'in the first step'}: {record.stopped['sentence']}",
        experiment=f"fix this, then gimbal train --resume {shlex.quote(str(record.directory))}",
    )
