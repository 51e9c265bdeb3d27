"""Speeds from runs: known ones are found again, and one real run explains itself."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from small import small_run

from gimbal import config
from gimbal.engines.native import Native
from gimbal.policies.token import Sampling
from gimbal.runtime.local import run_local
from gimbal.runtime.ray import Ray
from gimbal.runtime.simulate import calibrate
from gimbal.runtime.simulate.simulator import Setup, simulate
from gimbal.runtime.simulate.timing import LogNormal, Speeds

TRUE = Speeds(
    step_s=2e-3,
    row_s=3e-5,
    prefill_token_s=2e-4,
    start_s=8e-4,
    train_step_s=0.05,
    train_token_s=3e-4,
    train_prompt_token_s=5e-4,
    sync_s=0.04,
    load_s=0.04,
)
BASE = Setup(lengths=LogNormal(mean=20.0, cv=0.7, limit=64), prompt=35, samplers=1, trainers=0, warmup=1, steps=3)
CASES = [
    replace(BASE, slots=slots, prompts_per_step=prompts, num_generations=generations, max_staleness=k, prompt=prompt)
    for slots, prompts, generations, k, prompt in [
        (4, 3, 4, 0, 35),
        (24, 6, 4, 0, 35),
        (6, 6, 2, 1, 80),
        (48, 4, 8, 2, 10),
        (16, 2, 8, 1, 35),
    ]
]


@pytest.fixture(autouse=True)
def one_simulation(monkeypatch):
    monkeypatch.setattr(calibrate, "SEEDS", 1)


def timed(plan: Setup, speeds: Speeds) -> calibrate.Measured:
    """A run that takes exactly what these speeds say."""
    count = calibrate.counted(plan)
    return calibrate.Measured(
        name="made",
        plan=plan,
        generate=sum(getattr(speeds, name) * count[calibrate.WORK[name]] for name in calibrate.SHARES),
        train=speeds.train_step_s * plan.steps
        + speeds.train_token_s * count["decisions"]
        + speeds.train_prompt_token_s * count["prompt_tokens"],
        sync=speeds.sync_s * plan.steps,
    )


def test_known_speeds_are_found_again(monkeypatch):
    monkeypatch.setattr(calibrate, "WEIGHT", 1e-6)
    found = calibrate.fit([timed(plan, TRUE) for plan in CASES])
    for name, value in vars(TRUE).items():
        assert vars(found)[name] == pytest.approx(value, rel=0.02, abs=1e-9), name


def test_with_the_prior_too_an_unseen_case_is_forecast():
    found = calibrate.fit([timed(plan, TRUE) for plan in CASES])
    unseen = replace(BASE, slots=12, prompts_per_step=5, num_generations=6, max_staleness=3, ahead="full")
    real, forecast = (simulate(replace(unseen, speeds=speeds), "serial").seconds for speeds in (TRUE, found))
    assert forecast == pytest.approx(real, rel=0.05)


def test_one_run_explains_itself_and_no_speed_is_negative():
    run = timed(CASES[0], TRUE)
    found = calibrate.fit([run])
    assert calibrate.again(run, found).seconds == pytest.approx(run.seconds, rel=0.02)
    assert all(value >= 0 for value in vars(found).values()) and found.step_s > 0 and found.row_s > 0


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A real run of a few steps, as the command line leaves it."""
    directory = tmp_path_factory.mktemp("runs") / "small"
    run = small_run(engine=Native(slots=6, precision="float32"), sampling=Sampling(max_length=16), record_every=1)
    run = replace(run, max_staleness=1, checkpoint_every=100)
    directory.mkdir()
    config.save(config.dump(run, "small"), directory / config.RECIPE_FILE)
    run_local(run, directory)
    return directory


