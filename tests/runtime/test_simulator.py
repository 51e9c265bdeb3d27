"""The simulator against closed forms, against its own conservation laws, and against the schedule of a real run."""

import math
import sys
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))
from small import small_run

from gimbal.engines.base import Request
from gimbal.policies.token import Sampling
from gimbal.records import Task
from gimbal.runtime.local import Trainer
from gimbal.runtime.simulate.simulator import SCHEDULES, Setup, simulate
from gimbal.runtime.simulate.timing import AbstractLengths, LogNormal, RecordedLengths, Speeds, Waits
from gimbal.runtime.simulate.virtual import VirtualEngine

SPEEDS = Speeds(
    step_s=0.02,
    row_s=1e-3,
    context_s=1e-7,
    prefill_token_s=1e-4,
    start_s=2e-3,
    load_s=0.3,
    train_step_s=0.2,
    train_token_s=1e-3,
    train_prompt_token_s=5e-4,
    sync_s=0.1,
)
ALWAYS_20 = RecordedLengths(groups=((20,) * 8,))
PLAN = Setup(speeds=SPEEDS, lengths=LogNormal(mean=60.0, cv=1.5, limit=400), prompt=30, samplers=3, trainers=2, slots=6)
PLAN = replace(
    PLAN,
    prompts_per_step=4,
    num_generations=4,
    max_staleness=3,
    weight_bytes=100.0,
    waits=Waits(median=0.5, sigma=1.0, longest=9.0),
)


def engine(loading="interrupt", devices=2, slots=3, speeds=SPEEDS, lengths=PLAN.lengths) -> VirtualEngine:
    return VirtualEngine(
        speeds,
        lengths,
        PLAN.waits,
        devices=devices,
        slots=slots,
        generations=4,
        prompt=30,
        loading=loading,
        recompute=True,
    )


def request(group: int, sample: int) -> Request:
    return Request(group=group, task=Task(id="t"), sample=sample, sampling=Sampling(max_length=300), seed=5)


@pytest.mark.slow
def test_long_rollouts_have_the_bound_and_what_waits_has_the_admission():
    """Most of the throughput of the wide bound, at an age nearer that of the narrow one."""
    plan = replace(PLAN, max_staleness=12, samplers=4, warmup=20, steps=60)
    wide, admitted, narrow = (
        simulate(replace(plan, max_staleness=k, admission=a), "partial-rollout")
        for k, a in ((12, None), (12, 3), (3, None))
    )
    assert admitted.step_s < 0.7 * narrow.step_s and admitted.step_s < 1.25 * wide.step_s
    assert admitted.age_mean < 0.6 * wide.age_mean and admitted.age_max <= 12
    assert simulate(replace(plan, admission=12), "partial-rollout") == wide


@settings(max_examples=60, deadline=None)
@given(
    loading=st.sampled_from(["interrupt", "drain", "barrier"]),
    devices=st.integers(1, 4),
    slots=st.integers(1, 5),
    actions=st.lists(st.sampled_from(["submit", "step", "pass", "freeze", "load"]), max_size=40),
)
def test_each_request_comes_out_once_with_all_its_decisions(loading, devices, slots, actions):
    """Whatever happens in whatever order; its decisions are of versions that were loaded while it was under way."""
    sampler, version, group, came, at_submit, at_end = engine(loading, devices, slots), 0, 0, Counter(), {}, {}
    sampler.load(0, {})
    for action in [*actions, *["step"] * 400]:
        if action == "submit":
            for sample in range(4):
                sampler.submit(request(group, sample))
            at_submit[group] = version
            group += 1
        elif action == "pass":
            sampler.pass_time(1.7)
        elif action == "freeze":
            sampler.freeze(0.9)
        elif action == "load":
            version += 1
            sampler.load(version, {})
        else:
            for finished in sampler.step():
                came[finished.key] += 1
                at_end[finished.key] = version
                (spans,) = finished.rollout.decisions.rows
                drawn = min(300, PLAN.lengths.draw(5, finished.key[0], 4)[finished.key[1]])
                assert sum(count for _, count in spans) == finished.rollout.length == drawn
                versions = [v for v, _ in spans]
                assert versions == sorted(set(versions))
                assert at_submit[finished.key[0]] <= versions[0] and versions[-1] <= version
                assert loading == "interrupt" or len(versions) == 1
    assert sampler.in_flight == 0
    assert came == Counter({(g, s): 1 for g in range(group) for s in range(4)})


