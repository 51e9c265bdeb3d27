"""Flow-GRPO (or DDPO) beside a plain loop over diffusers, written as its authors train: the same network, scheduler, reward, batch,
steps and rates, one thread each. Both sides take turns, a seed each; CPU seconds of training, without start and evaluation. On a GPU,
which both sides then use, they are seconds of the clock.

The loop samples a batch with its log-probabilities, scores it, takes advantages, and then goes over minibatches and, in each, over the
drawn steps one at a time: network, (of Flow-GRPO) the reference's network without gradient, loss, backward; one move of AdamW a
minibatch. Its old log-probabilities are those of sampling. So are gimbal's here: a float32 sampler, no staleness, and the anchor
Behavior; nothing else of the recipes is changed but the size of a step. On a CPU both call the network on 64 samples at a time.
The loop can call it on no more than a minibatch; gimbal takes all steps of a minibatch together, on a GPU in one call of 320.

``reward_1`` to ``reward_4`` are the reward, log p of the wanted class, over each quarter of the steps. ``wanted_last`` is the last of
them, as a geometric mean of p; ``p`` is of an exact permutation test of its logarithms over the seeds.

    python benchmarks/denoising.py flow_grpo --seeds 5 --out benchmarks/denoising.json    # on a GPU, to denoising_gpu.json
    python benchmarks/denoising.py ddpo --seeds 5 --out benchmarks/denoising_ddpo.json
"""

from __future__ import annotations

import argparse
import copy
import itertools
import json
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gimbal import recipes
from gimbal.engines.denoising import Denoising
from gimbal.learning.proximal.behavior import Behavior
from gimbal.policies import diffusers as parts
from gimbal.rewards import digits
from gimbal.runtime.local import Trainer

GROUPS, GROUP, WANTED, ANY = 4, 16, 4, 10  # samples of a step; the class that is wanted, and the label of none
WARMUP = 1  # steps before the clock starts
WHERE = torch.device("cuda" if torch.cuda.is_available() else "cpu")

BATCH = 320 if WHERE.type == "cuda" else 64  # of gimbal's network calls: on a GPU they cost the same at either size
RATE = f"samples_per_{'s' if WHERE.type == 'cuda' else 'cpu_s'}"


def clock() -> float:
    """Seconds: of this process on a CPU, of the wall on a GPU once it has done what it was asked."""
    if WHERE.type == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


@dataclass(frozen=True)
class Case:
    """What the two recipes differ in, for the plain loop."""

    recipe: str
    steps: int
    denoising: int  # steps of a path
    drawn: int  # of which the first so many are drawn
    kl: float
    by_group: bool  # advantages scaled by the group's deviation, or by the batch's


CASES = {
    "flow_grpo": Case("flow_grpo", 16, 10, 9, 0.04, by_group=False),
    "ddpo": Case("ddpo", 16, 10, 8, 0.0, by_group=True),
}


def ours(case: Case, seed: int) -> dict[str, Any]:
    run = recipes.function(case.recipe)()
    run = replace(
        run,
        policy=replace(run.policy, batch=BATCH),
        engine=Denoising(slots=64),
        anchor=Behavior(),
        max_staleness=0,
        ahead="ready",
        prompts_per_step=GROUPS,
        num_generations=GROUP,
        rewards=tuple(reward for reward in run.rewards if reward.name == "log_p"),
        held_out=None,
        steps=case.steps,
        seed=seed,
        threads=1,
    )
    trainer = Trainer(run)
    trainer.begin()
    curve, start = [], 0.0
    for step in range(case.steps):
        if step == WARMUP:
            start = clock()
        curve.append(trainer.advance()[0]["reward/mean"])
    seconds = clock() - start
    trainer.close()
    return {"curve": curve, "seconds": seconds}


