"""A run: steps of a ``Trainer``, recorded, evaluated and saved."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

from gimbal import durable
from gimbal.engines.base import Unserved
from gimbal.engines.episodes import Episodes
from gimbal.environments.tables import Rewritten
from gimbal.learning.updates.base import Metrics
from gimbal.report.console import Console
from gimbal.report.doctor import diagnosis_of
from gimbal.report.files import BEST, LAST, METRICS, ROLLOUTS, SCHEDULE, STOPPED, SUMMARY, JsonLines, Summary, stopped
from gimbal.report.page import write_report
from gimbal.report.record import Record
from gimbal.report.reference import watch
from gimbal.report.rollouts import RolloutFile
from gimbal.report.trackers import Trackers
from gimbal.rewards.isolation import RewardError
from gimbal.rewards.scoring import weighed
from gimbal.runtime import best, checkpoint, compose, device, policies
from gimbal.runtime.interrupts import interruptible
from gimbal.runtime.pipeline import Starved
from gimbal.runtime.run import AbstractRun
from gimbal.runtime.schedule import digest
from gimbal.runtime.trainer import Trainer
from gimbal.waiting import waiting
from gimbal.workflows.demonstrated import Demonstrated


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
    recorded = isinstance(run.workflow, Demonstrated)
    segs, paid = isinstance(run.engine, Episodes) and run.engine.segment > 0, weighed(run.rewards)
    console = Console(run.steps, name or directory.name, run.policy.family, recorded=recorded, segments=segs, paid=paid)
    try:
        if run.faults is not None:
            console.alarm(run.faults.sentence())
        start = checkpoint.resumable(directory, console.alarm) if resume else None
        if resume and start is None:
            checkpoint.nothing_lost(directory, run.checkpoint_every)
        with waiting("loading the model, and starting the sampler and the rewards"):
            trainer = Trainer(run, start, console.note, directory)
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
        self.trackers = Trackers(track, directory, step, console.note)

    def train(self) -> Summary:
        trainer, run = self.trainer, self.trainer.run
        if run.held_out is not None and not self.totals["before"]:
            with waiting(f"evaluating on {len(run.held_out.tasks):,} held-out tasks before the first step"):
                self.totals["before"] = self._evaluated()
            self.console.before(self.totals["before"])
            self.trackers.log(0, self.totals["before"])
        if (row := self.totals.pop("unevaluated", None)) is not None:  # the step's evaluation ended the run
            self._finish(trainer.learner.version, row)
        with interruptible(lambda: trainer.learner.version + 1) as interrupted:
            while trainer.learner.version < run.steps:
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
