"""A step's metrics, from its records. docs/metrics.md defines each."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from gimbal import ops
from gimbal.objectives.surrogates.guided_ratio import GUIDED, last_NS
from gimbal.policies.token import Tokens
from gimbal.records import Acted, Episode, Group, Rollout, TrainBatch

PASS = 1.0 - 1e-6  # the reward of a solved task


def passed(episode: Episode | Rollout) -> bool:
    """Whether the task is solved, by the run's first reward: later ones only shape the score of correct answers."""
    verdict = next(iter(episode.scores.values()), None)
    return (episode.earned if verdict is None else verdict) >= PASS


def rollout_metrics(
    groups: Sequence[Group],
    *,
    judged: bool = True,
    answers: bool | None = None,
    paid: bool = True,
    sources: Sequence[str] = (),
) -> dict[str, float]:
    """Metrics of everything sampled and scored since the last step, trained on or not. ``judged``: it may be right or wrong.
    ``answers``: it has a length of its own, by default where it is judged. ``paid``: something gives scores.
    ``sources``: task sources to report separately."""
    rollouts = [episode for group in groups for episode in group.episodes]
    if not rollouts:
        return {}
    score_N = torch.tensor([rollout.earned for rollout in rollouts])
    length_N = torch.tensor([float(rollout.length) for rollout in rollouts])
    passed_N = torch.tensor([passed(rollout) for rollout in rollouts])
    metrics = {
        "reward/mean": float(score_N.mean()),
        "reward/std": float(score_N.std(unbiased=False)),
        # Largest against smallest: the deviation of equal float32 scores may not be exactly 0.
        "reward/zero_std_frac": sum(bool(g.score_G.max() == g.score_G.min()) for g in groups) / len(groups),
        "pass_rate": float(passed_N.float().mean()),
        "length/mean": float(length_N.mean()),
        "length/truncated_frac": sum(rollout.stop == "length" for rollout in rollouts) / len(rollouts),
    }
    if not judged:
        del metrics["pass_rate"]
    if not paid:
        metrics = {name: value for name, value in metrics.items() if not name.startswith("reward/")}
    if not (judged if answers is None else answers):
        del metrics["length/truncated_frac"]
    for name, chosen_N in (("correct", passed_N), ("wrong", ~passed_N)):
        if judged and answers is not False and bool(chosen_N.any()):
            metrics[f"length/{name}"] = float(length_N[chosen_N].mean())
    for name in sorted({name for rollout in rollouts for name in rollout.scores}):
        values = [rollout.scores[name] for rollout in rollouts if name in rollout.scores]
        metrics[f"reward/{name}/mean"] = sum(values) / len(values)
        if len(values) < len(rollouts):  # None for the others, which the mean leaves out
            metrics[f"reward/{name}/unscored_frac"] = 1 - len(values) / len(rollouts)
    entropies = [r.entropy_S[r.mask_S] for group in groups for r in group.rows if r.entropy_S is not None]
    if entropies:
        metrics["entropy/mean"] = float(torch.cat(entropies).mean())
    metrics |= acting_metrics([(episode.acts, episode.stop) for episode in rollouts if episode.acts is not None])
    return metrics | _broken_rows(rollouts) | _by_source(groups, sources, judged=judged)


def role_metrics(batch: TrainBatch) -> dict[str, float]:
    """Of a batch in which several roles acted, for each of them: the mean return of its rows' episodes, the decisions of a row, its
    share of all decisions, and the spread of its advantages."""
    if batch.role_N is None or len(batch.roles) < 2:
        return {}
    metrics: dict[str, float] = {}
    for place, role in enumerate(batch.roles):
        own_N = (batch.role_N == place) & batch.mask_NS.any(-1)
        own_NS = batch.mask_NS & own_N[:, None]
        if not bool(own_N.any()):
            continue
        metrics[f"role/{role}/reward"] = float(batch.return_N[own_N].mean())
        metrics[f"role/{role}/length"] = float(own_NS.sum() / own_N.sum())
        metrics[f"role/{role}/frac"] = float(own_NS.sum() / batch.mask_NS.sum())
        if batch.advantage_NS is not None:
            metrics[f"role/{role}/advantage"] = float(ops.masked_std(batch.advantage_NS, own_NS))
    return metrics


def _broken_rows(episodes: Sequence[Episode]) -> dict[str, float]:
    """How often a multi-turn episode began a new row instead of continuing one because its history was rewritten."""
    turns = [[int(row.turn_S.max()) + 1 for row in one.rows if row.turn_S is not None] for one in episodes]
    later = sum(sum(each) - 1 for each in turns if each)
    return {"rows/broken_frac": sum(len(each) - 1 for each in turns if each) / later} if later else {}