class Plain:
    """The loop of the authors' scripts, in our words."""

    def __init__(self, case: Case, seed: int) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(seed)
        library = parts.library()
        run = recipes.function(case.recipe)()
        directory = Path(run.policy.path)
        self.case, self.rule = case, run.optimization
        self.network = library.DiTTransformer2DModel.from_pretrained(directory / "transformer").eval().to(WHERE)
        self.reference = copy.deepcopy(self.network).requires_grad_(False) if case.kl else None
        kind = library.FlowMatchEulerDiscreteScheduler if case.recipe == "flow_grpo" else library.DDIMScheduler
        self.scheduler = kind.from_pretrained(directory / "scheduler")
        self.scheduler.set_timesteps(case.denoising)
        own = self.rule.of_policy()
        self.optimizer = own.over(self.network)
        self.norm = own.max_grad_norm
        self.labels = torch.full((GROUPS * GROUP,), ANY, device=WHERE)

    def mean(self, network: Any, x: Tensor, place: int) -> tuple[Tensor, float]:
        """Mean and standard deviation of the state after this one, by this network."""
        time_N = self.scheduler.timesteps[place].to(WHERE).expand(len(x))
        said = network(x, timestep=time_N, class_labels=self.labels[: len(x)]).sample
        if self.case.recipe == "flow_grpo":
            t, s = (float(self.scheduler.sigmas[i]) for i in (place, place + 1))
            if place >= self.case.drawn:
                return x - (t - s) * said, 0.0
            rate = 0.7**2 * t / (1 - (s if t == 1 else t))
            return x - (t - s) * (said + rate / (2 * t) * (x + (1 - t) * said)), math.sqrt(rate * (t - s))
        at = int(self.scheduler.timesteps[place])
        before = at - self.scheduler.config.num_train_timesteps // self.case.denoising
        kept = float(self.scheduler.alphas_cumprod[at])
        after = float(self.scheduler.alphas_cumprod[before] if before >= 0 else self.scheduler.final_alpha_cumprod)
        eps = kept**0.5 * said + (1 - kept) ** 0.5 * x
        clean = kept**0.5 * x - (1 - kept) ** 0.5 * said
        std = math.sqrt((1 - after) / (1 - kept) * (1 - kept / after)) if place < self.case.drawn else 0.0
        return after**0.5 * clean + (1 - after - std**2) ** 0.5 * eps, std

    @staticmethod
    def density(x: Tensor, mean: Tensor, std: float) -> Tensor:
        """log N(x; mean, std^2), the mean over the dimensions."""
        apart = (x - mean) ** 2 / (2 * std**2) + math.log(std) + 0.5 * math.log(2 * math.pi)
        return -apart.flatten(1).mean(-1)

    @torch.no_grad()
    def sample(self) -> tuple[list[Tensor], list[Tensor]]:
        x, states, logprobs = torch.randn(GROUPS * GROUP, 1, 8, 8, device=WHERE), [], []
        for place in range(self.case.denoising):
            states.append(x)
            mean, std = self.mean(self.network, x, place)
            x = mean + std * torch.randn_like(x) if std else mean
            if std:
                logprobs.append(self.density(x, mean, std))
        return [*states, x], logprobs

    def advantages(self, reward_N: Tensor) -> Tensor:
        groups = reward_N.reshape(GROUPS, GROUP)
        apart = groups - groups.mean(1, keepdim=True)
        if self.case.by_group:
            return (apart / (groups.std(1, keepdim=True) + 1e-6)).flatten()
        return (apart / (reward_N.std() + 1e-6)).clamp(-5, 5).flatten()

    def loss(self, place: int, x: Tensor, after: Tensor, old_N: Tensor, advantage_N: Tensor) -> Tensor:
        """Of one step of the paths of a minibatch."""
        width = 0.2 / 64  # of means over the dimensions
        mean, std = self.mean(self.network, x, place)
        ratio = (self.density(after, mean, std) - old_N).exp()
        loss = -torch.minimum(ratio * advantage_N, ratio.clamp(1 - width, 1 + width) * advantage_N).mean()
        if self.reference is not None:
            with torch.no_grad():
                held, _ = self.mean(self.reference, x, place)
            loss = loss + self.case.kl * ((mean - held) ** 2).flatten(1).mean(-1).mean() / (2 * std**2)
        return loss

    def step(self) -> float:
        states, logprobs = self.sample()
        weight, bias = (part.to(WHERE) for part in digits._linear())
        log_p = (states[-1].flatten(1) @ weight.T + bias).log_softmax(-1)
        reward_N = log_p[:, WANTED]
        advantage_N = self.advantages(reward_N)
        order = torch.randperm(GROUPS).repeat_interleave(GROUP) * GROUP + torch.arange(GROUP).repeat(GROUPS)
        for rows in order.chunk(self.rule.minibatches):
            for place in range(self.case.drawn):
                loss = self.loss(
                    place, states[place][rows], states[place + 1][rows], logprobs[place][rows], advantage_N[rows]
                )
                (loss / self.case.drawn).backward()
            torch.nn.utils.clip_grad_norm_(self.network.parameters(), self.norm)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
        return float(reward_N.mean())


def theirs(case: Case, seed: int) -> dict[str, Any]:
    loop, curve, start = Plain(case, seed), [], 0.0
    for step in range(case.steps):
        if step == WARMUP:
            start = clock()
        curve.append(loop.step())
    return {"curve": curve, "seconds": clock() - start}


SIDES: Sequence[tuple[str, Callable[[Case, int], dict[str, Any]]]] = (("gimbal", ours), ("plain", theirs))


def p_value(one: Sequence[float], other: Sequence[float]) -> float:
    """Of the difference of means, by all ways to deal the runs out."""
    every = [*one, *other]
    ways = [sum(chosen) for chosen in itertools.combinations(every, len(one))]
    middle = sum(every) * len(one) / len(every)
    return sum(abs(way - middle) >= abs(sum(one) - middle) - 1e-12 for way in ways) / len(ways)


def quarters(curve: Sequence[float]) -> list[float]:
    """The mean of each quarter of the steps."""
    size = len(curve) // 4
    return [statistics.fmean(curve[place * size : (place + 1) * size]) for place in range(4)]


def measured(case: Case, seeds: int) -> dict[str, Any]:
    runs: list[dict[str, Any]] = []
    samples = GROUPS * GROUP * (case.steps - WARMUP)
    for seed in range(seeds):
        for who, take in SIDES:
            found = take(case, seed)
            each = quarters(found["curve"])
            runs.append(
                {
                    "arm": who,
                    "seed": seed,
                    RATE: round(samples / found["seconds"], 1),
                    "wanted_last": round(math.exp(each[-1]), 3),
                    **{f"reward_{place}": round(reward, 3) for place, reward in enumerate(each, 1)},
                }
            )
            print(runs[-1], [round(x, 2) for x in found["curve"]], flush=True)
    own, other = ([math.log(run["wanted_last"]) for run in runs if run["arm"] == who] for who, _ in SIDES)
    setting: dict[str, Any] = {
        "recipe": case.recipe,
        "steps": case.steps,
        "samples_a_step": GROUPS * GROUP,
        "batch": BATCH,
    }
    if WHERE.type == "cuda":
        setting["device"] = torch.cuda.get_device_name()
    return setting | {"p": round(p_value(own, other), 3), "runs": runs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", nargs="?", default="flow_grpo", choices=CASES)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.set_flush_denormal(True)
    found = measured(CASES[given.case], given.seeds)
    print(json.dumps(found, indent=1))
    if given.out:
        given.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
