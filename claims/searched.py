"""Streams that are searched as they are drawn: blocks that are chosen, streams that are chosen, noise that is handed on (Stream-T1)

**Setting.** gimbal-digits-stream as it is shipped, 200 streams of 12 blocks of four steps by the ODE, told the class for the first
block alone. Nothing is trained. *one*: streams as they come, 48 evaluations of the network each. *whole*: of two streams the one whose
blocks have the larger mean log-probability of the class under a linear classifier. *blocks*: `SearchedStream`, which draws two
candidates for each block and keeps the one of the larger log-probability; as many evaluations as *whole*. *handed*: the same, and a
quarter of the variance of a candidate's noise is that of the block that it follows.

**Figures.** *reward*: the mean log-probability over blocks, by which they are chosen. *held*: the share of blocks of the class asked
for by the five nearest odd rows of the data, which nothing is chosen by; *kept*: of the last block. *nearness*, *coverage*: of the last
blocks, as in `few_steps.py`.

**Rule.** Seeds 0 to 4. *Choosing blocks holds the class better than choosing streams* if the
interval of the difference in *held*, over all 25 pairs of seeds (exact, 96.8 %: the third from either end), lies above 0, and is
refuted if it lies below. *Noise that is handed on helps* by the same rule in *reward*.

**Limits.** The reward judges each block alone; no reward here sees two blocks at once. One beam. The share handed on was chosen by one
seed. What a class is worth is known to the reward, so this says how much search buys, not that a better policy could not do without.

Written before its runs, after pilots of 200 streams: with four candidates (seed 0) *held* .99 and *reward* -.03 for *blocks*, .99 and
-.02 with half of the noise handed on, .91 and -.41 for *whole*, .71 and -1.61 for *one*; with two (seed 100) .96 and -.17 for *blocks*,
.93 and -.32, .90 and -.44, .89 and -.45 with a quarter, a half and three quarters handed on.

    python claims/searched.py --processes 1     # goes on from claims/searched.json; three minutes of one idle core
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import campaign
import few_steps
import streams
import torch
from offline_page import held, shown, spread
from torch import Tensor

from gimbal import recipes
from gimbal.engines.base import Request, drained
from gimbal.engines.denoising import Denoising
from gimbal.environments.conditions import Conditions
from gimbal.policies.denoiser import Denoiser, DenoiserPolicy
from gimbal.policies.paths import Paths, PathSampling
from gimbal.records import Episode
from gimbal.rewards.digits import DigitClass
from gimbal.workflows.base import AbstractWorkflow
from gimbal.workflows.runner import Driven
from gimbal.workflows.searched_stream import SearchedStream
from gimbal.workflows.streamed import Streamed

RECORD = Path(__file__).with_suffix(".json")
ONE, WHOLE, BLOCKS, HANDED = "one", "whole", "blocks", "handed"
SEEDS, MANY, SHARE, COUNT = (0, 1, 2, 3, 4), 2, 0.25, 200
CHOOSING = DigitClass(name="log_p")
ARMS = (ONE, WHOLE, BLOCKS, HANDED)
FIGURES = ("reward", "held", "kept", "nearness", "coverage", "evaluations", "cpu")

Job = tuple[str, int]  # arm, seed


def workflow_of(arm: str) -> tuple[AbstractWorkflow, int]:
    """(how a stream is drawn, how many are for each)."""
    if arm in (ONE, WHOLE):
        return Streamed(blocks=streams.LONG), MANY if arm == WHOLE else 1
    carried = SHARE if arm == HANDED else 0.0
    return SearchedStream(blocks=streams.LONG, candidates=MANY, carried=carried, reward=CHOOSING), 1


def drawn(policy: DenoiserPolicy, sampling: PathSampling, arm: str, seed: int) -> list[list[Episode]]:
    """The streams of each task."""
    workflow, many = workflow_of(arm)
    engine, tasks = (
        Driven(engine=Denoising(slots=64), workflow=workflow).start(policy),
        Conditions(labels=tuple(range(10)), seed=3),
    )
    engine.load(0, policy.weights())
    for place in range(COUNT):
        for sample in range(many):
            engine.submit(Request(group=place, task=tasks[place], sample=sample, sampling=sampling, seed=seed))
    found: list[list[Episode]] = [[] for _ in range(COUNT)]
    for (place, _), finished in sorted(drained(engine).items()):
        assert isinstance(finished.outcome, Episode)
        found[place].append(finished.outcome)
    return found


def blocks(episode: Episode) -> Tensor:
    made = [row.decisions for row in episode.rows]
    return torch.cat([paths.sample_ND for paths in made if isinstance(paths, Paths)]).flatten(1)


def measure(job: Job) -> dict[str, Any]:
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    arm, seed = job
    start = time.process_time()
    sampling = recipes.load("streams").sampling
    assert isinstance(sampling, PathSampling)
    best, evaluations = [], 0
    for episodes in drawn(Denoiser(model="gimbal-digits-stream").load(), sampling, arm, seed):
        label_B = torch.full((streams.LONG,), int(episodes[0].task.columns["label"]))
        judged = [(float(CHOOSING.of_samples(x_BD, label_B).mean()), x_BD) for x_BD in map(blocks, episodes)]
        best.append((*max(judged, key=lambda pair: pair[0]), label_B))
        evaluations += sum(episode.drawn for episode in episodes)
    judge = DigitClass(by="neighbours", scale="hit")
    hit_NB = torch.stack([judge.of_samples(x_BD, label_B) for _, x_BD, label_B in best])
    last = few_steps.figures(torch.stack([x_BD[-1] for _, x_BD, _ in best]))
    told = {
        "reward": sum(value for value, *_ in best) / COUNT,
        "held": float(hit_NB.mean()),
        "kept": float(hit_NB[:, -1].mean()),
        "nearness": -last["energy"],
        "coverage": last["coverage"],
        "evaluations": evaluations / COUNT,
    }
    cpu = round(time.process_time() - start, 1)
    return {"arm": arm, "seed": seed, **{name: round(value, 4) for name, value in told.items()}, "cpu": cpu}


def left(runs: campaign.Runs) -> Iterator[list[Job]]:
    done = {(run["arm"], run["seed"]) for run in runs}
    yield [job for seed in SEEDS for arm in ARMS if (job := (arm, seed)) not in done]


def own(runs: Sequence[dict[str, Any]], arm: str) -> list[dict[str, Any]]:
    return sorted((run for run in runs if run["arm"] == arm), key=lambda run: run["seed"])


def above(runs: Sequence[dict[str, Any]], one: str, other: str, figure: str) -> tuple[float, float, float] | None:
    """By how much one arm is above another, and the interval, once all seeds of both are there."""
    both = [[run[figure] for run in own(runs, arm)] for arm in (one, other)]
    return campaign.shift(*both) if all(len(values) == len(SEEDS) for values in both) else None


def section(runs: Sequence[dict[str, Any]]) -> str:
    about = "\n\n".join((__doc__ or "").split("\n\n")[1:-1])
    lines = ["## Streams that are searched (`searched.py`)", "", about, ""]
    lines += [f"{len(runs)} of {len(ARMS) * len(SEEDS)} runs are recorded.", ""]
    lines += [f"| arm | {' | '.join(FIGURES[:-1])} | seconds of CPU |", "| --- " * (len(FIGURES) + 1) + "|"]
    for arm in ARMS:
        lines.append(f"| *{arm}* | {' | '.join(spread([run[name] for run in own(runs, arm)]) for name in FIGURES)} |")
    lines += ["", "| question | difference | holds |", "| --- " * 3 + "|"]
    for asked, one, other, figure in (
        ("Choosing blocks holds the class better", BLOCKS, WHOLE, "held"),
        ("Noise that is handed on helps", HANDED, BLOCKS, "reward"),
    ):
        apart = above(runs, one, other, figure)
        lines.append(f"| {asked}: *{one}* above *{other}* | {shown(apart)} | {held(apart)} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, left, measure, campaign.described)
