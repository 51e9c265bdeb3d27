"""The doctor's rules for settings: why a run fell or learned nothing. doctor.py checks them only for such runs."""

from __future__ import annotations

import math
import shlex
import statistics

from gimbal.report.failures import LIVE, NO_GRADIENT
from gimbal.report.held_out import named
from gimbal.report.record import TOKENS, TREND, WORTH, Change, Record, Sign, short, when

# Mean |change of a decision's log-probability| in one step, or the corresponding KL. Clipping begins at a ratio of 1.2, which is
# 0.18 nats: a step of this size takes the average decision there at once. Healthy runs of gimbal-tiny move 0.02 to 0.1, at a KL of
# 0.005 to 0.04 (the canary has one task and may be surer than others, so either is enough).
LARGE_MOVE, LARGE_KL = 0.2, 0.1
# ... and a decision's total move if every step moves it the same way: too little to change the text.
SMALL_MOVE, SMALL_KL, HEALTHY_MOVE = 0.1, 1e-3, 0.05
FEWEST = 2  # updates whose moves add up
FIRST_RATE = 1e-5  # to begin from where the rate is 0: too small for a small network rather than too large for a pretrained model
TURNED = -0.2  # correlation of score and advantage: near 1 in healthy runs, and 0.5 over the first episodes of Pendulum
FEW = 8  # rollouts per step: the sign of their mean is random ...
LONG = 20  # ... and so is what a shorter run learns from them; from this length, no learning is a sign by itself
# Mean |p - p'| of decisions at least OLD versions old. Clipping starts at a ratio of 1.2; at 0.05 every fifth decision with
# probability 0.5 exceeds it before the step begins. At age 1 such a gap comes from the step size, not the age.
STALE, OLD = 0.05, 1.5
HOT, COLD = 1.5, 0.5  # sampling temperatures far from the distribution that the model was trained on
ENTROPY_LEFT = 0.25  # share of the initial entropy, without more tasks solved; learning also lowers entropy
ENTROPY_GROWN, LOUD, USUAL_BONUS = 1.3, 0.5, 0.01  # ... and a bonus that keeps it: usual ones are 0.001 to 0.01
GROWN = 2.0  # factor on the initial length, without more tasks solved; careful working may be half as long again
# Most KL cost per decision, with advantages of size 1; a usual coefficient.
HELD, USUAL_KL = (0.1, 0.05)
# Explained variance of the returns: clearly worse than a constant, and worse than an untrained critic.
WORSE = -0.2
EMPTY = 0.5  # share of empty evaluation answers; healthy runs have at most one in a hundred
MOSTLY_CUT = 0.8  # share of rollouts at max_length, at the start or the end: the run learns from the few others
CUT_OFF = 0.3  # share of rollouts cut at max_length: the answer is usually at the end, so they cannot be right
ALL_CUT_OFF = 0.99
PASS_ANYWAY = 0.1  # of those cut off
SURE = 3.0  # standard errors, estimated from step to step


def no_rate(record: Record) -> Sign | None:
    """A learning rate of 0, which no controller moves."""
    if record.learning_rate or any("learning_rate" in path for path in record.setting("controllers", {})):
        return None
    return Sign(
        name="weights do not move",
        evidence="the learning rate is 0, so the run only measured the model that it began with",
        experiment=record.again(record.rate_of(FIRST_RATE)),
    )