def test_a_cancelled_rollout_comes_back_with_what_was_drawn_and_not_again():
    sampler = engine(devices=1, slots=3, lengths=RecordedLengths(groups=((100,) * 4,)))
    sampler.load(0, {})
    for sample in range(4):
        sampler.submit(request(0, sample))
    sampler.pass_time(1.0)
    running, waiting = sampler.cancel((0, 0)), sampler.cancel((0, 3))
    # Prompt 30 x 1e-4, three starts; then steps of 0.023 s and a little for the caches: the 44th goes over 1 s.
    assert running is not None and running.stop == "cancelled" and running.length == 44
    assert waiting is None
    left = []
    while sampler.in_flight:
        left += [finished.key for finished in sampler.step()]
    assert sorted(left) == [(0, 1), (0, 2)]


@pytest.mark.slow
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("k", [0, 1, 4])
def test_the_bound_of_the_real_pace_holds_and_shares_add_up(schedule, k):
    forecast = simulate(replace(PLAN, max_staleness=k), schedule)
    assert forecast.age_max <= forecast.max_staleness
    assert sum(forecast.ages.values()) == pytest.approx(1)
    assert forecast.trained["rollouts"] == PLAN.steps * 16 and forecast.trained["groups"] == PLAN.steps * 4
    assert 0 <= forecast.sampler_idle + forecast.sampler_loading <= 1 and 0 < forecast.occupancy <= 1
    assert forecast.seconds == pytest.approx(PLAN.steps * forecast.step_s)


@pytest.mark.slow
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_same_arguments_the_same_forecast_and_another_seed_another(schedule):
    assert simulate(PLAN, schedule) == simulate(PLAN, schedule)
    assert simulate(PLAN, schedule).seconds != simulate(replace(PLAN, seed=1), schedule).seconds


def test_one_sampler_and_constant_lengths_in_closed_form():
    """16 rollouts of 20 decisions in 8 slots, two groups of 8: twice (prompt + 8 starts + 20 steps of 8), then the learner."""
    speeds = replace(SPEEDS, context_s=0.0)
    plan = Setup(speeds=speeds, lengths=ALWAYS_20, prompt=30, slots=8, prompts_per_step=2, num_generations=8)
    generate = 2 * (30 * 1e-4 + 8 * 2e-3 + 20 * (0.02 + 8e-3))
    train = 0.2 + 1e-3 * 16 * 20 + 5e-4 * 2 * 30 + 0.1
    serial = simulate(replace(plan, samplers=1, trainers=0, max_staleness=0), "serial")
    assert serial.step_s == pytest.approx(generate + train)
    serial = simulate(replace(plan, max_staleness=0, num_generations=8, prompts_per_step=4), "serial")  # on two devices
    assert serial.step_s == pytest.approx(generate + 0.2 + (1e-3 * 640 + 5e-4 * 120) / 2 + 0.1)
    sync = simulate(plan, "sync")
    assert sync.step_s == pytest.approx(generate + train + 0.3)
    assert sync.trainer_idle == pytest.approx(1 - train / sync.step_s)
    assert sync.sampler_idle == pytest.approx(train / sync.step_s)
    assert sync.occupancy == pytest.approx(generate / sync.step_s)
    one = simulate(plan, "one-step-off")
    assert one.step_s == pytest.approx(generate + 0.3)  # the learner is faster, so it hides behind generation
    assert one.ages == {1: 1.0} and one.loads_per_step == 1


