"""The live parts of a run, and one learner step.

The learner is in this process; the runtime decides where generation and rewards run. With ``Local`` everything is here and
deterministic: runs in many processes are compared with it.

batch of groups -> learner.prepare -> learner.step -> publish, deliver, prove -> controllers
"""

from __future__ import annotations

import time
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from gimbal.config.own import started
from gimbal.dataflow.packing import pack
from gimbal.dataflow.replay.base import AbstractStore
from gimbal.dataflow.replay.peers import rescored
from gimbal.engines.base import FORK, Unserved
from gimbal.learning import joining
from gimbal.learning.base import AbstractLearner
from gimbal.learning.updates.base import Metrics
from gimbal.learning.updates.policy_gradient import AbstractPolicyGradient
from gimbal.learning.weight_sync.base import AbstractWeightSync
from gimbal.learning.weight_sync.delivery import Delivery
from gimbal.learning.weight_sync.proof import DeliveryProof
from gimbal.nested import get_at
from gimbal.records import Group, Rollout, TrainBatch
from gimbal.report.causes import repeat_metrics, sample_metrics, surprise_metrics
from gimbal.report.gradient import gradient_metrics
from gimbal.report.metrics import (
    lag_metrics,
    replay_metrics,
    role_metrics,
    rollout_metrics,
    staleness_metrics,
    tree_metrics,
)
from gimbal.rewards.scoring import of_all
from gimbal.runtime import checkpoint, compose, device, policies, sources
from gimbal.runtime.base import Wanted
from gimbal.runtime.devices import placed
from gimbal.runtime.evaluate import EvalResult, HeldOutLoss, by_loss, canary, evaluate_held_out, held_out_loss
from gimbal.runtime.faults import Faults
from gimbal.runtime.pipeline import Parts, Pipeline
from gimbal.runtime.run import AbstractRun, Run


