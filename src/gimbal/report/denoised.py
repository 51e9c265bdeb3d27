"""The doctor's rules for policies that make samples: by denoising, or by filling in masked cells or scales."""

from __future__ import annotations

from gimbal.report.held_out import named
from gimbal.report.record import WORTH, Record, Sign, figure, names, short

SURE = 3.0  # standard errors, estimated from step to step, as for rewards of texts
# How much farther from the data the evaluation's samples may end than they began. With an exact KL they come nearer (37 runs of
# claims/gardo.py: -15 to +6 %); without any, on a reward without a bound, they end 17 to 29 % farther.
FARTHER = 0.1
LEFT = 0.5  # share of the best coverage: of two kinds of samples one is gone
# Shares of clipped steps. Healthy runs of several updates a batch clip 2 to 15 % of them; where most are clipped, most of a batch
# teaches nothing, and where none ever is, nothing bounds a step.
MOSTLY = 0.5
STRONGER, FIRST_KL = 5.0, 0.04  # what holds the policy to its base: five times as much, or the published coefficient


def hacked(record: Record) -> Sign | None:
    """The score rises, while the reward that another judge gives falls from its best, or samples leave the data."""
    score = record.reward
    if score is None or record.earned != "reward/mean" or not score.error or score.by <= SURE * score.error:
        return None
    worse = _judged_worse(record) or _farther(record)
    if worse is None:
        return None
    evidence = f"the training score went from {score}, while {worse}"
    return Sign(name="reward hacking", evidence=evidence, experiment=record.again(_held(record)))


def _judged_worse(record: Record) -> str | None:
    """The first reward's verdict, where others are paid too, from its best quarter to the last."""
    passes = record.from_best("pass_rate")
    if passes is None or not passes.error or len(record.run.get("rewards") or ()) < 2:
        return None
    fell = -passes.by > max(WORTH, SURE * passes.error)
    return f"the pass rate (the first reward's verdict) fell from {passes}" if fell else None


def _farther(record: Record) -> str | None:
    """The distance of the evaluation's samples from the data, from the first evaluation to the last."""
    for name in _figures(record, "/distance"):
        first, last = _ends(record, name)
        if first > 0 and last > (1 + FARTHER) * first:
            return f"{named(name)} of the evaluation grew from {figure(first)} to {figure(last)} (limit {FARTHER:.0%})"
    return None


def mode_collapse(record: Record) -> Sign | None:
    """Samples come near to less of the data than they did, in a run whose score did not fall."""
    if record.reward is not None and record.reward.fell:
        return None
    lost = _covers_less(record)
    if lost is None:
        return None
    evidence = f"{lost}: it draws few kinds of samples again and again (limit {LEFT:.0%} of the best)"
    return Sign(name="mode collapse", evidence=evidence, experiment=record.again(_held(record)))


def _covers_less(record: Record) -> str | None:
    for name in _figures(record, "/coverage"):
        first, last = _ends(record, name)
        if first - last >= WORTH and last < LEFT * first:
            return f"{named(name)} of the evaluation went from {figure(first)} to {figure(last)}"
    for name in names(record, "reward/"):
        change = record.from_best(name) if name.endswith("/coverage") else None
        if change is None or change.error is None or -change.by < max(WORTH, SURE * change.error):
            continue
        if change.end.value < LEFT * change.start.value:
            return f"{named(name)} in training went from {change}"
    return None


def clip_misfit(record: Record) -> Sign | None:
    """Of several updates a batch, none is ever clipped, or most are: the range is not of the scale of the log-probabilities."""
    low, high = record("clip_ratio/low"), record("clip_ratio/high")
    updates = record.setting("optimization.epochs", 1) * record.setting("optimization.minibatches", 1)
    reduced = record.setting("sampling.reduce", None)
    if reduced is None or updates < 2 or not low or len(low) != len(high):
        return None
    clipped = [one + other for one, other in zip(low, high, strict=True)]
    mean = sum(clipped) / len(clipped)
    if max(clipped) > 0 and mean <= MOSTLY:
        return None
    kind = record.setting("objective.class", "the objective")
    evidence = (
        f"{kind} clipped {mean:.0%} of the denoising steps over {updates} updates a batch (healthy runs: 2 to 15 %), with "
        f"log-probabilities that are the {reduced} over the numbers of a sample (sampling.reduce)"
    )
    clip = record.setting("objective.clip_low", 0.2)
    change = f"objective.clip_low={short(clip * 10)}" if mean > MOSTLY else f"objective.clip_low={short(clip / 10)}"
    changes = [change, change.replace("low", "high")]
    if kind not in ("ClippedStep", "NormalizedStep"):
        changes = ["objective=ClippedStep()"]
    return Sign(name="clip does not fit", evidence=evidence, experiment=record.again(*changes))


def _held(record: Record) -> str:
    """The key that holds the policy nearer to its base: the KL of each step, or, without such a part, smaller steps."""
    held = record.run.get("regularisers") or ()
    for place, part in enumerate(held):
        if part.get("class") in ("StepKL", "GatedStepKL"):
            return f"regularisers.{place}.coef={short(STRONGER * part.get('coef', FIRST_KL))}"
    if "update" in record.run or record.setting("sampling.reduce", None) is None:
        return record.rate(0.3)
    return f"regularisers.{len(held)}=StepKL(coef={FIRST_KL:g})"


def _figures(record: Record, ending: str) -> list[str]:
    """The figures of this ending that both the first and the last evaluation have."""
    found = [figures for _, figures in record.evaluated]
    return sorted(name for name in found[0] if name.endswith(ending) and name in found[-1]) if len(found) > 1 else []


def _ends(record: Record, name: str) -> tuple[float, float]:
    evaluated = [figures for _, figures in record.evaluated]
    return float(evaluated[0][name]), float(evaluated[-1][name])