def test_the_context_of_the_caches_is_summed_exactly():
    """One rollout of 20: steps j = 0..19 see 30 + j tokens."""
    speeds = Speeds(context_s=0.01)
    plan = Setup(speeds=speeds, lengths=ALWAYS_20, prompt=30, slots=1, prompts_per_step=1, num_generations=1)
    assert simulate(plan, "sync").step_s == pytest.approx(0.01 * sum(30 + j for j in range(20)))
    assert simulate(plan, "sync").work["context"] / PLAN.steps == sum(30 + j for j in range(20))


def test_staleness_0_is_the_synchronous_run_under_every_schedule_that_has_k():
    plan = replace(PLAN, max_staleness=0)
    sync = simulate(plan, "sync")
    for schedule in ("bounded-async", "partial-rollout"):
        assert replace(simulate(plan, schedule), schedule="sync") == sync
    assert sync.ages == {0: 1.0}


def test_a_learner_that_takes_no_time_leaves_the_samplers_the_only_limit():
    """Slots are always full; so the sampler's own speed, in closed form, bounds every schedule, and k reaches it."""
    speeds = replace(
        SPEEDS,
        context_s=0.0,
        load_s=0.0,
        train_step_s=0.0,
        train_token_s=0.0,
        train_prompt_token_s=0.0,
        sync_s=0.0,
        start_s=0.0,
    )
    plan = Setup(speeds=replace(speeds, prefill_token_s=0.0), lengths=ALWAYS_20, slots=8, prompts_per_step=3)
    best = 8 / (20 * (0.02 + 8e-3))
    assert simulate(replace(plan, max_staleness=4), "partial-rollout").rollouts_per_s == pytest.approx(best, rel=0.01)
    for schedule in SCHEDULES:
        forecast = simulate(plan, schedule)
        assert forecast.rollouts_per_s <= best * 1.01 * (1 if schedule != "serial" else forecast.samplers)
        assert forecast.trainer_idle == pytest.approx(1)


def test_samplers_that_take_no_time_leave_the_learner_the_only_limit():
    speeds = Speeds(train_step_s=0.5, train_token_s=1e-3, train_prompt_token_s=2e-3, sync_s=0.25)
    plan = Setup(speeds=speeds, lengths=ALWAYS_20, prompt=10, prompts_per_step=2, num_generations=8, trainers=4)
    for schedule in SCHEDULES[1:]:
        forecast = simulate(plan, schedule)
        assert forecast.step_s == pytest.approx(0.5 + (1e-3 * 320 + 2e-3 * 20) / 4 + 0.25)
        assert forecast.trainer_idle == pytest.approx(0)


def test_what_the_filters_drop_is_drawn_all_the_same():
    """Half of the groups pass, so two are drawn for each one trained on; with k = 0 none is drawn ahead."""
    plan = replace(PLAN, waits=Waits(), kept=0.5, max_staleness=0, steps=30)
    half, whole = simulate(plan, "partial-rollout"), simulate(replace(plan, kept=1.0), "partial-rollout")
    assert half.trained["rollouts"] == whole.trained["rollouts"] == whole.work["starts"]
    assert half.work["starts"] / half.trained["rollouts"] == pytest.approx(2, rel=0.15)
    assert half.rollouts_per_s < 0.8 * whole.rollouts_per_s


def test_waits_hold_up_the_group_and_no_device():
    """16 rollouts of 20 steps in 8 slots: the second half starts when the first has been drawn, and its scores come 4 s later."""
    speeds, waits = Speeds(step_s=0.01), Waits(median=4.0)
    plan = Setup(speeds=speeds, lengths=ALWAYS_20, slots=8, prompts_per_step=2, waits=waits)
    assert simulate(plan, "sync").step_s == pytest.approx(0.4 + 4)
    drawn = [Waits(median=2.0, sigma=0.5, longest=3.0).draw(1, group, 0) for group in range(2000)]
    assert sorted(drawn)[1000] == pytest.approx(2, rel=0.05) and max(drawn) == 3
    assert sum(wait < 2 * math.exp(-0.5) for wait in drawn) / 2000 == pytest.approx(0.159, abs=0.03)