def wrong_sign(record: Record) -> Sign | None:
    """Worse rollouts are made likelier, or are rewarded."""
    order = record.early("advantage/order")
    if (weight := _first_weight(record)) < 0:
        return _turned(record, weight)
    # Includes the very first step: after a step that is too large there is no order.
    if order is not None and order < TURNED and record("advantage/order")[0] < TURNED:
        evidence = (
            f"scores and advantages have a correlation of {order:.2f} in the first steps (advantage/order; limit {TURNED:g}, healthy "
            "runs are near 1): worse rollouts are reinforced"
        )
        change = "shaping=()" if record.run.get("shaping") else "advantage=GroupNormalized()"
    elif (mirrored := _mirrored(record)) is not None:
        score, evaluation = mirrored
        evidence = (
            f"training score and held-out pass@1 add up to {abs(score.start.value + evaluation.start.value):.2f} at the start and "
            f"{abs(score.end.value + evaluation.end.value):.2f} at the end, as if wrong answers were rewarded: the score went "
            f"from {score}, pass@1 from {evaluation}. A hackable reward may look the same; if the evaluation rises in the "
            "next run, the sign was wrong"
        )
        change = "rewards.0.weight=-1"
    else:
        return None
    return Sign(name="wrong sign", evidence=evidence, experiment=record.again(change))


def _first_weight(record: Record) -> float:
    rewards = record.run.get("rewards") or ()
    return (rewards[0].get("weight") or 1.0) if rewards else 1.0


def _turned(record: Record, weight: float) -> Sign:
    evidence = f"the first reward has weight {weight:g}: correct answers get the lowest score"
    return Sign(name="wrong sign", evidence=evidence, experiment=record.again("rewards.0.weight=1"))


def _mirrored(record: Record) -> tuple[Change, Change] | None:
    """(score, evaluation), if one is 0 or 1 minus the other at the beginning and at the end, and the evaluation fell."""
    score, evaluation = record.reward, record.learned
    if (
        score is None
        or evaluation is None
        or not score.error
        or not evaluation.error
        or evaluation.name != "eval/pass@1"
    ):
        return None
    error = math.hypot(score.error, evaluation.error)  # for a difference, a little more than for one end
    sums = (score.start.value + evaluation.start.value, score.end.value + evaluation.end.value)
    alike = any(all(abs(total - whole) <= 2 * error for total in sums) for whole in (0.0, 1.0))
    return (score, evaluation) if alike and evaluation.fell and _apart(record, score, evaluation) else None


def reward_hacking(record: Record) -> Sign | None:
    """The score rises while its goal falls: the evaluation, or the first reward's verdict. Or the evaluation, with other rewards,
    does not move."""
    score, passes = record.ends("reward/mean"), record.ends("pass_rate")
    if score is None or score.error is None or record.offline:
        return None
    rose = score.by > SURE * score.error
    drop = 0.0 if passes is None or passes.error is None else -passes.by
    if record.evaluation is not None and record.evaluation.fell and (rose or _apart(record, score, record.evaluation)):
        fell = f"the evaluation ({named(record.evaluation.name)}) fell from {record.evaluation}"
    elif passes is not None and (
        (passes.fell and score.by > score.error) or (rose and drop > max(WORTH, SURE * (passes.error or 0.0)))
    ):
        fell = f"the pass rate (the first reward's verdict) fell from {passes}"
    elif rose and _paid_for_other(record) and record.learned is not None and not record.learned.rose:
        fell = f"the evaluation, which uses other rewards, did not rise: {record.learned}"
    else:
        return None
    if (weight := _first_weight(record)) < 0:
        return _turned(record, weight)
    others = len(record.run.get("rewards") or ())
    held = f"regularisers.{len(record.run.get('regularisers') or ())}=KLPenalty()"
    change = f"rewards.{others - 1}.weight=0" if others > 1 else held
    return Sign(
        name="reward hacking",
        evidence=f"the training score went from {score}, while {fell}",
        experiment=record.again(change),
    )


def _apart(record: Record, score: Change, evaluation: Change) -> bool:
    """Whether the reward differs from the evaluation and did not fall with it: it rose a little, or should have fallen as far."""
    if not _paid_for_other(record) or score.error is None or evaluation.error is None:
        return False
    shares = all(0 <= point.value <= 1 for change in (score, evaluation) for point in (change.start, change.end))
    return score.by > score.error or (
        shares and score.by - evaluation.by > 2 * math.hypot(score.error, evaluation.error)
    )