class Trainer:
    """The live parts of a run. The constructor only wires them; ``begin`` starts them, ``advance`` takes one learner step."""

    def __init__(
        self,
        run: AbstractRun,
        resume: Path | None = None,
        note: Callable[[str], None] = lambda sentence: None,
        home: Path | None = None,
    ) -> None:
        run = placed(run)
        self.run, self.note = run, note
        self.device = device.prepare(run.threads)
        ranks = joining.join()
        self._saved = checkpoint.of_run(resume) if resume else None
        self.restored: Mapping[str, Any] = self._saved["totals"] if self._saved else {}
        self.store = started(run.store, AbstractStore, run.seed)
        self.store.claim(self._saved["store"] if self._saved else None, home)
        self.rewards = compose.opened(run)
        policy = (run.policy.at(resume / "model") if resume else run.policy).load(run.seed).to(self.device)
        self.policy = policies.own(policy)  # engines copy it; the one that is trained is the learner's
        learner = partial(policies.learner, run, self.device, resume=resume)
        self.learner: AbstractLearner = joining.lead(ranks, policy, learner)
        self.host = run.runtime.open(
            Wanted(
                engine=run.sampler,
                policy=policy,
                rewards=run.rewards,
                opened=self.rewards,
                in_order=run.max_staleness == 0,
                threads=run.threads,
                note=note,
            )
        )
        self.faults = run.faults or Faults()  # without a fault each of its wrappers is the part itself
        self.engine = self.faults.around_engine(self.host.engine, run.seed)
        try:
            self._wire()
        except BaseException:
            self.close()  # other processes may have started, and only we know of them
            raise

    def _wire(self) -> None:
        """Build the rollout half around the engine: nothing is sampled and no weights move."""
        run = self.run
        self.sources = sources.digests(run)
        # Before a curriculum meets tasks that cannot be read.
        edited = sources.edited(self._saved, self.sources)
        self.edited = bool(edited)  # since the checkpoint
        for doubt in (*edited, *compose.accepted(run, self.rewards, self.policy)):
            self.note(doubt)
        curriculum, budget = compose.live(run)
        self.pipeline = Pipeline(
            Parts(
                engine=self.engine,
                scorer=self.faults.around_scorer(self.host.scorer, run.seed),
                curriculum=curriculum,
                budget=budget,
                rewards=self.rewards,
                filters=run.filters,
                sampling=run.sampling,
                arrived=self.learner.arrived,
                fix=self.store.fix,
                note=self.note,
                least=run.learns.fewest(),
            ),
            run.staleness.start(run.max_staleness, run.prompts_per_step),
            ahead=run.ahead,
            seed=run.seed,
            max_empty_batches=run.max_empty_batches,
            surplus=run.surplus,
        )
        pairs = {"": (self.learner, self.engine)}
        pairs |= {name: (one, self.engine.separate[name]) for name, one in self.learner.separate.items()}
        self.deliveries = {
            name: Delivery(name, *pair, self.faults.around_sync(run.sync.start(), run.seed))
            for name, pair in pairs.items()
        }
        self.unserved: Unserved | None = None

    @property
    def sync(self) -> AbstractWeightSync:
        """The weight sync of the policy."""
        return self.deliveries[""].sync

    @property
    def proof(self) -> DeliveryProof:
        """The delivery proof of the policy."""
        return self.deliveries[""].proof

    def begin(self) -> None:
        """Restore the saved state, or start at version 0, and prove that the sampler holds these weights. ``advance`` and ``save`` call
        it; a second call does nothing."""
        if self.deliveries[""].begun:
            return
        if (saved := self._saved) is None:
            self._deliver()
            for name, one in self.deliveries.items():
                one.begin(partial(canary, policies.alone(self.run, name), tasks=self.run.tasks))
            self._proved()
            return
        self.learner.load_state(saved["learner"])
        states = {"": saved, **saved.get("separate", {})}
        for name, one in self.deliveries.items():
            one.sync.load_state_dict(states[name]["sync"])
        self._deliver()  # first, because unfinished rollouts need an engine with weights
        self.pipeline.load_state_dict(saved["pipeline"])
        self.store.load_state_dict(saved["store"])
        for group in self.pipeline.ready.values():
            self.learner.arrived(group)
        for name, one in self.deliveries.items():
            one.resume(states[name]["proof"])
        self._saved = None  # it takes as much memory as the run itself
        self._check_each(lambda one: one.proof.resumed(one.engine, self.learner.version))

    def advance(self) -> tuple[Metrics, list[Group], TrainBatch]:
        """One learner step: (its metrics, the groups it received, the same as rows that it trained on or kept for later)."""
        self.begin()
        if self.unserved is not None:
            raise self.unserved
        version, start = self.learner.version, time.perf_counter()
        # A policy gradient's controllers reach the whole run.
        present = self.learner.update if isinstance(self.run, Run) else self.run
        self.pipeline.oversampling = get_at(present, "oversampling")
        before = self._computed
        groups, seen = self.pipeline.next_batch(version)
        computed = None if before is None else (self._computed or 0) - before
        self._check_each(lambda one: one.proof.receipts.heard(one.engine))  # a wrong sampler's data is not trained on
        self._rest()
        came = sum(len(group.episodes) for group in groups)
        # Injected losses and duplicates come after the pipeline's own counts, which must not see them.
        groups = self.faults.carried(groups, self.run.seed)
        carried = sample_metrics(groups, came)
        groups = self.store.join(groups, version, partial(rescored, self.run, self.policy, self.rewards, version))
        for group in groups:
            self.pipeline.selection.replayed(group)
        generated, fresh, same = time.perf_counter(), pack(groups), self.run.store.same_rows
        batch = self.pipeline.staleness.trained(self.learner.prepare(self.store.take(fresh)), version)
        # The last moment at which the weights that sampled these groups still exist.
        self.learner.before_update(self.pipeline.held)
        metrics = self.learner.step(batch)
        self.store.learned(batch, self.learner.errors)
        trained = time.perf_counter()
        metrics |= self._served() | self._observed(groups, seen, batch, version) | carried
        if FORK in self.run.workflow.requires and batch.decisions is not None:
            extent = self.policy.extent(batch.decisions)
            metrics |= tree_metrics(computed, seen, extent, groups if same else ())
        if held := self.store.metrics():
            metrics |= held | (replay_metrics(groups, version) if same else lag_metrics(fresh, version))
        # Last, so that controllers see all metrics of the step, and no coefficient moves within one.
        metrics |= self.learner.control(metrics)
        end = time.perf_counter()
        decisions = sum(episode.drawn for group in seen for episode in group.episodes)
        metrics |= {
            f"perf/{self.run.policy.family.unit}_per_s": decisions / (end - start),
            "time/generate": generated - start,
            "time/train": trained - generated,
            "time/sync": end - trained,
            "time/step": end - start,
        }
        return metrics, groups, batch if same else fresh

    def _observed(self, groups: Sequence[Group], seen: Sequence[Group], batch: TrainBatch, version: int) -> Metrics:
        """A step's metrics besides the learner's own. ``seen``: all groups scored for it, including dropped ones."""
        family, judged = self.run.policy.family, self.run.judged
        answers = family.judged or bool(self.run.rewards)
        metrics = rollout_metrics(seen or groups, judged=judged, answers=answers, sources=self.run.tasks.sources)
        if not any(reward.by_place for reward in self.run.rewards):  # else equal texts may score differently
            metrics |= repeat_metrics(seen)
        metrics |= surprise_metrics(family, seen or groups) | of_all(self.rewards, seen or groups, "reward/")
        update, same = self.learner.update, groups if self.run.store.same_rows else ()
        if isinstance(update, AbstractPolicyGradient):
            metrics |= gradient_metrics(update, same, batch, version, densities=family.densities)
        metrics |= staleness_metrics(batch.column("version_NS", self), batch.mask_NS, version)
        metrics |= {f"drops/{reason}": float(count) for reason, count in self.pipeline.drops.items()}
        metrics |= self.pipeline.selection.metrics(judged=judged) | role_metrics(batch)
        for one in self.deliveries.values():
            metrics |= one.metrics()
        metrics |= {**self.host.metrics(), **self.pipeline.metrics(), "kept_frac": self.pipeline.kept_frac}
        return metrics | {family.unit: float(self.pipeline.generated["decisions"])}

    def evaluate(self) -> EvalResult | HeldOutLoss:
        """The held-out evaluation of the current weights, with a dedicated engine, or by the loss on written answers."""
        if by_loss(self.run):
            return held_out_loss(self.run, self.policy, self.learner, self.rewards)
        version = self.learner.version
        return evaluate_held_out(self.run, self.policy, weights=self.learner, version=version, rewards=self.rewards)

    def pieces(self, rollout: Rollout) -> list[str]:
        """Each decision as readable text."""
        return policies.acting(self.learner, self.run, rollout.role, self.policy).pieces(rollout.decisions)

    def save(self, directory: Path, totals: Mapping[str, Any]) -> Path:
        self.begin()
        checkpoint.savable(*self.pipeline.observers)
        states = {name: one.state_dict() for name, one in self.deliveries.items()}
        state = {
            "learner": self.learner.save_state(),
            "pipeline": self.pipeline.state_dict(),
            "store": self.store.state_dict(),
            **states.pop(""),
            **({"separate": states} if states else {}),
            "sources": self.sources,
            "totals": dict(totals),
        }
        keep, every = self.run.keep_checkpoints, self.run.keep_every
        return checkpoint.save(directory, self.learner.version, self.learner, state, keep=keep, every=every)

    def close(self) -> None:
        self.learner.close()
        self.host.close()
        for reward in self.rewards:
            reward.close()

    @property
    def _computed(self) -> int | None:
        """Tokens computed by the engines of all models; None if one does not count them."""
        counts = [one.engine.computed for one in self.deliveries.values()]
        return None if None in counts else sum(count or 0 for count in counts)

    def _deliver(self) -> None:
        for one in self.deliveries.values():
            one.deliver(self.learner.version)

    @property
    def turns(self) -> bool:
        """Whether the learner uses the sampler's memory while it trains."""
        return self.run.devices is not None and self.run.devices.turns

    def _check_unchanged(self) -> Metrics:
        return self._check_each(lambda one: one.proof.receipts.still(one.engine))

    def _rest(self) -> None:
        """Compare the sampler's weights before they are offloaded."""
        if self.turns:
            self._check_unchanged()
            self.engine.rest()

    def _served(self) -> Metrics:
        """Deliver the new version and prove it. If that fails, the next step reports it: this one is complete and can be saved."""
        try:
            lasting = {} if self.turns else self._check_unchanged()
            self._deliver()
            return {**self._proved(), **{name: value for name, value in lasting.items() if value}}
        except Unserved as error:
            self.unserved = error
            return {}

    def _proved(self) -> Metrics:
        return self._check_each(lambda one: one.prove(self.learner.version))

    def _check_each(self, check: Callable[[Delivery], Metrics | None]) -> Metrics:
        """Run a check on the delivery of every model."""
        return self.faults.proof(lambda: ChainMap(*(check(one) or {} for one in self.deliveries.values())))


def follow(run: AbstractRun) -> None:
    """The work of a rank above 0: a share of the learner's work, directed by rank 0, until the run ends."""
    where = device.prepare(run.threads)
    joining.follow(joining.join(), run.policy.load(run.seed).to(where), partial(policies.learner, run, where))
