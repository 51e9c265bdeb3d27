"""A sampler of one, two or four steps, distilled by scores: nearer to the data than the base model in as few steps? (DMD2)

**Setting.** gimbal-digits, without classes. *base* is the shipped model by the ODE in 1, 2, 4 and 10 steps, evenly spaced from 1 to 1 /
S (`spacing=trailing`); of the ODE and of noising anew after each step it is the better one at each number. *student* is the recipe
`dmd2` for 1, 2 and 4 steps: 24 learner steps on 32 samples each, 5 updates of fake and then one of the policy, both at 3e-4 with beta1
0 (published: one rate for both, beta1 0), the base as its teacher. Students sample as they were trained, noised anew after each step
but the last.

**Figures**, of 400 samples. *energy*: the energy distance to scikit-learn's 1,797 digits, 2 E|X - Y| - E|X - X'| - E|Y - Y'| in pixels
from -1 to 1, without the pairs of a sample with itself; 0 for equal distributions. *classes*: the same of the ten probabilities of a
linear classifier. *coverage*: the share of digits with a sample nearer than their fifth neighbour; *distance*: the mean from the
nearest digit. *apart* and *fake*, the means of the last 8 learner steps: of the clean samples that fake and teacher predict, and of
fake's loss.

**Rule.** Seeds 0 to 4, which set the training and the noise that is sampled from. An arm is nearer than another if the interval of the
difference in *energy*, over all 25 pairs of seeds (exact, 96.8 %: the third from either end), lies below 0, and farther if it lies
above. For each S: *distillation helps* if *student* is nearer than *base* in S steps, and is refuted if it is farther; *it keeps
coverage* if the interval of the difference in *coverage* does not lie below 0; *S steps are as good as ten* if *student* is nearer than
*base* in ten.

**Limits.** 24 learner steps are 20,000 evaluations of the network, ten seconds of an idle core; where it ends is not measured. One
rate, chosen by a single pilot. Without the paper's GAN loss, which is what sharpens samples beyond the teacher's. Coverage of an
unsharp sampler is flattered, as blurred digits lie near many: it decides nothing alone.

Written before its runs, after pilots: the base (one draw of 500) had energies of 2.23, 0.41, 0.10 and 0.03 in 1, 2, 4 and 10 steps by
the ODE, 0.44 and 0.23 in 2 and 4 noised anew; a student of 2 steps (seed 100, 20 learner steps at 3e-4) had 0.14, with a coverage of
0.08 of 200 samples. At rates of 5e-4 and 1e-3 for fake, and 1e-4 and 3e-4 for the policy, coverage fell as well.

    python claims/few_steps.py --processes 1     # goes on from claims/few_steps.json; three minutes of one idle core
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import campaign
import torch
from torch import Tensor

from gimbal import recipes
from gimbal.engines.base import Request, drained
from gimbal.engines.denoising import Denoising
from gimbal.environments.conditions import Conditions
from gimbal.policies.denoiser import Denoiser, DenoiserPolicy
from gimbal.policies.paths import Paths, PathSampling
from gimbal.rewards.digits import DigitClass, digits
from gimbal.runtime.local import Trainer
from gimbal.runtime.run import UpdateRun

RECORD = Path(__file__).with_suffix(".json")
BASE, STUDENT = "base", "student"
SEEDS, FEW, MANY = (0, 1, 2, 3, 4), (1, 2, 4), 10
STEPS, ROWS, RATE, SAMPLES, LAST = 24, 32, 3e-4, 400, 8

Runs = Sequence[dict[str, Any]]
Job = tuple[str, int, int]  # arm, denoising steps, seed


def sampling_of(arm: str, steps: int) -> PathSampling:
    anew = arm == STUDENT and steps > 1
    return PathSampling(max_length=steps, sampler="cps" if anew else "ode", noise=1.0, spacing="trailing")


def run_of(steps: int, seed: int) -> UpdateRun:
    run = recipes.load("dmd2")
    assert isinstance(run, UpdateRun)
    rates = replace(run.update.optimization, learning_rate=RATE, critic_learning_rate=RATE, beta1=0.0)
    sizes = {"prompts_per_step": 2, "num_generations": ROWS // 2, "policy": Denoiser(batch=ROWS)}
    return replace(
        run, sampling=sampling_of(STUDENT, steps), update=replace(run.update, optimization=rates), seed=seed, **sizes
    )


def at_rate(steps: int, rate: float, seed: int, **changes: Any) -> UpdateRun:
    """The same with one rate for all networks and other parts of the update, for claims that add something to it."""
    run = run_of(steps, seed)
    rates = replace(run.update.optimization, learning_rate=rate, critic_learning_rate=rate)
    return replace(run, update=replace(run.update, optimization=rates, **changes), held_out=None)


def taught(run: UpdateRun, steps: int) -> tuple[DenoiserPolicy, list[dict[str, float]], float]:
    """The policy after so many learner steps, their metrics, and the seconds of the processor."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    trainer = Trainer(run)
    trainer.begin()
    start = time.process_time()
    metrics = [trainer.advance()[0] for _ in range(steps)]
    cpu = round(time.process_time() - start, 1)
    trainer.close()
    return trainer.learner.policy, metrics, cpu