def _paid_for_other(record: Record) -> bool:
    """Whether the evaluation uses other rewards than training: its own, or the first of several."""
    return record.setting("held_out.rewards", None) is not None or len(record.run.get("rewards") or ()) > 1


def temperature(record: Record) -> Sign | None:
    """Sampled so hot that nothing is correct, or so cold that samples are alike."""
    degree = record.setting("sampling.temperature", 1.0)
    alike, entropy, passes = (
        record.early("reward/zero_std_frac"),
        record.early("entropy/sampled"),
        record.early("pass_rate"),
    )
    if not degree or COLD < degree < HOT or alike is None or entropy is None or passes is None:
        return None
    evidence = (
        f"at sampling temperature {degree:g} the first steps have an entropy of {entropy:.3f} nats per token; {passes:.1%} of rollouts "
        f"are correct, and in {alike:.0%} of the groups all scores are equal"
    )
    return Sign(name="temperature", evidence=evidence, experiment=record.again("sampling.temperature=1"))


def cut_short(record: Record) -> Sign | None:
    """Rollouts reach the limit from the beginning."""
    early, late = record.early("length/truncated_frac"), record.late("length/truncated_frac")
    # Includes the very first step, because too large steps soon cause it; later fewer, because what fits is learned.
    first = record("length/truncated_frac")[:1]
    if early is None or late is None or min(early, *first) < CUT_OFF or late < CUT_OFF / 3:
        return None
    if _pass_cut_off(record):
        return None
    limit = record.setting("sampling.max_length", 64)
    evidence = f"{early:.0%} of rollouts are cut off at max_length={limit} from the first steps (limit {CUT_OFF:.0%})"
    if min(early, late) >= ALL_CUT_OFF:
        evidence += (
            "; a model that never stops reaches any limit: check whether its texts are cut in the middle of an answer"
        )
    return Sign(
        name="max_length too small", evidence=evidence, experiment=record.again(f"sampling.max_length={4 * limit}")
    )


def mostly_cut(record: Record) -> Sign | None:
    """Nearly all rollouts reach the limit, at the start or the end, in a run that may be too short to say more."""
    early, late = record.early("length/truncated_frac"), record.late("length/truncated_frac")
    if early is None or late is None or record.solved or record.offline:
        return None
    return cut_short(record) if min(early, late) >= CUT_OFF and max(early, late) >= MOSTLY_CUT else None


def empty_answers(record: Record) -> Sign | None:
    """The evaluation's answers are empty: there was nothing to score."""
    end = max(record.empties, default=None)
    if end is None or (record.end("eval/pass@1") or 0.0) + max(end[1:]) > 1:  # an empty answer may be correct
        return None
    step, sampled, greedy = end
    if max(sampled, greedy) < EMPTY:
        return None
    begin = max(min(record.empties)[1:])
    evidence = (
        f"{greedy:.0%} of the greedy answers of the evaluation {when(step)} are empty, and {sampled:.0%} of the sampled ones (limit "
        f"{EMPTY:.0%})"
    )
    if begin < EMPTY and step:
        evidence += f"; at first {begin:.0%} were: the policy learned to end at once"
        return Sign(name="empty answers", evidence=evidence, experiment=record.again(record.rate(0.3)))
    evidence += (
        ", from the start: the model ends its answer before it begins, or its answer is only whole beyond "
        f"max_length={record.setting('sampling.max_length', 64)}. Check that the prompt does not end with the end-of-text token, and "
        "of a chat that the template begins the assistant's turn. The page shows prompts and answers"
    )
    return Sign(
        name="empty answers", evidence=evidence, experiment=shlex.join(["gimbal", "report", str(record.directory)])
    )


