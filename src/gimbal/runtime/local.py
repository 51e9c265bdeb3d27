"""The whole loop. The learner is in this process; the runtime decides where generation and rewards run.

With ``Local`` everything is here and deterministic: runs in many processes are compared with it.

batch of groups -> learner.prepare -> learner.step -> publish, deliver, prove -> controllers -> record -> checkpoint
"""

from __future__ import annotations

import json
import math
import time
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

from gimbal import durable
from gimbal.config.own import started
from gimbal.dataflow.packing import pack
from gimbal.dataflow.replay.base import AbstractStore
from gimbal.dataflow.replay.peers import rescored
from gimbal.engines.base import FORK, Unserved
from gimbal.engines.episodes import Episodes
from gimbal.environments.tables import Rewritten
from gimbal.learning import joining
from gimbal.learning.base import AbstractLearner
from gimbal.learning.updates.base import Metrics
from gimbal.learning.updates.policy_gradient import AbstractPolicyGradient
from gimbal.learning.weight_sync.delivery import Delivery
from gimbal.nested import get_at
from gimbal.records import Group, Rollout, TrainBatch
from gimbal.report.causes import repeat_metrics, sample_metrics, surprise_metrics
from gimbal.report.console import Console
from gimbal.report.doctor import diagnosis_of
from gimbal.report.files import BEST, LAST, METRICS, ROLLOUTS, SCHEDULE, STOPPED, SUMMARY, JsonLines, Summary, stopped
from gimbal.report.gradient import gradient_metrics
from gimbal.report.metrics import lags, replay_metrics, role_metrics, rollout_metrics, staleness_metrics, tree_metrics
from gimbal.report.page import write_report
from gimbal.report.record import Record
from gimbal.report.reference import watch
from gimbal.report.rollouts import RolloutFile
from gimbal.report.trackers import Trackers
from gimbal.rewards.isolation import RewardError
from gimbal.rewards.scoring import of_all, weighed
from gimbal.runtime import best, checkpoint, compose, device, policies, sources
from gimbal.runtime.base import Wanted
from gimbal.runtime.devices import placed
from gimbal.runtime.evaluate import EvalResult, HeldOutLoss, by_loss, canary, evaluate_held_out, held_out_loss
from gimbal.runtime.faults import Faults
from gimbal.runtime.interrupts import interruptible
from gimbal.runtime.pipeline import Parts, Pipeline, Starved
from gimbal.runtime.run import AbstractRun, Run
from gimbal.runtime.schedule import digest
from gimbal.waiting import waiting
from gimbal.workflows.demonstrated import Demonstrated


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
        self.policy = policies.unmapped(policy)  # engines copy it; the one that is trained is the learner's
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
        # Generate. A policy gradient's controllers reach the whole run, so they may move ``oversampling``.
        present = self.learner.update if isinstance(self.run, Run) else self.run
        self.pipeline.oversampling = get_at(present, "oversampling")
        before = self._computed
        groups, seen = self.pipeline.next_batch(version)
        computed = None if before is None else (self._computed or 0) - before
        self._check_each(lambda one: one.proof.receipts.heard(one.engine))  # a wrong sampler's data is not trained on
        self._rest()
        # Injected losses and duplicates come after the pipeline's own counts, which must not see them.
        count = sum(len(group.episodes) for group in groups)
        groups = self.faults.carried(groups, self.run.seed)
        carried = sample_metrics(groups, count)
        groups = self.store.join(groups, version, partial(rescored, self.run, self.policy, self.rewards, version))
        for group in groups:
            self.pipeline.selection.replayed(group)
        generated = time.perf_counter()
        # Train on them, or on rows that the store has kept.
        rows, same = pack(groups), self.run.store.same_rows
        batch = self.pipeline.staleness.trained(self.learner.prepare(self.store.take(rows)), version)
        # The last moment at which the weights that sampled these groups still exist.
        self.learner.before_update(self.pipeline.held)
        metrics = self.learner.step(batch)
        self.store.learned(batch, self.learner.errors)
        trained = time.perf_counter()
        # Deliver the new weights, and measure.
        metrics |= self._served() | self._observed(groups, seen, batch, version) | carried
        if FORK in self.run.workflow.requires and batch.decisions is not None:
            extent = self.policy.extent(batch.decisions)
            metrics |= tree_metrics(computed, seen, extent, groups if same else ())
        if held := self.store.metrics():
            metrics |= held | (replay_metrics(groups, version) if same else lags(rows, version))
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
        return metrics, groups, batch if same else rows

    def _observed(self, groups: Sequence[Group], seen: Sequence[Group], batch: TrainBatch, version: int) -> Metrics:
        """A step's metrics besides the learner's own. ``seen``: all groups scored for it, including dropped ones."""
        run, family, judged = self.run, self.run.policy.family, self.run.judged
        sized, paid, sources = run.sized, run.paid, run.tasks.sources
        metrics = rollout_metrics(seen or groups, judged=judged, answers=sized, paid=paid, sources=sources)
        if not any(reward.by_place for reward in run.rewards):  # else equal texts may score differently
            metrics |= repeat_metrics(seen)
        metrics |= surprise_metrics(family, seen or groups) | of_all(self.rewards, seen or groups, "reward/")
        update, same = self.learner.update, groups if run.store.same_rows else ()
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