def drawn(policy: DenoiserPolicy, sampling: PathSampling, seed: int) -> Tensor:
    engine, tasks = Denoising(slots=64).start(policy), Conditions(seed=3)
    engine.load(0, policy.weights())
    for sample in range(SAMPLES):
        engine.submit(Request(group=sample, task=tasks[sample], sample=0, sampling=sampling, seed=seed))
    found = [finished.rollout.decisions for finished in drained(engine).values()]
    return torch.cat([path.sample_ND for path in found if isinstance(path, Paths)]).flatten(1)


def energy(x_ND: Tensor, y_KD: Tensor) -> float:
    """Between two sets, without bias: no pair of a member with itself."""

    def within(z_MD: Tensor) -> Tensor:
        return torch.cdist(z_MD, z_MD).sum() / (len(z_MD) * (len(z_MD) - 1))

    return float(2 * torch.cdist(x_ND, y_KD).mean() - within(x_ND) - within(y_KD))


def classes(x_ND: Tensor) -> Tensor:
    asked = torch.zeros(len(x_ND), dtype=torch.long)
    return torch.stack([DigitClass(wanted=c, scale="probability").of_samples(x_ND, asked) for c in range(10)], -1)


def figures(x_ND: Tensor) -> dict[str, float]:
    data_KD, _ = digits()
    near = torch.cdist(data_KD, data_KD).kthvalue(6).values
    found = {
        "energy": energy(x_ND, data_KD),
        "classes": energy(classes(x_ND), classes(data_KD)),
        "coverage": float((torch.cdist(data_KD, x_ND).amin(-1) < near).float().mean()),
        "distance": float(torch.cdist(x_ND, data_KD).amin(-1).mean()),
    }
    return {name: round(value, 4) for name, value in found.items()}


def measure(job: Job) -> dict[str, Any]:
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    arm, steps, seed = job
    start, told = time.process_time(), dict[str, float]()
    if arm == BASE:
        policy = Denoiser().load()
    else:
        trainer, seen = Trainer(run_of(steps, seed)), defaultdict(list)
        trainer.begin()
        for _ in range(STEPS):
            for name, value in trainer.advance()[0].items():
                seen[name].append(value)
        trainer.close()
        means = {"apart": "matching/apart", "fake": "fake/loss"}
        told = {name: round(statistics.fmean(seen[key][-LAST:]), 4) for name, key in means.items()}
        policy = trainer.learner.policy
    cpu = round(time.process_time() - start, 1)
    return {
        "arm": arm,
        "steps": steps,
        "seed": seed,
        **figures(drawn(policy, sampling_of(arm, steps), seed)),
        **told,
        "cpu": cpu,
    }


def left(runs: Runs) -> Iterator[list[Job]]:
    done = {(run["arm"], run["steps"], run["seed"]) for run in runs}
    jobs = [(BASE, steps, seed) for seed in SEEDS for steps in (*FEW, MANY)]
    jobs += [(STUDENT, steps, seed) for seed in SEEDS for steps in FEW]
    yield [job for job in jobs if job not in done]


def own(runs: Runs, arm: str, steps: int) -> Runs:
    found = [run for run in runs if (run["arm"], run["steps"]) == (arm, steps)]
    return sorted(found, key=lambda run: run["seed"])


def apart(runs: Runs, steps: int, beside: int, figure: str = "energy") -> tuple[float, float, float] | None:
    """By how much the student's figure is above the base's in ``beside`` steps, and the interval, once all seeds are there."""
    both = [[run[figure] for run in own(runs, *arm)] for arm in ((STUDENT, steps), (BASE, beside))]
    return campaign.shift(*both) if all(len(values) == len(SEEDS) for values in both) else None


def verdicts(runs: Runs, steps: int) -> tuple[str, str, str]:
    """(distillation helps, it keeps coverage, as good as ten)."""
    energies, coverage, ten = apart(runs, steps, steps), apart(runs, steps, steps, "coverage"), apart(runs, steps, MANY)
    if energies is None or coverage is None or ten is None:
        return ("seeds are missing",) * 3
    helps = "**yes**" if energies[2] < 0 else "**refuted**" if energies[1] > 0 else "not decided"
    return helps, "no" if coverage[2] < 0 else "yes", "yes" if ten[2] < 0 else "no" if ten[1] > 0 else "not decided"


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, left, measure, campaign.described)
