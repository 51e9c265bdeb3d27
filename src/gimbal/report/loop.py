"""What the closed loop did, in sentences: for a step as it happens, and for a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

TOLD = 0.5  # a step that kept less than this is worth a line during the run


def event(step: int, metrics: Mapping[str, float]) -> str:
    """What the loop did in this step that is worth knowing at once, and why; usually nothing."""
    if "loop/returned" in metrics:
        return f"step {step}: the score left its band, so this step went back to version {metrics['loop/returned']:.0f}"
    kept = metrics.get("loop/kept", 1.0)
    if kept >= TOLD and "loop/at_end" in metrics:
        factor = metrics["loop/at_end"]
        other = "a larger" if factor > 1 else "a smaller"
        return (
            f"step {step}: the learning rate is now {factor:g} times the given one, the end of the closed loop's range; if it stays "
            f"there, start again from {other} one"
        )
    if kept >= TOLD:
        return ""
    if "loop/not_finite" in metrics:
        return f"step {step}: a loss or gradient was NaN or infinite, so the step was undone"
    moved = f"step {step} moved the policy {metrics['loop/attempted']:.2g} nats per decision (target {metrics['loop/target']:.2g})"
    return f"{moved}: kept {kept:.0%} of it" if kept else f"{moved}: undone"


def account(columns: Mapping[str, Sequence[float | None]]) -> str:
    """For a whole run; nothing without a loop."""
    kept = [share for share in columns.get("loop/kept", ()) if share is not None]
    factors = [factor for factor in columns.get("loop/factor", ()) if factor is not None]
    if not factors:
        return ""
    undone, shortened = sum(share == 0 for share in kept), sum(0 < share < 1 for share in kept)
    returns = [step + 1 for step, version in enumerate(columns.get("loop/returned", ())) if version is not None]
    parts = [f"{shortened} of {len(factors)} steps shortened, {undone} undone"]
    if returns:
        parts.append(f"return to an earlier version in step {', '.join(map(str, returns))}")
    parts.append(f"learning rate {factors[0]:.3g} times the given one at first, {factors[-1]:.3g} times at the end")
    return ", ".join(parts)