@pytest.mark.slow
def test_a_real_run_is_read(finished):
    run = calibrate.read(finished)
    plan = run.plan
    assert (plan.slots, plan.prompts_per_step, plan.num_generations, plan.max_staleness) == (6, 2, 4, 1)
    assert (plan.warmup, plan.steps, plan.max_length) == (1, 4, 16)
    assert run.generate > 0 and run.train > 0 and run.sync > 0
    assert all(1 <= length <= 16 for group in plan.lengths.groups for length in group)
    assert 50 < plan.prompt < 90  # gimbal-tiny reads characters, and the prompts are about 70 long
    assert plan.weight_bytes > 1e6
    forecast = calibrate.again(run, calibrate.fit([run]))
    assert forecast.rollouts_per_s == pytest.approx(run.rollouts_per_s, rel=0.05)


@pytest.mark.slow
def test_what_cannot_be_planned_from_is_refused_with_the_way_out(finished, tmp_path):
    _, run = config.load(finished, type(small_run()))
    config.save(config.dump(replace(run, runtime=Ray()), "small"), tmp_path / config.RECIPE_FILE)
    with pytest.raises(ValueError, match="plan from a local run"):
        calibrate.read(tmp_path)
    config.save(config.dump(run, "small"), tmp_path / config.RECIPE_FILE)
    with pytest.raises(ValueError, match="needs 2 finished steps, found 0"):
        calibrate.read(tmp_path)
    (tmp_path / "metrics.jsonl").write_text((finished / "metrics.jsonl").read_text())
    with pytest.raises(ValueError, match="record_every=1"):
        calibrate.read(tmp_path)


def test_a_short_run_has_lengths_of_its_steps_and_says_what_it_lacks():
    """Eight recorded rollouts and eight steps are enough; with fewer the refusal counts both."""
    line = {"group": 0, "version": [0] * 20, "pieces": ["a"] * 20, "prompt": "aa"}
    rows = [{"length/mean": 30.0}] * 8
    lengths, prompt = calibrate.recorded([line] * 8, rows, 64, "short")
    assert prompt == 2 and sorted(lengths.groups) == [(30,)] * 8 + [(30,) * 8]
    with pytest.raises(ValueError, match=r"needs 16 recorded lengths, found 8 and 7 steps.*record_every=1"):
        calibrate.recorded([line] * 8, rows[:7], 64, "short")


def test_speeds_from_what_workers_log_are_those_they_had():
    """Known seconds for steps, rows, starts and training; a tenth of each worker's time lies between its calls."""
    import plan
    from decoupled import Usage

    runs, cases = [], [plan.RayCase(4, 4, 16), plan.RayCase(4, 16, 8), plan.RayCase(0, 1, 4)]
    for case, starts in zip(cases, (100, 1600, 20), strict=True):
        steps, length = 2000, 20.0
        drawing = steps * (2e-3 + case.slots * 1e-4) + starts * 5e-3
        of = Usage(drawing=drawing, loading=0.2, steps=steps, rows=steps * case.slots, starts=starts)
        train = 0.05 + 2e-4 * case.prompts * 8 * length
        rows = [{"length/mean": length, "time/train": train, "time/sync": 0.03}] * 10
        line = {"group": 0, "version": [0] * 20, "pieces": ["a"] * 20, "prompt": "a"}
        runs.append(plan.RayRun(rows=rows, rollouts=[line] * 8, used=[((drawing + 0.2) / 0.9, of)] * 2))
    found = plan.ray_setup(cases, runs, min(run.gap for run in runs))
    speeds = found.speeds
    told = [
        speeds.step_s,
        speeds.row_s,
        speeds.start_s,
        speeds.train_step_s,
        speeds.train_token_s,
        speeds.sync_s,
        speeds.load_s,
    ]
    true = [2e-3 / 0.9, 1e-4 / 0.9, 5e-3 / 0.9, 0.05, 2e-4, 0.03, 0.02]
    assert told == pytest.approx(true, rel=0.1)
    assert found.lengths.groups == ((20,) * 8,) * 3
