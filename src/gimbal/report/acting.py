"""The doctor's rules for policies that act: their tool calls, their turns, and failures around them."""

from __future__ import annotations

import shlex

from gimbal.report.record import Record, Sign, names

USED = 0.05  # share of episodes that call a tool; below it almost no gradient tells what a call is worth
FAILED = 0.5  # share of calls that end in an error
CUT = 0.5  # share of episodes that are cut at their last turn
BROKE = 0.1  # share of rollouts lost to an environment, tool, sandbox, agent or provider; above it the rest may be a biased selection
LEAST = 8  # lost rollouts below which a share means nothing


def environment_errors(record: Record) -> Sign | None:
    """Something around the policy breaks so often that the remaining episodes may not be representative."""
    kinds = {
        name: max(record(name)) for name in names(record, "drops/rollouts/") if name.endswith(("_error", "_timeout"))
    }
    lost = sum(kinds.values())
    trained = len(record.rows) * record.setting("prompts_per_step", 16) * record.setting("num_generations", 8)
    if lost < LEAST or lost < BROKE * (lost + trained):
        return None
    worst = max(kinds, key=lambda name: kinds[name])
    evidence = (
        f"{lost:.0f} rollouts were lost to failures around the policy, {lost / (lost + trained):.0%} of those sampled (limit "
        f"{BROKE:.0%}), most as {worst.rpartition('/')[2]} ({kinds[worst]:.0f}); the run printed the first ones with their reasons"
    )
    return Sign(name="environment errors", evidence=evidence, experiment=record.again("steps=1", "record_every=1"))


def tools_unused(record: Record) -> Sign | None:
    used = record.late("tool/used_frac")
    if used is None or used >= USED or record.solved:
        return None
    begin = record.early("tool/used_frac") or 0.0
    evidence = f"{used:.1%} of the episodes call a tool (median of the second half; limit {USED:.0%})"
    if begin < USED:
        evidence += (
            ", from the start: check that the chat template shows the tools and that its call format is the model's"
        )
        return Sign(name="tools not called", evidence=evidence, experiment=_page(record))
    evidence += f"; at first {begin:.0%} did: calls did not pay off"
    return Sign(name="tools not called", evidence=evidence, experiment=record.again(record.rate(0.3)))


def calls_fail(record: Record) -> Sign | None:
    failed = record.late("tool/failed_frac")
    if failed is None or failed < FAILED or record.solved:
        return None
    evidence = f"{failed:.0%} of the tool calls end in an error (median of the second half; limit {FAILED:.0%})"
    return Sign(name="tool calls fail", evidence=evidence, experiment=_page(record))


def turns_exhausted(record: Record) -> Sign | None:
    cut = record.late("tool/cut_frac")
    if cut is None or cut < CUT or record.solved:
        return None
    answers = record.setting("workflow.answers", 8)  # Dialogue's own
    evidence = (
        f"{cut:.0%} of the episodes are cut at their last turn (median of the second half; limit {CUT:.0%}); "
        f"workflow.answers is {answers}"
    )
    return Sign(name="too few turns", evidence=evidence, experiment=record.again(f"workflow.answers={2 * answers}"))


def _page(record: Record) -> str:
    """The report page shows the rollouts, call by call."""
    return shlex.join(["gimbal", "report", str(record.directory)])
