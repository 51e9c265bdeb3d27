"""When an episode of control is not worth finishing."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

from gimbal.composition import AbstractPart, Composition, Refusal, Verdict
from gimbal.policies.squashed import SquashedGaussian

LEAST_ERROR = 1e-12  # below, a squared error is as good as none


@dataclass(frozen=True, kw_only=True)
class EarlyStop(AbstractPart):
    """Cuts an episode off where it promises less than usual and has little left to teach (LEAST, arXiv:2506.13672).

    At step t of an episode, Q_t = min_m Q_m(o_t, a_t) of the critic that travels with the policy (``policy.judges``), and l_t =
    (Q_t - r_t - ``gamma`` Q_{t+1})^2. Over those of the last ``window`` episodes that came as far,

        usual = median Q_t,   w = min(1, ``coefficient`` median l_{t-1} / l_{t-1}),   bar = w usual where usual >= 0, else usual / w

    and step t is the episode's last if Q_t < bar. A large error lowers the bar: there is something to learn. That is a truncation and
    never a termination: values look beyond it. Nothing stops in the first ``warmup`` steps of all, in the first ``after`` of an
    episode, where fewer than ``fewest`` episodes came as far, or in a share ``spared`` of the episodes, drawn at their beginning,
    without which those that are remembered would be the better ones alone.

    Not for environments that go on by themselves where an episode ends: a stop is a reset.

    - ``spared`` = 1, or ``after`` as long as the episodes: none stops, the same bits as without.
    - l_{t-1} at most ``coefficient`` times its median: w = 1, and the bar is the median of Q_t.

    Bars go by the sign of values, as published: a constant that is added to all rewards moves them. ``reward/stopped/mean`` is the
    share of episodes that are cut off so; ``reward/return/mean`` is of the others.

    Published: coefficient .3 to .6, 250 episodes, a start after 10 to 20 % of the training. Ours: w is at most 1 (a step better than
    usual never stops), l by the critic itself in place of its target, ``spared``. Not here: a window that grows with the entropy of
    values, and noise that grows as episodes stop.

    Confidence: partial; rule and constants from notes on the paper, which was not read.
    """

    coefficient: float = 0.5
    window: int = 50
    warmup: int = 500
    after: int = 10
    fewest: int = 5
    spared: float = 0.1
    gamma: float = 0.99

    def __post_init__(self) -> None:
        if not 0 < self.coefficient <= 1 or not 0 <= self.spared <= 1 or not 0 <= self.gamma <= 1:
            raise ValueError(
                f"EarlyStop has coefficient {self.coefficient} (above 0 and at most 1), spared {self.spared} and gamma {self.gamma} "
                "(from 0 to 1)"
            )
        if self.after < 1 or self.warmup < 0 or not 1 <= self.fewest <= self.window:
            raise ValueError(
                f"EarlyStop has after {self.after} (at least 1 step), warmup {self.warmup} (0 or more steps), and fewest {self.fewest} "
                f"of window {self.window} episodes: from 1 to that many"
            )

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        policy, held_out = whole.run.policy, whole.run.held_out
        if not isinstance(policy, SquashedGaussian) or not policy.judges:
            yield Refusal(
                f"EarlyStop asks a critic that travels with the policy, and {type(policy).__name__} carries none: begin with least or "
                "sac, and set policy.judges=2, as many as update.critic.members"
            )
        gammas = {vars(part)["gamma"] for part in whole.records if "gamma" in vars(part) and part is not self}
        if gammas and self.gamma not in gammas:
            yield Refusal(
                f"EarlyStop.gamma is {self.gamma}, by which it says how far off values are, and the update's is "
                f"{', '.join(map(str, sorted(gammas)))}: set both alike"
            )
        if held_out is not None and vars(held_out.engine or whole.run.engine).get("early_stop") is self:
            yield Refusal("EarlyStop would cut the episodes of the evaluation off: set held_out.engine='Episodes()'")

    def __call__(self, worth: float, error: float, worths: Sequence[float], errors: Sequence[float]) -> bool:
        """Whether a step of this worth is the last, after one of this error; beside those of other episodes at the same steps."""
        usual = median(worths)
        weight = min(1.0, self.coefficient * median(errors) / max(error, LEAST_ERROR))
        return worth < (weight * usual if usual >= 0 else usual / max(weight, LEAST_ERROR))


@dataclass(kw_only=True)
class Trace:
    """What the steps of an episode were worth, and how far off each of these values was, but for the last."""

    spared: bool
    worths: list[float] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)
    reward: float = 0.0  # of the last step
    stopped: bool = False


class Reflection:
    """The live half of ``EarlyStop``: the last episodes."""

    def __init__(self, spec: EarlyStop) -> None:
        self.spec = spec
        self.steps = 0  # of all episodes
        self.past: deque[Trace] = deque(maxlen=spec.window)

    def over(self, trace: Trace, worth: float) -> bool:
        """Enter what the next step of an episode is worth; whether that step is its last."""
        spec, t = self.spec, len(trace.worths)
        if t:
            trace.errors.append((trace.worths[-1] - trace.reward - spec.gamma * worth) ** 2)
        trace.worths.append(worth)
        self.steps += 1
        if trace.spared or t < spec.after or self.steps <= spec.warmup:
            return False
        held = [other for other in self.past if len(other.worths) > t]
        if len(held) < spec.fewest:
            return False
        others = [other.worths[t] for other in held], [other.errors[t - 1] for other in held]
        return spec(worth, trace.errors[-1], *others)

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps, "past": [asdict(trace) for trace in self.past]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.steps = state["steps"]
        self.past = deque((Trace(**trace) for trace in state["past"]), maxlen=self.spec.window)