def acting_metrics(acts: Sequence[tuple[Sequence[Acted], str]]) -> dict[str, float]:
    """For episodes in an environment: calls per episode, the share of calls that fail, their seconds (summed over threads), and
    how many episodes were cut at their last turn."""
    if not acts:
        return {}
    made_N = [sum(step.calls for step in steps) for steps, _ in acts]
    failed = sum(step.failed for steps, _ in acts for step in steps)
    found = {
        "tool/calls": sum(made_N) / len(acts),
        "tool/used_frac": sum(made > 0 for made in made_N) / len(acts),
        "tool/cut_frac": sum(stop == "truncated" for _, stop in acts) / len(acts),
        "time/tool": sum(step.seconds for steps, _ in acts for step in steps),
    }
    return found | ({"tool/failed_frac": failed / sum(made_N)} if sum(made_N) else {})


def sampled_NS(batch: TrainBatch) -> Bool[Tensor, "N S"]:
    """The counted decisions that a sampler drew. A row that was written has sampler log-probabilities of 0 throughout, and so have the
    decisions of a guide at the end of a row (``GUIDED``): their distance from the policy is no fault of the sampler.
    """
    mask_NS = batch.mask_NS & ((batch.column("behavior_NS", sampled_NS) != 0) & batch.mask_NS).any(-1, keepdim=True)
    if GUIDED in batch.facts:
        mask_NS = mask_NS & ~last_NS(mask_NS, batch.column(GUIDED, sampled_NS))
    return mask_NS


def mismatch_metrics(batch: TrainBatch, learner_version: int, *, densities: bool = False) -> dict[str, float]:
    """The gap between sampler (behavior) and trainer (proximal) on the same sampled decisions, overall and by age of the decision.

    ``densities``: for continuous actions, whose densities are unbounded, so that |p - p'| is meaningless but ratios are not.
    """
    mask_NS, reader = sampled_NS(batch), mismatch_metrics
    if not bool(mask_NS.any()):
        return {}
    proximal_NS, behavior_NS = batch.column("proximal_NS", reader), batch.column("behavior_NS", reader)
    log_NS = proximal_NS - behavior_NS
    ratio_NS = ops.ratio(proximal_NS, behavior_NS)
    gap_NS = (proximal_NS.exp() - behavior_NS.exp()).abs()
    metrics = {
        "mismatch/prob_diff": float(ops.masked_mean(gap_NS, mask_NS)),
        # The decisions are sampled from behavior, so this estimates KL(behavior || proximal) and is never negative.
        "mismatch/k3": float(ops.masked_mean(ops.k3(behavior_NS, proximal_NS), mask_NS)),
        "mismatch/logp_diff_max": float(log_NS[mask_NS].abs().max()),
        "mismatch/outside_frac": float(ops.masked_mean((ratio_NS < 0.5) | (ratio_NS > 2), mask_NS)),
        "mismatch/ess_token": float(ops.effective_sample_share(log_NS, mask_NS)),
        "mismatch/ess_sequence": float(ops.effective_sample_share(log_NS.sum(-1), mask_NS.any(-1))),
    }
    if densities:
        del metrics["mismatch/prob_diff"]
        return metrics
    fresh_NS = batch.column("version_NS", reader) == learner_version
    for name, chosen_NS in (("age_0", fresh_NS & mask_NS), ("age_above_0", ~fresh_NS & mask_NS)):
        if bool(chosen_NS.any()):
            metrics[f"mismatch/prob_diff/{name}"] = float(ops.masked_mean(gap_NS, chosen_NS))
    return metrics


def tree_metrics(
    computed: int | None, sampled: Sequence[Group], extent: tuple[int, int], trained: Sequence[Group]
) -> dict[str, float]:
    """The cost of groups with shared beginnings: the share of the decisions of rows ``sampled`` that another row had drawn; tokens that
    the sampler computed per unique token of these, and positions in the learner's forward pass, padded to the longest, per unique token
    of the groups ``trained`` on."""
    metrics: dict[str, float] = {}
    if rows := [row for group in sampled for row in group.rows]:
        metrics["rows/shared_frac"] = 1 - sum(row.drawn for row in rows) / sum(row.length - row.given for row in rows)
    if not all(isinstance(group.rows[0].decisions, Tokens) for group in [*sampled, *trained]):
        return metrics  # each step of a path is evaluated by itself, once
    if computed is not None and (unique := _unique_tokens(sampled)):
        metrics["perf/tree_sampler"] = computed / unique
    if unique := _unique_tokens(trained):
        metrics["perf/tree_learner"] = extent[0] * extent[1] / unique
    return metrics


def _unique_tokens(groups: Sequence[Group]) -> int:
    """Prompts once per group, plus each episode's own tokens."""
    prompts = [group.rows[0].decisions for group in groups]
    prompt = sum(int(tokens.prompt_N[0]) for tokens in prompts if isinstance(tokens, Tokens))
    return prompt + sum(episode.drawn for group in groups for episode in group.episodes)


def staleness_metrics(
    version_NS: Int[Tensor, "N S"], mask_NS: Bool[Tensor, "N S"], learner_version: int
) -> dict[str, float]:
    """Ages of the decisions trained on: the learner's version at the gradient minus the version that sampled them."""
    age_K = (learner_version - version_NS)[mask_NS]
    if age_K.numel() == 0:
        return {}
    ages, counts = age_K.unique(return_counts=True)
    share = counts.double() / age_K.numel()
    metrics = {
        "staleness/mean": float((ages * share).sum()),
        # The smallest age that at least 95 % of decisions do not exceed.
        "staleness/p95": float(ages[(share.cumsum(0) > 0.95 - 1e-9).nonzero()[0]]),
        "staleness/max": float(ages[-1]),
    }
    return metrics | {f"staleness/share/{a}": s for a, s in zip(ages.tolist(), share.tolist(), strict=True)}


