"""Split the log-ratio of every decision into named causes that add up, one question at a time.

A chain of log-probabilities of the same decisions leads from what the sampler recorded to the policy as the update left it. Each link
changes one thing, so the links are the causes and their sum is the log-ratio:

    recorded by the sampler
      -> scored by the same sampler, at the sampling it really used        numerics (it does not reproduce its own record)
      -> ... at the sampling that is on record                             sampling
      -> scored by a sampler that certainly holds the version's weights    delivery
      -> evaluated by the trainer, at equal weights                        numerics (precision, kernels)
      -> ... of the tokens that are on record                              token drift
      -> by the learner's version before the update                        staleness
      -> after the update                                                  update
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal.engines.base import AbstractEngine, AbstractEngineSpec, Request, drained
from gimbal.environments.base import AbstractTasks
from gimbal.policies.base import AbstractPolicy
from gimbal.policies.token import Sampling, TokenPolicy, Tokens
from gimbal.records import AbstractSampling, Rollout
from gimbal.report.gap import CAUSES, Attribution
from gimbal.runtime import device
from gimbal.runtime.faults import Faults
from gimbal.runtime.run import AbstractRun

# Nats: a sampler's own batching moves its log-probabilities by less (0.01 at bfloat16, 1e-5 in float32).
REPRODUCES = 0.02
FITTED_ON = 4  # rollouts that a sampling is looked for on
IMPOSSIBLE = -30.0  # in place of the log-probability of a token outside of a truncated support


@dataclass(frozen=True, kw_only=True)
class Sides:
    """Who is asked. ``engine`` is the sampler as it stands, ``fresh`` one of its kind that was just loaded with the version's weights.

    ``drew`` is the trainer at the version that drew, ``before`` and ``after`` the learner around the update that is explained.
    ``against`` is another engine at the same weights: numerics is then what lies between the two and what is left to the trainer.
    """

    engine: AbstractEngine
    fresh: AbstractEngine
    drew: AbstractPolicy
    before: AbstractPolicy | None = None
    after: AbstractPolicy | None = None
    against: AbstractEngine | None = None


def explain(
    run: AbstractRun,
    weights: Path,
    engine: AbstractEngineSpec,
    against: AbstractEngineSpec | None,
    older: Path | None = None,
    *,
    count: int,
) -> Attribution:
    """Draw ``count`` rollouts of the run's tasks with these weights through the run's own way of weights, and split their log-ratios.

    The sampler holds the run's first weights before these are delivered, so that a lost delivery shows. ``older`` weights
    do the drawing where they are given, and ``weights`` are then what the learner has come to since: the gap is staleness.
    """
    policy = run.policy.at(weights).load(run.seed).to(device.prepare(run.threads))
    drew = policy if older is None else run.policy.at(older).load(run.seed).to(device.prepare(run.threads))
    faults = run.faults or Faults()
    sampler, fresh = faults.around_engine(engine.start(policy), run.seed), faults.rounding(engine.start(policy))
    sync = faults.around_sync(run.sync.start(), run.seed)
    for version, held in enumerate((run.policy.load(run.seed).to(device.prepare(run.threads)), drew)):
        sync.publish(version, held.weights())
        sync.deliver(sampler)
    fresh.load(1, drew.state_dict())
    other = None
    if against is not None:
        other = against.start(policy)
        other.load(1, drew.state_dict())
    sides = Sides(engine=sampler, fresh=fresh, drew=drew, before=policy, against=other)
    return attribute(drawn_by(sampler, run.tasks, run.sampling, run.seed, count), sides)


def drawn_by(
    engine: AbstractEngine, tasks: AbstractTasks, sampling: AbstractSampling, seed: int, count: int
) -> list[Rollout]:
    """One rollout of each of the first tasks, in their order."""
    for index in range(count):
        engine.submit(
            Request(
                group=index, task=tasks[index % len(tasks)], sample=index // len(tasks), sampling=sampling, seed=seed
            )
        )
    return [finished.rollout for _, finished in sorted(drained(engine).items())]


def attribute(rollouts: Sequence[Rollout], sides: Sides) -> Attribution:
    """Split log(policy after / sampler) of every decision of these rollouts, all drawn by ``sides.engine`` at its present version."""
    drew = sides.drew
    whole = [rollout if _spells(rollout, drew) else _drawn(rollout, drew) for rollout in rollouts]
    found = _sampling([rollout for rollout in whole if rollout is not None][:FITTED_ON], sides.engine)
    columns: dict[str, list[Tensor]] = {cause: [] for cause in (*CAUSES, "total", "reproduced", "near", "far")}
    for rollout, drawn in zip(rollouts, whole, strict=True):
        # A text that cannot be aligned is asked about as it is on record; its drift then counts as numerics.
        _links(rollout, drawn or rollout, found, sides, columns)
    joined = {name: torch.cat(values) for name, values in columns.items() if values}
    gaps = {name: float(joined[name].abs().mean()) for name in ("near", "far") if name in joined}
    return Attribution(
        part_D={cause: joined[cause] for cause in CAUSES},
        total_D=joined["total"],
        pieces=[p for r in rollouts for p, ours in zip(drew.pieces(r.decisions), r.mask_S, strict=True) if ours],
        rollout=[index for index, rollout in enumerate(rollouts) for _ in range(int(rollout.mask_S.sum()))],
        sampling=found,
        reproduced=float(joined["reproduced"].abs().mean()),
        drifted=sum(drawn is not rollout for rollout, drawn in zip(rollouts, whole, strict=True)),
        against=gaps,
    )


def _links(
    rollout: Rollout, drawn: Rollout, found: AbstractSampling | None, sides: Sides, columns: Mapping[str, list[Tensor]]
) -> None:
    """The parts of one rollout, appended to their columns."""
    recorded_S = rollout.behavior_S.double()
    own_S = _scored(sides.engine, drawn, found or drawn.sampling)
    asked_S = own_S if found is None else _scored(sides.engine, drawn, drawn.sampling)
    fresh_S = _scored(sides.fresh, drawn, drawn.sampling)
    trainer_S = _evaluated(sides.drew, drawn)
    spelled_S = trainer_S if drawn is rollout else _evaluated(sides.drew, rollout)
    before_S = spelled_S if sides.before is None else _evaluated(sides.before, rollout)
    after_S = before_S if sides.after is None else _evaluated(sides.after, rollout)
    parts = {
        "numerics": (own_S - recorded_S) + (trainer_S - fresh_S),
        "sampling": asked_S - own_S,
        "delivery": fresh_S - asked_S,
        "token drift": spelled_S - trainer_S,
        "staleness": before_S - spelled_S,
        "update": after_S - before_S,
        "total": after_S - recorded_S,
        "reproduced": own_S - recorded_S,
    }
    if sides.against is not None:
        other_S = _scored(sides.against, drawn, drawn.sampling)
        parts |= {"near": other_S - fresh_S, "far": trainer_S - other_S}
    for name, part_S in parts.items():
        columns[name].append(part_S[rollout.mask_S])


def _scored(engine: AbstractEngine, rollout: Rollout, sampling: AbstractSampling) -> Float[Tensor, " S"]:
    return engine.score(replace(rollout, sampling=sampling)).double().cpu().clamp(min=IMPOSSIBLE)


def _evaluated(policy: AbstractPolicy, rollout: Rollout) -> Float[Tensor, " S"]:
    device = next(policy.parameters()).device
    with torch.no_grad():
        evaluation = policy.evaluate(rollout.decisions.to(device), temperature=rollout.sampling.temperature)
    return evaluation.logprob_NS[0].double().cpu()


def _spells(rollout: Rollout, policy: AbstractPolicy) -> bool:
    """Whether the recorded tokens decode to the text that was sampled; decisions that are no tokens always do."""
    tokens = rollout.decisions
    if not isinstance(tokens, Tokens) or not isinstance(policy, TokenPolicy):
        return True
    return policy.decode(tokens.ids_NL[0, int(tokens.prompt_N[0]) : int(tokens.length_N[0])].tolist()) == rollout.text


def _drawn(rollout: Rollout, policy: AbstractPolicy) -> Rollout | None:
    """The rollout with the tokens of its text, where they are as many as those on record."""
    tokens = rollout.decisions
    assert isinstance(tokens, Tokens) and isinstance(policy, TokenPolicy)
    first, length = int(tokens.prompt_N[0]), int(tokens.length_N[0])
    ids = policy.tokenizer.encode(rollout.text, add_special_tokens=False)
    last = int(tokens.ids_NL[0, length - 1])
    ids = [*ids, last] if last in policy.end_ids else ids
    if len(ids) != length - first:
        return None
    return replace(rollout, decisions=Tokens.row(tokens.ids_NL[0, :first].tolist(), ids, tokens.pictures_N[0]))


def _sampling(rollouts: Sequence[Rollout], engine: AbstractEngine) -> AbstractSampling | None:
    """The temperature, top-k or top-p at which the sampler reproduces what it recorded, if it does not at the one on record.

    One of them is looked for at a time. None where nothing explains at least half of the gap: then it is not the sampling.
    """
    if not rollouts:
        return None
    asked = rollouts[0].sampling

    def gap(sampling: AbstractSampling) -> float:
        apart = [_scored(engine, rollout, sampling) - rollout.behavior_S.double() for rollout in rollouts]
        return float(torch.cat(apart).abs().mean())

    here = gap(asked)
    if here < REPRODUCES:
        return None
    coarse = [replace(asked, temperature=t) for t in (0.3, 0.5, 0.7, 0.85, 1.2, 1.5, 2.0)]
    if isinstance(asked, Sampling):
        coarse += [replace(asked, top_k=k) for k in (2, 3, 5, 10, 20, 50)]
        coarse += [replace(asked, top_p=p) for p in (0.5, 0.7, 0.8, 0.9, 0.95)]
    best = min(coarse, key=gap)
    for width in (0.1, 0.05, 0.02, 0.01):
        near = [best]
        if best.temperature != asked.temperature:
            near += [replace(best, temperature=best.temperature + step) for step in (-width, width)]
        elif isinstance(best, Sampling) and best.top_p < 1:
            near += [replace(best, top_p=min(0.999, best.top_p + step)) for step in (-width, width)]
        best = min(near, key=gap)
    return best if gap(best) < here / 2 else None
