"""The whole loop in one process, deterministic: what runs in many processes is held against this.

batch of groups -> learner.prepare -> learner.step -> publish, deliver, prove -> controllers -> record -> checkpoint
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gimbal.dataflow.budgets.fixed import Fixed
from gimbal.dataflow.curricula.shuffled import Shuffled
from gimbal.dataflow.packing import pack
from gimbal.dataflow.staleness import Pace
from gimbal.engines.base import Request
from gimbal.learning.learner import Learner, Metrics, column_needs
from gimbal.learning.weight_sync.memory import Memory
from gimbal.learning.weight_sync.proof import DeliveryProof
from gimbal.records import Group, Rollout, TrainBatch
from gimbal.runtime import checkpoint, device
from gimbal.runtime.evaluate import Exam, examine
from gimbal.runtime.pipeline import Parts, Pipeline
from gimbal.runtime.run import Run

CANARIES = 2  # rollouts that every delivery is proved on


class Trainer:
    """The live parts of a run, wired. ``advance`` takes one learner step."""

    def __init__(self, run: Run, resume: Path | None = None) -> None:
        self.run = run
        self.device = device.prepare(run.threads)
        saved = checkpoint.load(resume) if resume else None
        self.rewards = [reward.open() for reward in run.rewards]
        policy = (run.policy.at(resume / "model") if resume else run.policy).load(run.seed).to(self.device)
        self.learner = Learner(
            policy,
            run,
            sampling=run.sampling,
            critic=run.critic.load(run.seed).to(self.device) if run.critic else None,
            reference=run.policy.load(run.seed).to(self.device) if "reference_NS" in column_needs(run) else None,
            total_steps=run.steps,
            seed=run.seed,
        )
        self.engine = run.engine.start(policy)
        self.pipeline = Pipeline(
            Parts(
                engine=self.engine,
                curriculum=Shuffled(run.tasks, run.seed),
                budget=Fixed(rollouts=run.num_generations, max_length=run.sampling.max_length),
                rewards=self.rewards,
                filters=run.filters,
                sampling=run.sampling,
            ),
            Pace(max_staleness=run.max_staleness, groups_per_step=run.prompts_per_step),
            ahead=run.ahead,
            seed=run.seed,
            max_empty_batches=run.max_empty_batches,
        )
        self.sync = Memory()
        if saved:
            self.learner.load_state(saved["learner"])
            self._deliver()
            self.pipeline.load_state_dict(saved["pipeline"])
            self.proof = DeliveryProof(policy, saved["proof"]["canary"])
            self.proof.load_state_dict(saved["proof"])
        else:
            self._deliver()
            self.proof = DeliveryProof(policy, self._canary())
            self.proof(self.engine, self.learner.version)

    def advance(self) -> tuple[Metrics, list[Group], TrainBatch]:
        """One learner step: (its metrics, the groups finished since the last, the batch it trained on)."""
        start = time.perf_counter()
        groups, seen = self.pipeline.next_batch(self.learner.version)
        generated = time.perf_counter()
        batch = self.learner.prepare(pack(groups))
        version = self.learner.version
        metrics = self.learner.step(batch)
        trained = time.perf_counter()
        self._deliver()
        metrics |= self.proof(self.engine, self.learner.version)
        metrics |= quick(groups, seen, batch, version)
        metrics |= self.learner.control(metrics)
        metrics |= {f"drops/{reason}": float(count) for reason, count in self.pipeline.drops.items()}
        end = time.perf_counter()
        metrics |= {
            "time/generate": generated - start,
            "time/train": trained - generated,
            "time/sync": end - trained,
            "time/step": end - start,
        }
        return metrics, seen, batch

    def examine(self) -> Exam:
        """The held-out exam of the present weights, by an engine of the run's kind that does nothing else."""
        assert self.run.held_out is not None
        engine = self.run.engine.start(self.learner.policy)
        engine.load(self.learner.version, self.learner.policy.state_dict())
        held_out = self.run.held_out
        return examine(
            engine, held_out.tasks, self.rewards, self.run.sampling, samples=held_out.samples, seed=self.run.seed
        )

    def save(self, directory: Path, extra: Mapping[str, Any]) -> Path:
        state = {
            "learner": self.learner.save_state(),
            "pipeline": self.pipeline.state_dict(),
            "proof": self.proof.state_dict(),
            "extra": dict(extra),
        }
        return checkpoint.save(
            directory, self.learner.version, self.learner.policy, state, keep=self.run.keep_checkpoints
        )

    def close(self) -> None:
        for reward in self.rewards:
            reward.close()

    def _deliver(self) -> None:
        self.sync.publish(self.learner.version, self.learner.policy.state_dict())
        self.sync.deliver(self.engine)

    def _canary(self) -> list[Rollout]:
        """A few rollouts of the first tasks, drawn before anything else is asked of the engine."""
        for sample in range(CANARIES):
            task = self.run.tasks[sample % len(self.run.tasks)]
            self.engine.submit(
                Request(group=-1 - sample, task=task, sample=sample, sampling=self.run.sampling, seed=self.run.seed)
            )
        drawn: list[Rollout] = []
        while self.engine.in_flight:
            drawn += [finished.rollout for finished in self.engine.step()]
        return drawn


def quick(groups: list[Group], seen: list[Group], batch: TrainBatch, version: int) -> Metrics:
    return {}
