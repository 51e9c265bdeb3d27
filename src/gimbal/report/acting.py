"""The doctor's rules for policies that act: their tool calls, their turns, and failures around them."""

from __future__ import annotations

import shlex

from gimbal.report.record import Record, Sign, names

USED = 0.05  # share of episodes that call a tool; below it almost no gradient tells what a call is worth
FAILED = 0.5  # share of calls that end in an error
CUT = 0.5  # share of episodes that are cut at their last turn
BROKE = 0.1  # share of rollouts lost to an environment, tool, sandbox, agent or provider; above it the rest may be a biased selection
REBUILT = 0.5  # share of an agent's later turns that begin a row anew; above it, most read what was said as tokens that nobody drew
STARVED = (
    0.02  # share of a role in the pull on shared weights; below a fiftieth, the other roles move them in all but name
)
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


def histories_rebuilt(record: Record) -> Sign | None:
    """A black-box agent that rewrites what was said. Workflows that begin rows by design (memories, edits) are not meant."""
    broken = record.late("rows/broken_frac")
    if broken is None or broken < REBUILT or record.setting("workflow.class", "") != "Agent":
        return None
    evidence = (
        f"{broken:.0%} of the agent's later turns begin a row anew (median of the second half; limit {REBUILT:.0%}): it rewrites its "
        "history or a helper asks beside it, so what was said may come back as other tokens, and each such row is paid for in full; "
        "append to the messages instead"
    )
    return Sign(name="histories rebuilt", evidence=evidence, experiment=_page(record))


def role_starved(record: Record) -> Sign | None:
    """Roles of shared weights: the pull of one is its share of the decisions times the spread of its advantages."""
    roles = [
        name.removeprefix("role/").removesuffix("/frac") for name in names(record, "role/") if name.endswith("/frac")
    ]
    frac, spread = (
        {role: record.late(f"role/{role}/{what}") or 0.0 for role in roles} for what in ("frac", "advantage")
    )
    whole = sum(frac[role] * spread[role] for role in roles)
    if len(roles) < 2 or not whole or record.setting("separate", None):
        return None
    role = min(roles, key=lambda role: frac[role] * spread[role])
    if (pull := frac[role] * spread[role] / whole) >= STARVED:
        return None
    evidence = (
        f"{role} has {pull:.1%} of the pull on the shared weights (limit {STARVED:.0%}): {frac[role]:.1%} of the decisions, with "
        f"advantages of spread {spread[role]:.2g} (medians of the second half); weights of its own have an optimizer of their own"
    )
    return Sign(
        name="a role starves", evidence=evidence, experiment=record.again(f"separate={{{role!r}: SeparateWeights()}}")
    )


def _page(record: Record) -> str:
    """The report page shows the rollouts, call by call."""
    return shlex.join(["gimbal", "report", str(record.directory)])
