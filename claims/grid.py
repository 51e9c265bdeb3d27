"""Whether a closed loop holds a run that a fixed method loses: age, sampler, group, learning rate and tasks, in a Latin hypercube.

**Setting.** ``gimbal-tiny``, 24 steps of 64 rollouts, constant learning rate, groups normalised, means over tokens. The score is
held-out pass@1 *in the sampler* after the last step (256 tasks, 2 samples). A cell is one choice of

- tasks: chain_sum or spell_backward, the two subjects that the model was made from;
- age: data of exactly 0, 1, 4 or 16 versions (``ahead="full"``), once the pipeline is full;
- sampler: float32, or its weights rounded to int8 or int4 at the version it has;
- group: 8 tasks x 8 rollouts or 32 x 2;
- learning rate: 1e-5, 3e-5, 1e-4, 3e-4 or 1e-3.

40 cells are drawn as a Latin hypercube: each level of a factor as often as any other, give or take one. Four corners come on top:
both subjects at age 16, int4, groups of 2, with the lowest and the highest rate. Four cells (``long``) are run for 96 steps too.

**Arms.** *loop*: the recipe ``stable`` as it is, started at the cell's rate. *decoupled*: the same method without the loop, at that
rate for the whole run: 4 updates a batch, clip (0.2) around the recomputed policy, the weight exp(proximal - behavior) of each
token, which counts 0 above 5; of the fixed methods of dose.py it had the highest score at ages 4 and 16. *plain*: one update, no
correction. *tuned*: *decoupled* at the best of three rates (``TRIED``) in that setting, chosen by one run each (seed 100, 128 tasks).

**Rule.** A run collapsed if it ends below what the first policy scores on the same tasks. The loop holds if none of its runs
collapsed and the median over cells of its score less that of *tuned* is above -0.02; a cell fails if the mean of its seeds is more
than 0.02 below that of *tuned*. Steps to 0.9: the first step from which a mean over three of training's pass rate is at least 0.9
of what *tuned* ends with in training (mean of its last three). Stages are run in the order of ``STAGES``; the page says how many
of how many.

Written before the first run of it. Three things were changed since. The loop's first version went by the age of data instead of the
distance from it (docs/stability.md); its 40 runs of seed 0 (none collapsed, median .85, least .64 on spell_backward at age 16) led
to the present one, whose bound was chosen on seed 100, on both subjects. All runs of *loop* recorded here are of the present one, and
seed 0 is not a fresh seed for it: 1 and 2 are. Seed 0 and the corners were run before two small fixes (docs/stability.md), 1 and 2 of
the hypercube after them. *tuned* is chosen of three rates, because none of 16 runs at the others was best. Fresh seeds were moved
before the long runs.

    python claims/grid.py --processes 2       # goes on from claims/grid.json; the whole takes about three hours of one idle core
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import campaign
import numpy as np

from gimbal.engines.native import Native
from gimbal.environments.demonstrations import held_out_tasks, training_tasks
from gimbal.learning.learner import NotFinite
from gimbal.learning.optimization import Optimization
from gimbal.objectives import ClippedRatio, MaskedWeight
from gimbal.ops import TokenMean
from gimbal.policies.token import Sampling
from gimbal.recipes.core.grpo import grpo
from gimbal.recipes.core.stable import stable
from gimbal.runtime.evaluate import evaluate
from gimbal.runtime.faults import Faults
from gimbal.runtime.local import Trainer
from gimbal.runtime.run import Run

RECORD = Path(__file__).with_suffix(".json")
STEPS, LONG, ROLLOUTS, TUNING, DESIGN_SEED, CELLS = 24, 96, 64, 100, 13, 40
LEVELS: Mapping[str, tuple[Any, ...]] = {
    "tasks": ("chain_sum", "spell_backward"),
    "age": (0, 1, 4, 16),
    "sampler": ("float32", "int8", "int4"),
    "group": (8, 2),
    "rate": (1e-5, 3e-5, 1e-4, 3e-4, 1e-3),
}
# What *tuned* is chosen of. On seed 0, 16 runs of the fixed method at 3e-4 and 1e-3 scored 0.000 to 0.559, none of them the best rate.
TRIED = (1e-5, 3e-5, 1e-4)
LENGTH = {"chain_sum": 64, "spell_backward": 80}  # what sound working takes


class Cell(NamedTuple):
    tasks: str
    age: int
    sampler: str
    group: int
    rate: float


@dataclass(frozen=True)
class Job:
    arm: str
    cell: Cell
    seed: int
    steps: int = STEPS


def hypercube() -> list[Cell]:
    """Each level of each factor equally often, columns shuffled until no cell comes twice."""
    rng = np.random.default_rng(DESIGN_SEED)
    while True:
        columns = []
        for levels in LEVELS.values():
            places = rng.permutation(np.resize(np.arange(len(levels)), CELLS))
            columns.append([levels[place] for place in places])
        cells = [Cell(*row) for row in zip(*columns, strict=True)]
        if len(set(cells)) == CELLS:
            return cells


def starts() -> list[Cell]:
    """Where runs begin."""
    return [Cell(tasks, 0, sampler, 8, 0.0) for tasks, sampler in product(LEVELS["tasks"], LEVELS["sampler"])]


def long() -> list[Cell]:
    """Where a run has four times as many steps to be lost in: one cell of each age, rate and kind of sampler, the coarse ones stale."""
    return [
        Cell("chain_sum", 1, "int8", 8, 1e-4),
        Cell("chain_sum", 4, "int4", 2, 3e-4),
        Cell("spell_backward", 16, "int4", 8, 1e-3),
        Cell("spell_backward", 0, "float32", 2, 1e-5),
    ]


def corners() -> list[Cell]:
    return [Cell(tasks, 16, "int4", 2, rate) for tasks, rate in product(LEVELS["tasks"], (1e-5, 1e-3))]


def run_of(job: Job) -> Run:
    cell = job.cell
    base = stable() if job.arm == "loop" else grpo()
    run = replace(
        base,
        tasks=training_tasks(cell.tasks),
        held_out=None,
        sampling=Sampling(max_length=LENGTH[cell.tasks]),
        engine=Native(slots=ROLLOUTS, precision="float32"),
        faults=None if cell.sampler == "float32" else Faults(weight_precision=cell.sampler, unproved=True),
        prompts_per_step=ROLLOUTS // cell.group,
        num_generations=cell.group,
        max_staleness=cell.age,
        ahead="full",
        aggregation=TokenMean(),
        optimization=replace(base.optimization, learning_rate=cell.rate, microbatch_tokens=4096),
        steps=job.steps,
        seed=job.seed,
        threads=1,
    )
    if job.arm in ("decoupled", "tuned"):
        optimization = Optimization(learning_rate=cell.rate, minibatches=4, microbatch_tokens=4096)
        return replace(
            run, optimization=optimization, objective=ClippedRatio(), correction=MaskedWeight(low=0.0, high=5.0)
        )
    return run


def measure(job: Job) -> dict[str, Any]:
    return measured(job, run_of(job))


def measured(job: Job, run: Run) -> dict[str, Any]:
    """One run: its score, its pass rate in training, and what the loop did."""
    trainer = Trainer(run)
    trainer.begin()
    curve: list[float] = []
    loop: list[dict[str, float]] = []
    ended = ""
    try:
        for _ in range(job.steps):
            metrics, _, _ = trainer.advance()
            curve.append(metrics["pass_rate"])
            loop.append({name: float(f"{x:.3g}") for name, x in metrics.items() if name.startswith("loop/")})
        score = held_out(trainer, *((128, 2) if job.seed == TUNING else (256, 2)))
    except NotFinite as error:
        ended, score = str(error).partition(";")[0], 0.0
    finally:
        trainer.close()
    found = {
        **asdict(job),
        "cell": job.cell._asdict(),
        "score": score,
        "pass_rate": [round(x, 3) for x in curve],
        "ended": ended,
    }
    return found | ({"loop": loop} if job.arm == "loop" else {})


def held_out(trainer: Trainer, tasks: int, samples: int) -> float:
    """pass@1 of the present weights in the sampler's own precision, on held-out tasks."""
    run, policy = trainer.run, trainer.learner.policy
    engine = trainer.faults.rounding(run.engine.start(policy))
    engine.load(trainer.learner.version, policy.state_dict())
    name = run.tasks.name
    return evaluate(
        engine, held_out_tasks(name, tasks), trainer.rewards, run.sampling, samples=samples, seed=run.seed
    ).pass_at[1]