def run_local(
    run: AbstractRun,
    directory: Path,
    *,
    resume: bool = False,
    name: str = "",
    track: Sequence[str] = (),
    begun: Callable[[bool], None] = lambda edited: None,
) -> Summary:
    """Train, recording everything under ``directory``; with ``resume`` continue from its newest checkpoint, bit for bit.

    A run killed before its first checkpoint starts over. A damaged checkpoint is skipped for the previous one.
    ``track`` names trackers that receive every step in addition to the run's files. ``begun`` is called once nothing can be refused
    any more before the first rollout: the model is loaded, tasks and rewards are checked, the sampler has the weights. It receives
    whether files of the run were edited since the checkpoint.

    Ctrl-C, or a scheduler's SIGTERM, ends the run at a checkpoint after the current step (KeyboardInterrupt); a second one at once.
    """
    compose.check(policies.checked(run, directory if resume else None))
    directory.mkdir(parents=True, exist_ok=True)
    console = Console(
        run.steps,
        name or directory.name,
        run.policy.family,
        recorded=isinstance(run.workflow, Demonstrated),
        segments=isinstance(run.engine, Episodes) and run.engine.segment > 0,
        paid=run.paid and weighed(run.rewards),
    )
    try:
        if run.faults is not None:
            console.alarm(run.faults.sentence())
        start = checkpoint.resumable(directory, console.alarm) if resume else None
        if resume and start is None:
            checkpoint.nothing_lost(directory, run.checkpoint_every)
        with waiting("loading the model, and starting the sampler and the rewards"):
            trainer = Trainer(run, start, console.tell, directory)
        try:
            with waiting("sending the weights to the sampler, and sampling the text that proves it"):
                trainer.begin()  # before the files are cut back: what cannot begin leaves them as they are
            begun(trainer.edited)
            checkpoint.rewind(directory, start)
            session = TrainingSession(trainer, directory, console, name or directory.name, track)
            try:
                return session.train()
            except Exception as error:
                with suppress(OSError):  # a full disk may be the very error
                    durable.write(directory / STOPPED, json.dumps(stopped(trainer.learner.version, error)) + "\n")
                raise
            finally:
                session.trackers.close()
        finally:
            trainer.close()
    finally:
        console.close()