def test_sync_traffic_is_a_load_a_sampler_and_step():
    forecast = simulate(PLAN, "partial-rollout")
    assert forecast.loads_per_step == 3
    assert forecast.sync_bytes_per_s == pytest.approx(3 * 100 / forecast.step_s)


def test_lengths_have_the_mean_that_is_asked_for_and_a_share_of_the_task():
    drawn = [LogNormal(mean=100.0, cv=1.0, limit=10**9, task_share=0.8).draw(3, group, 4) for group in range(4000)]
    flat = [math.log(x) for group in drawn for x in group]
    assert sum(map(math.exp, flat)) / len(flat) == pytest.approx(100, rel=0.06)
    mean, total = sum(flat) / len(flat), 0.0
    for group in drawn:
        total += (math.log(group[0]) - mean) * (math.log(group[1]) - mean)
    variance = sum((x - mean) ** 2 for x in flat) / len(flat)
    assert total / len(drawn) / variance == pytest.approx(0.8, abs=0.06)
    assert variance == pytest.approx(math.log(2), rel=0.1)


def test_nobody_to_train_is_refused():
    with pytest.raises(ValueError, match="only serial"):
        simulate(replace(PLAN, trainers=0), "sync")


@dataclass(frozen=True, kw_only=True)
class Known(AbstractLengths):
    """The lengths that a real run's rollouts had; what it never finished is long."""

    known: dict

    def draw(self, seed, group, rollouts):
        return [self.known.get((group, sample), 10**6) for sample in range(rollouts)]


@pytest.mark.slow
@pytest.mark.parametrize("k, ahead, slots", [(0, "ready", 5), (2, "ready", 3), (2, "full", 12)])
def test_given_the_lengths_of_a_real_run_it_takes_the_same_decode_steps_at_the_same_versions(
    single_thread, k, ahead, slots
):
    """Batches, ages of every decision and the number of engine steps of each learner step, against the native engine."""
    run = small_run(max_staleness=k, ahead=ahead, steps=4, sampling=Sampling(max_length=24))
    trainer = Trainer(replace(run, engine=replace(run.engine, slots=slots)))
    trainer.begin()
    taken, original = [0], trainer.engine.step

    def counted():
        taken[0] += 1
        return original()

    trainer.engine.step = counted
    lengths, batches, steps = {}, [], []
    for version in range(run.steps):
        _, groups, _ = trainer.advance()
        steps.append(taken[0])
        ages = Counter()
        for group in groups:
            for rollout in group.rollouts:
                lengths[group.index, rollout.sample] = rollout.length
                ages.update((version - rollout.version_S).tolist())
        batches.append(ages)
    pipeline = trainer.pipeline
    held = {index: dict(enumerate(group.rollouts)) for index, group in pipeline.ready.items()}
    held |= {index: flight.results for index, flight in pipeline.outstanding.items() if index not in held}
    for index, rollouts in held.items():
        lengths |= {(index, sample): rollout.length for sample, rollout in rollouts.items()}
    trainer.close()
    plan = Setup(
        speeds=Speeds(step_s=1.0, train_step_s=3.0),
        lengths=Known(known=lengths),
        samplers=1,
        trainers=0,
        slots=slots,
        prompts_per_step=run.prompts_per_step,
        num_generations=run.num_generations,
        max_staleness=k,
        ahead=ahead,
        warmup=0,
    )
    for count in range(1, run.steps + 1):
        forecast = simulate(replace(plan, steps=count), "serial")
        assert forecast.work["steps"] == steps[count - 1]
        total = sum((batch for batch in batches[:count]), Counter())
        assert forecast.ages == {age: total[age] / total.total() for age in sorted(total)}
