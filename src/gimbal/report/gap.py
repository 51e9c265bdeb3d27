"""The causes of the gap between a sampler and the trainer, as text and as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal.policies.token import Sampling
from gimbal.records import AbstractSampling

WORST = 5  # decisions shown
EDGES = (1e-4, 1e-3, 1e-2, 0.1, 0.3, 1.0, 3.0)  # histogram edges, in nats
NEGLIGIBLE = 1e-3  # nats per decision: smaller causes are not named
CAUSES = ("delivery", "numerics", "sampling", "token drift", "staleness", "update")
MEANING = {
    "delivery": "the sampler does not have the weights of its version",
    "numerics": "precision, kernels and batching, with equal weights",
    "sampling": "its temperature, top-k or top-p differ from the record",
    "token drift": "the recorded tokens are not the sampled ones",
    "staleness": "the learner has moved on since",
    "update": "the learner's own update within the step",
}


@dataclass(frozen=True, kw_only=True)
class Attribution:
    """For D decisions: the signed part of each cause, their sum, and the decision itself."""

    part_D: Mapping[str, Float[Tensor, " D"]]
    total_D: Float[Tensor, " D"]
    pieces: Sequence[str]
    rollout: Sequence[int]  # the rollout of each decision
    sampling: AbstractSampling | None  # the sampler's apparent sampling, if it differs from the record
    reproduced: float  # mean gap between the record and a second evaluation by the same sampler, at that sampling
    drifted: int  # rollouts whose tokens do not decode to their text
    against: Mapping[str, float] = field(default_factory=dict)  # mean |gap| of the two halves of numerics

    @property
    def size(self) -> dict[str, float]:
        """Mean |part| of each cause, in nats per decision."""
        return {cause: float(part_D.abs().mean()) for cause, part_D in self.part_D.items()}

    @property
    def worst(self) -> str:
        return max(CAUSES, key=lambda cause: self.size[cause])


def figures(split: Attribution) -> dict[str, Any]:
    """As plain data: sizes and means of the causes, the histogram, the worst decisions, the tests' results."""
    return {
        "cause": split.worst if split.size[split.worst] >= NEGLIGIBLE else "none",
        "decisions": len(split.total_D),
        "mean_abs": {"total": float(split.total_D.abs().mean()), **split.size},
        "mean": {"total": float(split.total_D.mean()), **{cause: float(x.mean()) for cause, x in split.part_D.items()}},
        "histogram": _histogram(split.total_D),
        "worst": _worst(split),
        "tests": [{"test": name, "passed": passed, "found": found} for name, passed, found in _tests(split)],
    }


def described(split: Attribution, engine: str, against: str | None) -> str:
    """The same as text."""
    size, cause = split.size, split.worst
    total = float(split.total_D.abs().mean())
    verdict = f"mostly {cause}: {MEANING[cause]}" if size[cause] >= NEGLIGIBLE else "no significant cause"
    lines = [
        f"{engine} against the trainer, {len(split.total_D)} decisions: mean |log-ratio| {total:.4f}, {verdict}",
        "",
    ]
    lines.append("  cause         mean       mean |.|")
    for name, part_D in split.part_D.items():
        lines.append(f"  {name:12s} {float(part_D.mean()):+.5f}   {size[name]:.5f}")
    lines.append(f"  {'sum':12s} {float(split.total_D.mean()):+.5f}   {total:.5f}")
    if against is not None and split.against:
        near, far = split.against["near"], split.against["far"]
        lines += ["", f"  numerics: |{engine} - {against}| {near:.5f}, |{against} - trainer| {far:.5f}"]
    lines += ["", "  tests"]
    lines += [f"  {'ok    ' if passed else 'FAILED'}  {name}: {found}" for name, passed, found in _tests(split)]
    lines += ["", "  |log-ratio|"]
    counts = _histogram(split.total_D)
    most = max(counts.values())
    lines += [f"  {name:>10s}  {count:6d}  {'#' * round(40 * count / most)}" for name, count in counts.items()]
    lines += ["", "  worst decisions"]
    for row in _worst(split):
        parts = ", ".join(f"{name} {value:+.3f}" for name, value in row["parts"].items() if abs(value) >= NEGLIGIBLE)
        lines.append(f"  {row['log_ratio']:+.3f}  {row['before']!r} >>{row['piece']!r}  {parts}")
    return "\n".join(lines)


def _tests(split: Attribution) -> list[tuple[str, bool, str]]:
    size, found = split.size, split.sampling
    drawn = "" if found is None else f"temperature {found.temperature:.2f}"
    drawn += f", top-k {found.top_k}, top-p {found.top_p:.2f}" if isinstance(found, Sampling) else ""
    return [
        (
            "the sampler has the weights of its version",
            size["delivery"] < NEGLIGIBLE,
            f"mean gap {size['delivery']:.2g}",
        ),
        ("it reproduces what it recorded", split.reproduced < 10 * NEGLIGIBLE, f"mean gap {split.reproduced:.2g}"),
        (
            "it samples as recorded",
            found is None,
            f"it samples with {drawn}" if drawn else "no other sampling explains it better",
        ),
        ("tokens spell the sampled text", split.drifted == 0, f"{split.drifted} rollouts do not"),
    ]


def _histogram(total_D: Tensor) -> dict[str, int]:
    """Decisions by |log-ratio|."""
    place_D = torch.bucketize(total_D.abs(), torch.tensor(EDGES, dtype=total_D.dtype), right=True)
    counts = torch.bincount(place_D, minlength=len(EDGES) + 1).tolist()
    names = [f"< {EDGES[0]:g}", *(f"< {edge:g}" for edge in EDGES[1:]), f">= {EDGES[-1]:g}"]
    return dict(zip(names, counts, strict=True))


def _worst(split: Attribution) -> list[dict[str, Any]]:
    rows = []
    for index in split.total_D.abs().argsort(descending=True)[:WORST].tolist():
        start = index
        while start > max(0, index - 24) and split.rollout[start - 1] == split.rollout[index]:
            start -= 1
        rows.append(
            {
                "rollout": split.rollout[index],
                "before": "".join(split.pieces[start:index]),
                "piece": split.pieces[index],
                "log_ratio": float(split.total_D[index]),
                "parts": {cause: float(part_D[index]) for cause, part_D in split.part_D.items()},
            }
        )
    return rows