class TrainingSession:
    """One session of a run: its files, its console, and totals over sessions."""

    def __init__(
        self, trainer: Trainer, directory: Path, console: Console, recipe: str, track: Sequence[str] = ()
    ) -> None:
        self.trainer, self.directory, self.console, self.recipe = trainer, directory, console, recipe
        self.metrics = JsonLines(directory / METRICS)
        self.rollouts = RolloutFile(directory / ROLLOUTS, trainer.run.steps, trainer.run.record_mb * 1_000_000)
        self.watch = watch(trainer.run)
        step = trainer.learner.version
        # Of an earlier end; it would speak for this run, and so would its summary.
        (directory / STOPPED).unlink(missing_ok=True)
        if step < trainer.run.steps:
            (directory / SUMMARY).unlink(missing_ok=True)
        self.first = True  # whether no step of this session has ended
        self.schedule = JsonLines(directory / SCHEDULE) if trainer.host.schedule is not None else None
        fresh = {"seconds": 0.0, "max_age": 0.0, "prob_diff": 0.0, "before": {}}
        self.totals: dict[str, Any] = dict(trainer.restored) or fresh
        self.trackers = Trackers(track, directory, step, console.tell)

    def train(self) -> Summary:
        trainer, run = self.trainer, self.trainer.run
        if run.held_out is not None and not self.totals["before"]:
            with waiting(f"evaluating on {len(run.held_out.tasks):,} held-out tasks before the first step"):
                self.totals["before"] = self._evaluated()
            self.console.before(self.totals["before"])
            self.trackers.log(0, self.totals["before"])
        if (row := self.totals.pop("unevaluated", None)) is not None:  # the step's evaluation ended the run
            self._finish(trainer.learner.version, row)
        step = trainer.learner.version  # under way; the learner's version rises in the middle of it
        with interruptible(lambda: step) as interrupted:
            while trainer.learner.version < run.steps:
                step = trainer.learner.version + 1
                self._step()
                last = trainer.learner.version == run.steps
                if interrupted() and not last:
                    saved = self._save()
                    raise KeyboardInterrupt(f"stopped after step {trainer.learner.version}; its checkpoint is {saved}")
                # The last step always: a finished run can be trained further only from a checkpoint.
                if last or trainer.learner.version % run.checkpoint_every == 0:
                    self._save()
        return self._conclude()

    def _step(self) -> None:
        trainer, run = self.trainer, self.trainer.run
        started = time.perf_counter()
        try:
            with waiting("sampling the first batch, and training on it") if self.first else nullcontext():
                metrics, groups, batch = trainer.advance()
        except (RewardError, Rewritten, Starved, Unserved):
            # Nothing has been trained on since the last step, so the run can continue from here once the cause is fixed.
            self._save()
            raise
        self.first = False
        self.totals["seconds"] += max(0.0, time.perf_counter() - started)
        self.totals["max_age"] = max(self.totals["max_age"], metrics["staleness/max"])
        self.totals["prob_diff"] += metrics.get("mismatch/prob_diff", math.nan)
        step = trainer.learner.version
        if self.schedule is not None and trainer.host.schedule is not None:
            self.schedule.append({"step": step, "batch": digest(groups), "events": trainer.host.schedule()})
        recorded = run.record_every and (step == 1 or step % run.record_every == 0)
        if recorded:
            self.rollouts.append(step, groups, batch, trainer.pieces, judged=trainer.run.judged)
        self._finish(step, metrics)
        if recorded:
            self.console.sample(groups[0].rollouts[0])

    def _finish(self, step: int, metrics: Metrics) -> None:
        """A step's row, with its evaluation if one is due."""
        held_out = self.trainer.run.held_out
        if held_out is not None and held_out.every and step % held_out.every == 0:
            try:
                metrics = {**metrics, **self._evaluated()}
            except Exception:
                # Whatever it was, the step is whole. Its row waits in the checkpoint, and a resumed run evaluates first.
                self.totals["unevaluated"] = metrics
                self._save()
                raise
        self.metrics.append({"step": step, **metrics})
        self.trackers.log(step, metrics)
        self.console.step({"step": float(step), **metrics})
        for sentence in self.watch(step, metrics):
            self.console.alarm(sentence)

    def _save(self) -> Path:
        with best.kept(self.directory, self.trainer.learner):
            return self.trainer.save(self.directory, self.totals)

    def _evaluated(self) -> Mapping[str, float]:
        """The figures of an evaluation; a model better than all earlier ones is saved."""
        trainer, held_out = self.trainer, self.trainer.run.held_out
        assert held_out is not None, "asked of runs with held-out tasks"
        result, step = trainer.evaluate(), trainer.learner.version
        if sentence := result.failures():
            self.console.alarm(sentence)
        if (found := best.improved(held_out, step, figures := result.metrics(), self.totals)) is not None:
            best.save(self.directory, BEST, trainer.learner.save, found)
        return figures

    def _conclude(self) -> Summary:
        trainer, run, gap = self.trainer, self.trainer.run, self.totals["prob_diff"]
        summary = Summary(
            recipe=self.recipe,
            seed=run.seed,
            steps=trainer.learner.version,
            seconds_training=self.totals["seconds"],
            tokens_generated=trainer.pipeline.generated["decisions"],
            before=self.totals["before"],
            after=self._evaluated() if run.held_out is not None else {},
            max_age=int(self.totals["max_age"]),
            mean_discrepancy=None if math.isnan(gap) else gap / max(1, trainer.learner.version),
            peak_memory_mb=device.peak_memory_mb(),
            drops=dict(trainer.pipeline.drops),
            undone=sum(share == 0 for share in Record(self.directory)("loop/kept")),
        )
        best.save(self.directory, LAST, trainer.learner.save)
        summary.save(self.directory / SUMMARY)  # last, for who finds it takes the run for finished
        self.trackers.log(trainer.learner.version, summary.after)
        self.console.verdict(summary)
        diagnosis = diagnosis_of(Record(self.directory))
        if diagnosis.signs:
            self.console.alarm(diagnosis.text())
        if run.faults is not None:
            self.console.alarm(run.faults.sentence())
        self.console.note(f"report: {write_report(self.directory)}")
        return summary