def _pass_cut_off(record: Record) -> bool:
    """Whether at least one in ten cut rollouts passes, so that cutting does not prevent it: the model continues after
    its answer, like one never taught to stop. A few short answers that pass by chance do not count."""
    both = ("pass_rate", "length/truncated_frac")
    rows = [row for row in record.rows if all(row.get(name) is not None for name in both)]
    excess = [row[both[0]] - (1 - row[both[1]]) for row in rows]  # passes that must come from cut rollouts
    return bool(rows) and sum(excess) > PASS_ANYWAY * sum(row[both[1]] for row in rows)


def loud_entropy(record: Record) -> Sign | None:
    """An entropy bonus that outweighs the reward, or an entropy penalty."""
    place, coef = _regulariser(record, "EntropyBonus")
    entropy = record.ends("entropy/sampled")
    if place is None or entropy is None:
        return None
    first, last = entropy.start.value, entropy.end.value
    # The entropy of a density may be negative: use the difference; 0.3 nats are a factor of 1.3 in width.
    grown = last > ENTROPY_GROWN * first if record.family == TOKENS else last - first > 0.3
    stays = coef >= LOUD and last > 0.9 * first
    gone = last < ENTROPY_LEFT * first if record.family == TOKENS else last - first < -1.4
    driven = coef <= -LOUD and last < 0.9 * first
    if not (coef > 0 and (grown or stays)) and not (coef < 0 and (gone or driven)):
        return None
    name = "entropy bonus too strong" if coef > 0 else "entropy collapse"
    what = "an entropy bonus" if coef > 0 else "an entropy penalty, or a bonus"
    evidence = f"with {what} of {coef:g}, entropy went from {first:.3f} to {last:.3f} nats a decision"
    usual = short(min(abs(coef) / 10, USUAL_BONUS))
    return Sign(name=name, evidence=evidence, experiment=record.again(f"regularisers.{place}.coef={usual}"))


def few_rollouts(record: Record) -> Sign | None:
    prompts, samples = record.setting("prompts_per_step", 16), record.setting("num_generations", 8)
    score = record.ends(record.earned)
    if record.setting("store.class", "Once") != "Once":  # a step trains on what a store kept of many
        return None
    if prompts * samples > FEW or score is None or (not record.fallen and len(record.rows) < LONG):
        return None
    alike = record.late("reward/zero_std_frac")
    evidence = f"a step has {prompts} x {samples} rollouts (limit {FEW})"
    if samples > 1 and alike is not None:
        evidence += f", and in {alike:.0%} of the groups all scores are equal"
    evidence += f"; the mean score went from {score}"
    more = f"prompts_per_step={max(8, 32 // samples)}"
    return Sign(name="too few rollouts", evidence=evidence, experiment=record.again(more))


def critic(record: Record) -> Sign | None:
    """A critic that explains less than a constant adds noise to every advantage."""
    explained = record.late("value/explained")
    if explained is None or explained >= WORSE:
        return None
    size = max(abs(record.early(record.earned) or 0.0), abs(record.late(record.earned) or 0.0), 1.0)
    evidence = (
        f"the critic explains {explained:.2f} of the variance of the returns it predicts (a constant explains 0); returns are about "
        f"{size:.3g} in size"
    )
    change = (
        f"critic.scale={short(size)}" if "scale" in (record.run.get("critic") or {}) else "critic_learning_rate=0.001"
    )
    return Sign(name="critic", evidence=evidence, experiment=record.again(change))


