"""Flow-GRPO and DDPO beside a plain loop over diffusers, written as their authors train: the same network, scheduler, reward, batch,
steps and rates, one thread each. Both sides take turns, a seed each; CPU seconds of training, without start and evaluation.

The loop samples a batch with its log-probabilities, scores it, takes advantages, and then goes over minibatches and, in each, over the
drawn steps one at a time: network, (of Flow-GRPO) the reference's network without gradient, loss, backward; one move of AdamW a
minibatch. Its old log-probabilities are those of sampling. So are gimbal's here: a float32 sampler, no staleness, and the anchor
Behavior; nothing else of the recipes is changed but the size of a step. Both call the network on 64 samples at a time.

``reward`` is the mean over the last quarter of the steps; the two sides are told apart by an exact permutation test over the seeds.

    python benchmarks/denoising.py flow_grpo ddpo --seeds 3 --out benchmarks/denoising.json
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
            start = time.process_time()
        curve.append(trainer.advance()[0]["reward/mean"])
    seconds = time.process_time() - start
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
        self.network = library.DiTTransformer2DModel.from_pretrained(directory / "transformer").eval()
        self.reference = copy.deepcopy(self.network).requires_grad_(False) if case.kl else None
        kind = library.FlowMatchEulerDiscreteScheduler if case.recipe == "flow_grpo" else library.DDIMScheduler
        self.scheduler = kind.from_pretrained(directory / "scheduler")
        self.scheduler.set_timesteps(case.denoising)
        own = self.rule.of_policy()
        self.optimizer = own.over(self.network)
        self.norm = own.max_grad_norm
        self.labels = torch.full((GROUPS * GROUP,), ANY)

    def mean(self, network: Any, x: Tensor, place: int) -> tuple[Tensor, float]:
        """Mean and standard deviation of the state after this one, by this network."""
        time_N = self.scheduler.timesteps[place].expand(len(x))
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
        x, states, logprobs = torch.randn(GROUPS * GROUP, 1, 8, 8), [], []
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

    def step(self) -> float:
        states, logprobs = self.sample()
        weight, bias = digits._linear()
        log_p = (states[-1].flatten(1) @ weight.T + bias).log_softmax(-1)
        reward_N = log_p[:, WANTED]
        advantage_N = self.advantages(reward_N)
        width = 0.2 / 64  # of means over the dimensions
        order = torch.randperm(GROUPS).repeat_interleave(GROUP) * GROUP + torch.arange(GROUP).repeat(GROUPS)
        for rows in order.chunk(self.rule.minibatches):
            for place in range(self.case.drawn):
                x, after, a = states[place][rows], states[place + 1][rows], advantage_N[rows]
                mean, std = self.mean(self.network, x, place)
                ratio = (self.density(after, mean, std) - logprobs[place][rows]).exp()
                loss = -torch.minimum(ratio * a, ratio.clamp(1 - width, 1 + width) * a).mean()
                if self.reference is not None:
                    with torch.no_grad():
                        held, _ = self.mean(self.reference, x, place)
                    loss = loss + self.case.kl * ((mean - held) ** 2).flatten(1).mean(-1).mean() / (2 * std**2)
                (loss / self.case.drawn).backward()
            torch.nn.utils.clip_grad_norm_(self.network.parameters(), self.norm)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
        return float(reward_N.mean())


def theirs(case: Case, seed: int) -> dict[str, Any]:
    loop, curve, start = Plain(case, seed), [], 0.0
    for step in range(case.steps):
        if step == WARMUP:
            start = time.process_time()
        curve.append(loop.step())
    return {"curve": curve, "seconds": time.process_time() - start}


SIDES: Sequence[tuple[str, Callable[[Case, int], dict[str, Any]]]] = (("gimbal", ours), ("plain", theirs))


def p_value(one: Sequence[float], other: Sequence[float]) -> float:
    """Of the difference of means, by all ways to deal the runs out."""
    every = [*one, *other]
    ways = [sum(chosen) for chosen in itertools.combinations(every, len(one))]
    middle = sum(every) * len(one) / len(every)
    return sum(abs(way - middle) >= abs(sum(one) - middle) - 1e-12 for way in ways) / len(ways)


def measured(name: str, seeds: int) -> dict[str, Any]:
    case, kept = CASES[name], dict[str, list[dict[str, Any]]]()
    for seed in range(seeds):
        for who, take in SIDES:
            kept.setdefault(who, []).append(found := take(case, seed))
            print(name, who, seed, round(found["seconds"], 2), [round(x, 2) for x in found["curve"]], flush=True)
    samples = GROUPS * GROUP * (case.steps - WARMUP)
    last = {who: [statistics.fmean(run["curve"][-case.steps // 4 :]) for run in runs] for who, runs in kept.items()}
    speed = {who: [samples / run["seconds"] for run in runs] for who, runs in kept.items()}
    row: dict[str, Any] = {"case": name, "steps": case.steps, "samples_per_step": GROUPS * GROUP}
    for who in kept:
        row[f"{who}_reward"] = [round(x, 3) for x in last[who]]
        row[f"{who}_samples_per_cpu_s"] = [round(x, 1) for x in speed[who]]
    pairs = zip(speed["gimbal"], speed["plain"], strict=True)
    return row | {
        "reward_p": round(p_value(last["gimbal"], last["plain"]), 3),
        "times_plain": round(statistics.median(one / other for one, other in pairs), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=["flow_grpo"], choices=CASES, metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.set_flush_denormal(True)
    before = json.loads(given.out.read_text()) if given.out and given.out.is_file() else []
    for name in given.cases:
        before = [row for row in before if row["case"] != name] + [measured(name, given.seeds)]
        print(json.dumps(before[-1], indent=1))
        if given.out:
            given.out.write_text(json.dumps(before, indent=1) + "\n")


if __name__ == "__main__":
    main()
