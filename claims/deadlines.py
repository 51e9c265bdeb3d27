"""Streams under deadlines: does a batch that is chosen before each pass serve more frames in time? (after StreamDiffusionV2)

**Setting.** A server on a virtual clock (`runtime/simulate/streams.py`): a frame takes four denoising passes, and a pass over B
frames 4 + B milliseconds. Viewers ask for ten frames a second in bursts (2 seconds on, 2 off, in the mean); every second one wants
each frame within 60 milliseconds, the others within 300. 20, 40 and 80 viewers, 30 seconds each, of which 20 are about what the
server can bear. Frames past their deadline are thrown away in all arms.

Arms: *first come*, the B frames that were asked for first; *hopeful*, the same of the frames that would still be in time if all
their passes were of such a batch; *deadline*, `DeadlineBatch`: the largest batch that its own frames have the time for, chosen anew
before each pass, with a margin of 0.9 and nothing to tune. B of the first two is the best of 2, 4, 8, 16, 32 and 64 by *in time* on
seed 100: one B for all three loads, as a server that does not know its load must have. *At its best B* is the same arm with the
best B of each load.

**Figures.** *in time*, the share of all frames that were finished by their deadline, the mean of the three loads; the same of each
load; *frames a second* in time, of the largest load; *wasted*, the share of that load's passes over frames that were late.

**Rule.** Seeds 0 to 4. *Choosing batches beats first come*: *deadline* above *first come* in *in time*. *It is the size, not giving
up*: *deadline* above *hopeful* in *in time*. *It needs no tuning to the load*: *deadline* above *hopeful at its best B*. Each by
the interval of the difference over all 25 pairs of seeds (exact, 96.8 %: the third from either end).

**Limits.** A simulation: seconds of a pass are given, not measured, and known to the rule. One server; no pipeline over layers, no
cache of past frames, no noise that adapts to motion, which are the larger part of that work; no video model.

Written before its runs, after pilots on seed 100. A first rule, the most urgent frames in the largest batch in which all of them are in
time, was far below first come under load (.14 beside .43 with 80 viewers), since one frame in a hurry makes the batch small for all.
The rule as it is had 1.00, .78 and .52 with 20, 40 and 80; *hopeful* at its best B of each load .99, .80 and .51.

    python claims/deadlines.py       # goes on from claims/deadlines.json; a minute of one core
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import campaign
from offline_page import held, shown, spread

from gimbal.runtime.simulate.streams import AbstractBatching, DeadlineBatch, FirstCome, LiveStream, serve

RECORD = Path(__file__).with_suffix(".json")
FIRST, HOPEFUL, DEADLINE = "first come", "hopeful", "deadline"
BATCHES, SEEDS, TUNING, VIEWERS, SECONDS = (2, 4, 8, 16, 32, 64), (0, 1, 2, 3, 4), 100, (20, 40, 80), 30.0
FIGURES = ("in time", *(f"in time, {count}" for count in VIEWERS), "frames a second", "wasted")
BEST = f"{HOPEFUL} at its best B"
ASKED = {
    "Choosing batches beats first come": (DEADLINE, FIRST),
    "It is the size, not giving up": (DEADLINE, HOPEFUL),
    "It needs no tuning to the load": (DEADLINE, BEST),
}
Job = tuple[str, int, int]  # arm, frames a pass (0: chosen), seed


def rule_of(arm: str, batch: int) -> AbstractBatching:
    return DeadlineBatch() if arm == DEADLINE else FirstCome(most=batch, hopeful=arm == HOPEFUL)


def viewers(count: int) -> list[LiveStream]:
    return [LiveStream(period_s=0.1, deadline_s=0.06 if n % 2 else 0.3) for n in range(count)]


def measure(job: Job) -> dict[str, Any]:
    arm, batch, seed = job
    served = [serve(viewers(count), rule_of(arm, batch), passes=4, seconds=SECONDS, seed=seed) for count in VIEWERS]
    shares = [one.in_time for one in served]
    values = (statistics.fmean(shares), *shares, served[-1].frames_per_s, served[-1].wasted)
    found = {name: round(value, 4) for name, value in zip(FIGURES, values, strict=True)}
    return {"arm": arm, "batch": batch, "seed": seed} | found


def best(runs: Sequence[dict[str, Any]], arm: str, figure: str = "in time") -> int:
    """The B of an arm: the best of its tuning runs by this figure, the smaller of equals."""
    if arm == DEADLINE:
        return 0
    tried = {run["batch"]: run[figure] for run in runs if (run["arm"], run["seed"]) == (arm, TUNING)}
    return max(BATCHES, key=lambda batch: tried[batch])


def left(runs: campaign.Runs) -> Iterator[list[Job]]:
    done = {(run["arm"], run["batch"], run["seed"]) for run in runs}
    tuning = [(arm, batch, TUNING) for arm in (FIRST, HOPEFUL) for batch in BATCHES]
    yield [job for job in tuning if job not in done]
    loads = {best(runs, HOPEFUL, f"in time, {count}") for count in VIEWERS}
    arms = {(arm, best(runs, arm)) for arm in (FIRST, HOPEFUL, DEADLINE)} | {(HOPEFUL, batch) for batch in loads}
    yield [(arm, batch, seed) for seed in SEEDS for arm, batch in sorted(arms) if (arm, batch, seed) not in done]


def own(runs: Sequence[dict[str, Any]], arm: str) -> dict[str, list[float]]:
    """Each figure of the fresh seeds, in their order; of *at its best B* those of the best B of each load."""
    found: dict[str, list[float]] = {}
    for name in FIGURES:
        load = name if name.startswith("in time,") else f"in time, {VIEWERS[-1]}"
        batch = best(runs, HOPEFUL, load) if arm == BEST else best(runs, arm)
        kept = [run for run in runs if (run["arm"], run["batch"]) == (HOPEFUL if arm == BEST else arm, batch)]
        found[name] = [run[name] for seed in SEEDS for run in kept if run["seed"] == seed]
    if arm == BEST:
        found["in time"] = [
            statistics.fmean(each) for each in zip(*(found[name] for name in FIGURES[1:4]), strict=True)
        ]
    return found


def section(runs: Sequence[dict[str, Any]]) -> str:
    about = "\n\n".join((__doc__ or "").split("\n\n")[1:-1])
    lines = ["## Batches under deadlines (`deadlines.py`)", "", about, "", f"{len(runs)} runs are recorded.", ""]
    lines += [f"| arm | B | {' | '.join(FIGURES)} |", "| --- " * (len(FIGURES) + 2) + "|"]
    for arm in (FIRST, HOPEFUL, BEST, DEADLINE):
        batch = {DEADLINE: "chosen", BEST: ", ".join(str(best(runs, HOPEFUL, f)) for f in FIGURES[1:4])}
        cells = [spread(values) for values in own(runs, arm).values()]
        lines.append(f"| *{arm}* | {batch.get(arm) or best(runs, arm)} | {' | '.join(cells)} |")
    lines += ["", "| question | difference | holds |", "| --- " * 3 + "|"]
    for asked, (one, other) in ASKED.items():
        apart = campaign.shift(own(runs, one)["in time"], own(runs, other)["in time"])
        lines.append(f"| {asked}: *{one}* above *{other}* | {shown(apart)} | {held(apart)} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, left, measure, campaign.described)
