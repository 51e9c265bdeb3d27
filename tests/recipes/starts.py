"""What a recipe's run has to begin with for its mechanism to act in a few steps: a trained policy, a peer's rollouts, other tasks."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path

import torch

from gimbal import recipes
from gimbal.dataflow.replay.swarm import Swarm
from gimbal.environments.split import Split
from gimbal.policies.base import AbstractPolicy
from gimbal.policies.best_of import BestOf
from gimbal.policies.squashed import SquashedGaussian
from gimbal.policies.token import CausalLM
from gimbal.runtime.local import Trainer
from gimbal.runtime.run import Run


@cache
def tuned() -> str:
    """gimbal-tiny with every weight moved a little: what rejuvenation takes for tuned."""
    policy = CausalLM().load()
    with torch.no_grad():
        for weight in policy.parameters():
            weight += 0.02 * weight.norm() / weight.numel() ** 0.5 * torch.ones_like(weight)
    return _saved(policy)


@cache
def judge() -> str:
    """gimbal-tiny after the first steps of proofreading_start, at a higher rate: it writes a judge's form."""
    run = recipes.function("proofreading_start")()
    run = replace(run, prompts_per_step=16, optimization=replace(run.optimization, learning_rate=3e-3), threads=1)
    trainer = Trainer(run)
    for _ in range(16):
        trainer.advance()
    trainer.close()
    return _saved(trainer.learner.policy)


@cache
def hopping() -> str:
    """A model after the first steps of atomic_start: some of what it says of composed relations is right."""
    run = recipes.function("atomic_start")()
    trainer = Trainer(replace(run, threads=1))
    for _ in range(120):
        trainer.advance()
    trainer.close()
    return _saved(trainer.learner.policy)


@cache
def delegating() -> str:
    """A model after the first steps of coda_start: it delegates, and some of what it reads is right."""
    trainer = Trainer(replace(recipes.function("coda_start")(), threads=1))
    for _ in range(120):
        trainer.advance()
    trainer.close()
    return _saved(trainer.learner.policy)


def _saved(policy: AbstractPolicy) -> str:
    where = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, where)
    policy.save(Path(where))
    return where


@cache
def acting() -> str:
    """A policy for Pendulum that has learned nothing, to be corrected."""
    return _saved(SquashedGaussian(observations=3, actions=1, bound=2.0).load(3))


@cache
def flowing() -> str:
    """A flow of actions for Pendulum that has learned nothing."""
    return _saved(BestOf(observations=3, actions=1, bound=2.0).load(3))


def on_a_flow(run: Run) -> Run:
    return replace(run, policy=replace(run.policy, flow=flowing()))


@cache
def teaching() -> dict[str, float]:
    """Teachers of two masses of a pendulum, who have learned nothing."""
    spec = SquashedGaussian(observations=3, actions=1, bound=2.0)
    return {_saved(spec.load(number)): mass for number, mass in enumerate((0.5, 2.0))}


def by_teachers(run: Run) -> Run:
    return replace(run, reference=replace(run.reference, teachers=teaching()))


def on_a_base(run: Run) -> Run:
    return replace(run, policy=replace(run.policy, base=acting()))


def from_tuned(run: Run) -> Run:
    return replace(run, policy=replace(run.policy, model=tuned()))


def from_judge(run: Run) -> Run:
    return replace(run, policy=replace(run.policy, model=judge()))


def from_atoms(run: Run) -> Run:
    return replace(run, policy=replace(run.policy, model=hopping()))


def from_lookups(run: Run) -> Run:
    return replace(run, policy=replace(run.policy, model=delegating()))


def repeated(run: Run) -> Run:
    """On few tasks that sometimes go well, in small groups: one that fails is of a task that went well before."""
    return replace(run, tasks=Split(tasks=run.tasks, side="held_out", held_out=16.0, seed=1), num_generations=2)


@cache
def shared() -> str:
    """A directory of which one run of a swarm has written a round."""
    where = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, where)
    run = recipes.function("sapo")()
    run = replace(run, prompts_per_step=2, seed=5, threads=1, store=replace(run.store, directory=where, name="b"))
    trainer = Trainer(run)
    trainer.advance()
    trainer.close()
    return where


def swarm(run: Run) -> Run:
    return replace(run, store=replace(run.store, directory=shared(), peers=("b",), patience=0.0))


def apart(run: Run) -> Run:
    """With the same rounds of peers in a directory of its own: no two runs write to one."""
    if not isinstance(run.store, Swarm) or not run.store.directory:
        return run
    where = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, where)
    shutil.copytree(run.store.directory, where, dirs_exist_ok=True)
    return replace(run, store=replace(run.store, directory=where))


def unsolved(run: Run) -> Run:
    """On sums of six terms, which all answers get wrong."""
    return replace(run, tasks=replace(run.tasks, parameters={**run.tasks.parameters, "min_terms": 6, "max_terms": 6}))