def lags(fresh: TrainBatch, learner_version: int) -> dict[str, float]:
    """The ages of the rows that came in, which those of what was replayed would hide where a step trains on other rows."""
    age_K = (learner_version - fresh.column("version_NS", lags))[fresh.mask_NS]
    return {"replay/lag": float(age_K.double().mean()), "replay/lag_max": float(age_K.max())} if len(age_K) else {}


def replay_metrics(groups: Sequence[Group], learner_version: int) -> dict[str, float]:
    """The share of the trained episodes that a store replayed, and the mean age of their oldest decisions."""
    episodes = [episode for group in groups for episode in group.episodes]
    ages = [learner_version - episode.oldest for episode in episodes if episode.origin]
    return {"replay/share": len(ages) / len(episodes)} | ({"replay/age": sum(ages) / len(ages)} if ages else {})


def advantage_metrics(batch: TrainBatch) -> dict[str, float]:
    """Advantages as the objective sees them, over counted decisions."""
    advantage_NS = batch.column("advantage_NS", advantage_metrics)
    return {
        "advantage/mean": float(ops.masked_mean(advantage_NS, batch.mask_NS)),
        "advantage/std": float(ops.masked_std(advantage_NS, batch.mask_NS)),
    }


def order_metrics(groups: Sequence[Group], batch: TrainBatch) -> dict[str, float]:
    """Correlation of a rollout's score with its mean advantage, both minus the group mean (for a group of one: the batch mean).

    A negative value means that worse rollouts are made likelier: a sign is wrong. Absent if scores or advantages are all equal.
    """
    mask_NS, advantage_NS = batch.mask_NS, batch.column("advantage_NS", order_metrics)
    counted_N = mask_NS.any(-1)
    group_N = torch.tensor([place for place, group in enumerate(groups) for _ in group.rows])
    both = [(episode, row) for group in groups for episode in group.episodes for row in episode.rows]
    score_N = torch.tensor([row.earned if episode.apart else episode.earned for episode, row in both])
    if len(score_N) != batch.shape[0]:
        return {}  # rows were split or joined and are no longer rollouts
    if bool((group_N.bincount() == 1).all()):
        group_N = torch.zeros_like(group_N)
    advantage_N = (advantage_NS * mask_NS).sum(-1).cpu() / mask_NS.sum(-1).clamp(min=1).cpu()
    apart = []
    for value_N in (score_N.double(), advantage_N.double()):
        size_M = torch.zeros(int(group_N.max()) + 1, dtype=torch.double).index_add(0, group_N, torch.ones_like(value_N))
        sum_M = torch.zeros_like(size_M).index_add(0, group_N, value_N)
        apart.append((value_N - (sum_M / size_M.clamp(min=1))[group_N])[counted_N.cpu()])
    scale = float(apart[0].norm() * apart[1].norm())
    return {"advantage/order": float(apart[0] @ apart[1]) / scale} if scale > 1e-9 else {}


def value_metrics(batch: TrainBatch) -> dict[str, float]:
    """Share of the variance of the critic's target that it predicted before the update; below 0 a constant does better."""
    if batch.value_NS is None or batch.target_NS is None or not bool(batch.mask_NS.any()):
        return {}
    target_K, value_K = batch.target_NS[batch.mask_NS].double(), batch.value_NS[batch.mask_NS].double()
    variance = float(target_K.var(unbiased=False))
    return (
        {"value/explained": 1 - float((target_K - value_K).var(unbiased=False)) / variance} if variance > 1e-12 else {}
    )


def weight_metrics(correction_NS: Float[Tensor, "N S"], mask_NS: Bool[Tensor, "N S"]) -> dict[str, float]:
    """A correction's weights on the decisions, after truncation and masking."""
    weight_K = correction_NS[mask_NS]
    if weight_K.numel() == 0:
        return {}
    return {
        "is_weight/mean": float(weight_K.mean()),
        "is_weight/min": float(weight_K.min()),
        "is_weight/max": float(weight_K.max()),
        "is_weight/masked_frac": float((weight_K == 0).float().mean()),
    }


def _by_source(groups: Sequence[Group], sources: Sequence[str], *, judged: bool) -> dict[str, float]:
    """Metrics of everything sampled and scored since the last step, by task source."""
    metrics: dict[str, float] = {}
    for source in sources:
        own = [group for group in groups if group.task.source == source]
        metrics[f"source/{source}/frac"] = len(own) / max(1, len(groups))
        if episodes := [episode for group in own for episode in group.episodes]:
            metrics[f"source/{source}/reward"] = sum(episode.earned for episode in episodes) / len(episodes)
            if judged:
                metrics[f"source/{source}/pass_rate"] = sum(map(passed, episodes)) / len(episodes)
    return metrics