def staleness(record: Record) -> Sign | None:
    age = record.late("staleness/mean")
    gaps = [
        row["mismatch/prob_diff/age_above_0"]
        for row in record.rows
        if (row.get("staleness/mean") or 0.0) >= OLD and row.get("mismatch/prob_diff/age_above_0") is not None
    ]
    if age is None or age < OLD or not gaps:
        return None
    # Either earlier or later: a policy that staleness has ruined is confident, and differs little from itself.
    middle = (len(gaps) + 1) // 2
    gap = max(statistics.median(half) for half in (gaps[:middle], gaps[middle:]) if half)
    if gap < STALE:
        return None
    share, corrected = record.late("mismatch/ess_sequence"), record.run.get("correction")
    evidence = (
        f"decisions are {age:.1f} versions old on average, and their probabilities differ from the learner's by {gap:.2g} (limit "
        f"{STALE:g} beyond age {OLD:g}), {'with a correction' if corrected else 'with no correction'}"
    )
    evidence += f"; the effective share of rollouts is {share:.2f}" if share is not None else ""
    return Sign(name="staleness", evidence=evidence, experiment=record.again("max_staleness=0"))


def step_size(record: Record) -> tuple[float | None, float | None]:
    """(mean |change of a decision's log-probability| in one step, KL of one step in nats per decision).

    The first is the largest measured; for a control policy it is that of the first steps, because small steps move the
    log-probabilities of a narrow density far.
    """
    moved = max(record("sync/moved"), default=None) if record.family == TOKENS else record.early("sync/moved")
    kl = []
    for row in record.rows[: max(1, len(record.rows) // 2)]:  # a dead policy no longer moves
        age, gap = row.get("staleness/mean") or 0.0, row.get("mismatch/k3")
        if row.get("kl/old"):
            kl.append(row["kl/old"])
        if age > 0.1 and gap is not None:
            # Below 1 it is the share of decisions one step old; above, distances add up, and KL grows with the square.
            kl.append(gap / max(age, age**2))
    return moved, (statistics.median(kl) if kl else None)


def fast(record: Record) -> Sign | None:
    moved, kl = step_size(record)
    if record.held or ((moved or 0.0) < LARGE_MOVE and (kl or 0.0) < LARGE_KL):
        return None
    rate = record.learning_rate
    parts = []
    if moved is not None:
        parts.append(f"one step moved log-probabilities by {moved:.2g} nats a decision (limit {LARGE_MOVE:g})")
    if kl is not None:
        parts.append(f"the KL of one step was {kl:.2g} (limit {LARGE_KL:g})")
    evidence = f"at learning rate {rate:g} {' and '.join(parts)}"
    return Sign(name="learning rate too high", evidence=evidence, experiment=record.again(record.rate(0.1)))


def held_back(record: Record) -> Sign | None:
    """The pull towards the reference outweighs the reward."""
    place, coef = _regulariser(record, "KLPenalty")
    distance = record.late("kl/ref")
    if place is None or distance is None or coef * distance < HELD:
        return None
    evidence = (
        f"the KL penalty has coefficient {coef:g}, so that a KL of {distance:.2g} nats a decision costs {coef * distance:.2g} (limit "
        f"{HELD:g}; advantages are about 1 in size); the gradient norm went from {record('grad_norm')[0]:.2g} at the first step, "
        f"without KL, to {record.late('grad_norm'):.2g}"
    )
    usual = short(min(coef / 10, USUAL_KL))
    return Sign(name="held back", evidence=evidence, experiment=record.again(f"regularisers.{place}.coef={usual}"))


def slow(record: Record) -> Sign | None:
    steps = record.updated
    moved = [row["sync/moved"] for row in steps if row.get("sync/moved") is not None]
    # Where it trains on recorded answers, what moved is measured on its own texts.
    if record.offline or len(steps) < min(TREND, max(FEWEST, len(record.rows))):
        return None
    norm, live = record.late("grad_norm"), record.late("live_frac")
    if record.held or not moved or norm is None or norm < NO_GRADIENT or (live is not None and live < LIVE):
        return None
    far, kl = statistics.fmean(moved) * len(steps), step_size(record)[1]
    if far >= SMALL_MOVE or (kl or 0.0) >= SMALL_KL:
        return None
    rate = record.learning_rate
    evidence = (
        f"at learning rate {rate:g} a step moves log-probabilities by {statistics.fmean(moved):.2g} nats a decision; "
        f"{len(steps)} steps in the same direction would move them by {far:.2g} (limit {SMALL_MOVE:g})"
    )
    # A step is roughly proportional to the rate: aim at healthy runs, by at most a factor of 100.
    factor = min(100.0, HEALTHY_MOVE / max(moved)) if max(moved) > 0 else 100.0
    return Sign(name="learning rate too low", evidence=evidence, experiment=record.again(record.rate(factor)))


def calm_fall(record: Record) -> Sign | None:
    """The score falls from the first steps although no step is large, as with a wrong sign that advantages do not show."""
    score = record.reward
    moved, kl = step_size(record)
    if score is None or not score.fell or (moved or 0.0) >= LARGE_MOVE or (kl or 0.0) >= LARGE_KL:
        return None
    evidence = (
        f"the score fell from {score}, although steps have a normal size: a sign may be wrong, or a regulariser may outweigh the "
        "reward"
    )
    change = record.rate(0.3)
    if record.run.get("regularisers"):
        change = "regularisers=()"
    elif record.run.get("rewards"):  # correct if the evaluation then rises
        change = "rewards.0.weight=-1"
    return Sign(name="wrong sign", evidence=evidence, experiment=record.again(change))


def length_runaway(record: Record) -> Sign | None:
    length, passes, cut = record.ends("length/mean"), record.ends("pass_rate"), record.late("length/truncated_frac")
    if length is None or passes is None or passes.by >= WORTH or _no_matter(record):
        return None
    first, last, cut = length.start.value, length.end.value, cut or 0.0
    grown = last >= GROWN * first and length.by > SURE * (length.error or 0.0)
    if not grown and (cut < CUT_OFF or _pass_cut_off(record)):
        return None
    evidence = f"the length of rollouts went from {first:.1f} to {last:.1f} tokens ({last / first:.2f}x"
    evidence += (
        f", limit {GROWN:g}x), {cut:.0%} are cut off"
        if grown
        else f"), and {cut:.0%} are cut off (limit {CUT_OFF:.0%})"
    )
    evidence += f", and the pass rate went from {passes.start.value:.3f} to {passes.end.value:.3f}"
    limit, count = record.setting("sampling.max_length", 64), len(record.run.get("rewards") or ())
    penalty = f"OverlongPenalty(limit={limit}, zone={limit // 2})"
    return Sign(name="length run-away", evidence=evidence, experiment=record.again(f"rewards.{count}={penalty}"))


def entropy_collapse(record: Record) -> Sign | None:
    """Entropy vanished without the tasks being learned; a policy that became correct is also confident."""
    entropy, passes = record.ends("entropy/sampled"), record.ends("pass_rate")
    if entropy is None or passes is None or _no_matter(record):
        return None
    first, last = entropy.start.value, entropy.end.value
    if last > ENTROPY_LEFT * first or passes.by >= WORTH:
        return None
    evidence = (
        f"entropy went from {first:.3f} to {last:.3f} nats a decision (limit {ENTROPY_LEFT:.0%} of the beginning) while the "
        f"pass rate went from {passes.start.value:.3f} to {passes.end.value:.3f}"
    )
    return Sign(name="entropy collapse", evidence=evidence, experiment=record.again("entropy_coeff=0.003"))


def _no_matter(record: Record) -> bool:
    """Whether the rollouts' appearance is no sign of trouble: another policy wrote them, or the tasks are being learned."""
    return record.offline or record.solved or (record.learned is not None and record.learned.rose)


def _regulariser(record: Record, kind: str) -> tuple[int | None, float]:
    """(index among the regularisers, coefficient) of the part of this class with the largest coefficient."""
    found = [
        (place, part["coef"])
        for place, part in enumerate(record.run.get("regularisers") or ())
        if part.get("class") == kind and part.get("coef")
    ]
    return max(found, key=lambda part: abs(part[1]), default=(None, 0.0))