def load(path: Path = RECORD) -> list[dict[str, Any]]:
    return campaign.load(path)


def of(
    runs: Sequence[Mapping[str, Any]], arm: str, cell: Cell, seeds: Sequence[int], steps: int = STEPS
) -> list[Mapping[str, Any]]:
    """The runs of an arm in a cell, in the order of seeds."""
    wanted = {"arm": arm, "cell": cell._asdict(), "steps": steps}
    here = [run for run in runs if run["seed"] in seeds and all(run[name] == value for name, value in wanted.items())]
    return sorted(here, key=lambda run: run["seed"])


def best(runs: Sequence[Mapping[str, Any]], cell: Cell) -> Cell | None:
    """The same setting at its best learning rate, once all have been tried; the smaller of equals."""
    tried = {rate: of(runs, "tuned", cell._replace(rate=rate), [TUNING]) for rate in TRIED}
    if not all(tried.values()):
        return None
    return cell._replace(rate=max(tried, key=lambda rate: tried[rate][0]["score"]))


def start(runs: Sequence[Mapping[str, Any]], cell: Cell) -> float:
    """What the first policy scores, in the cell's sampler on its tasks."""
    return of(runs, "start", Cell(cell.tasks, 0, cell.sampler, 8, 0.0), [0], 0)[0]["score"]


@dataclass(frozen=True)
class Stage:
    arm: str
    cells: (
        str  # starts, hypercube, corners, long; or the settings of the first two at every rate (tuning) or at the best
    )
    seeds: tuple[int, ...]
    steps: int = STEPS


STAGES = (
    Stage("start", "starts", (0,), steps=0),
    Stage("loop", "hypercube", (0,)),
    Stage("decoupled", "hypercube", (0,)),
    Stage("loop", "corners", (0, 1, 2, 3, 4)),
    Stage("tuned", "tuning", (TUNING,)),
    Stage("tuned", "best", (0,)),
    Stage("loop", "hypercube", (1,)),
    Stage("tuned", "best", (1,)),
    Stage("loop", "hypercube", (2,)),
    Stage("tuned", "best", (2,)),
    Stage("loop", "long", (0,), steps=LONG),
    Stage("decoupled", "long", (0,), steps=LONG),
    Stage("decoupled", "corners", (0, 1, 2, 3, 4)),
    Stage("plain", "hypercube", (0,)),
    Stage("decoupled", "hypercube", (1, 2)),
)


def jobs(stage: Stage, runs: Sequence[Mapping[str, Any]]) -> list[Job]:
    """What a stage is made of; the best rates are known once the stages before it are done."""
    named = {"starts": starts(), "hypercube": hypercube(), "corners": corners(), "long": long()}
    cells = named.get(stage.cells, hypercube() + corners())
    if stage.cells == "tuning":
        cells = [cell._replace(rate=rate) for cell in cells for rate in TRIED]
    elif stage.cells == "best":
        cells = [found for cell in cells if (found := best(runs, cell)) is not None]
    return [Job(stage.arm, cell, seed, stage.steps) for seed in stage.seeds for cell in dict.fromkeys(cells)]


def whole() -> int:
    """All runs, each once: at the best rate as many settings are run as were tuned, whichever rate it is."""
    settings = len({cell[:-1] for cell in hypercube() + corners()})
    planned = {job for stage in STAGES if stage.cells != "best" for job in jobs(stage, [])}
    return len(planned) + sum(settings * len(stage.seeds) for stage in STAGES if stage.cells == "best")


def left(stage: Stage, runs: Sequence[Mapping[str, Any]]) -> list[Job]:
    done = {(run["arm"], Cell(**run["cell"]), run["seed"], run["steps"]) for run in runs}
    return [job for job in jobs(stage, runs) if (job.arm, job.cell, job.seed, job.steps) not in done]


def told(found: Mapping[str, Any]) -> str:
    return " ".join(map(str, [found["arm"], *found["cell"].values(), found["seed"], f"{found['score']:.3f}"]))


def main() -> None:
    campaign.campaign(__doc__, RECORD, lambda runs: (left(stage, runs) for stage in STAGES), measure, told)


if __name__ == "__main__":
    main()
