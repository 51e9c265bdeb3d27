"""Runs that are killed again and again, at every kind of moment, come to the bits of the run that was left alone."""

import itertools
import json
import random
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from killing import differing, killed, trained, warm
from slow import Slow
from small import agent_run, denoising_run, distilled_run, masked_run, rows, small_run, terminal_run

from gimbal.advantages import NodeNormalized
from gimbal.dataflow.curricula.tracked import Tracked
from gimbal.dataflow.replay.preferences import AgeDecay, Prioritized
from gimbal.dataflow.replay.recent import Recent
from gimbal.dataflow.replay.recordings import Recordings
from gimbal.dataflow.replay.successes import Successes
from gimbal.dataflow.replay.transitions import Transitions
from gimbal.engines.drafting.draft_model import DraftModel
from gimbal.engines.drafting.prompt_lookup import PromptLookup
from gimbal.engines.drafting.self_speculation import SelfSpeculation
from gimbal.engines.native import Native
from gimbal.environments.minari import Minari
from gimbal.learning.weight_sync.sparse import Sparse
from gimbal.objectives import TruncatedWeight
from gimbal.policies.token import Sampling
from gimbal.recipes.papers.control.cartpole import cartpole
from gimbal.recipes.papers.control.dqn import dqn
from gimbal.recipes.papers.control.her import her
from gimbal.recipes.papers.control.mbpo import mbpo
from gimbal.recipes.papers.offline.td3_bc import td3_bc
from gimbal.report.files import deterministic
from gimbal.rewards.function import Function
from gimbal.runtime import checkpoint
from gimbal.workflows.branching import Branching
from gimbal.workflows.dialogue import Dialogue
from gimbal.workflows.fixed_splits import FixedSplits

SLOW = "dialogues on branches with a slow tool, a curriculum that observes"
TERMINAL = "episodes in a sandbox"
AGENT = "agents of their own, over HTTP"
DENOISING = "denoising, one version behind, in bfloat16"
SPLIT = "denoising, paths that split, one version behind"
DISTILLED = "denoising, distilled by the scores of two models"
FREE = {"slope": 0.0, "overhead": 0.0, "margin": -1.0}  # drafts cost nothing
WEIGHED = {"correction": TruncatedWeight()}
KILLS, MOST = 8, 32  # of each run
ACTING = (SLOW, TERMINAL, AGENT)  # whose checkpoints hold calls that are not answered
KINDS = {
    "a reward's process": ("operation", "time", "child"),
    SLOW: ("operation", "call", "time"),
    # In their first .7 seconds such runs attack their sandbox or start what starts their agents.
    TERMINAL: ("operation",),
    AGENT: ("operation",),
}
REWARD = """
def digits(prompts, completions, **columns):
    return [sum(c.isdigit() for c in text) / max(1, len(text)) for text in completions]
"""


def tokens(length, k, engine, stop=(), **changes):
    sampling = Sampling(max_length=length, stop=stop)
    return small_run(**{"checkpoint_every": 1} | changes, engine=engine, sampling=sampling, max_staleness=k)


def cart():
    run = cartpole()
    small = {"prompts_per_step": 4, "sampling": replace(run.sampling, max_length=25), "checkpoint_every": 1}
    return replace(run, engine=replace(run.engine, slots=3), threads=1, held_out=None, **small)


def from_a_buffer(disk=""):
    """Segments that end where episodes do leave environments in the middle of theirs, and rows half drawn: three segments a
    step leave some in nearly every checkpoint, where two leave one in one of eight, and kills may all miss that one.
    """
    run = dqn()
    small = {"prompts_per_step": 3, "max_staleness": 1, "checkpoint_every": 1, "held_out": None, "threads": 1}
    store = Transitions(
        capacity=60,
        minibatch=8,
        update_to_data=0.3,
        learning_starts=5,
        n=3,
        preference=AgeDecay(span=50.0),
        disk=str(disk),
    )
    policy = replace(run.policy, hidden=(8,), normalize=True)
    return replace(run, engine=replace(run.engine, slots=3, segment=7), store=store, policy=policy, **small)


def apart():
    """Environments that are killed with the run, in the middle of their episodes."""
    run = from_a_buffer()
    return replace(run, engine=replace(run.engine, apart=True))


def by_errors():
    """With the errors by which rows are drawn, in a buffer that has been written over."""
    run = from_a_buffer()
    return replace(run, store=replace(run.store, preference=Prioritized()))


def of_goals():
    """With goals drawn for steps of a buffer that has been written over. Synchronous: its episodes are of one length, so that all slots
    end together and none is ever half drawn."""
    run = her()
    small = {"checkpoint_every": 1, "held_out": None, "prompts_per_step": 2}
    store = replace(run.store, capacity=70, minibatch=8, update_to_data=0.2, learning_starts=5)
    sampling = replace(run.sampling, max_length=12)
    return replace(run, engine=replace(run.engine, slots=2), store=store, sampling=sampling, **small)


def in_a_world():
    """With the weights, moments and units of a learned world, and noise that lasts over the segments of an episode."""
    run = mbpo()
    small = {"max_staleness": 0, "checkpoint_every": 1, "held_out": None, "threads": 1, "steps": 6}
    store = Transitions(capacity=60, minibatch=8, update_to_data=0.3, learning_starts=5)
    return replace(run, engine=replace(run.engine, segment=7, correlation=0.9), store=store, **small)


def recorded():
    """The moves of TD3+BC with statistics of observations: nothing is under way, as nobody acts."""
    run = td3_bc()
    data, store = Minari(dataset="gimbal/maze/stitch-v0"), Recordings(moves=5, minibatch=8)
    sizes = {"observations": 2, "actions": 2, "bound": 0.2}
    update = replace(run.update, critic=replace(run.update.critic, **sizes))
    policy = replace(run.policy, hidden=(8,), **sizes)
    return replace(run, tasks=data, store=store, policy=policy, update=update, checkpoint_every=1, held_out=None)


RUNS = {
    "synchronous": lambda home: tokens(14, 0, Native(slots=4)),
    "one version behind, old batches again, a drafter that learns": lambda home: tokens(
        14, 1, Native(slots=4, drafter=DraftModel(warmup=1, **FREE)), store=Recent(), **WEIGHED
    ),
    "three behind, cache rebuilt, what went well again, drafts": lambda home: tokens(
        14,
        3,
        Native(slots=4, cache="recompute", drafter=PromptLookup(**FREE)),
        tasks=rows(3),
        store=Successes(least=0.0, low=0.9, spread=1.0, each=2),
        **WEIGHED,
    ),
    "stop strings, entropies, drafts": lambda home: tokens(
        22, 1, Native(slots=5, entropy=True, drafter=SelfSpeculation(**FREE)), stop=("7",)
    ),
    "deltas, one checkpoint every second step": lambda home: tokens(
        20,
        3,
        Native(slots=6, precision="float32"),
        sync=Sparse(dtype="float32"),
        checkpoint_every=2,
        keep_checkpoints=1,
    ),
    "a reward's process": lambda home: tokens(
        14, 1, Native(slots=4), rewards=(Function(function=f"{home / 'mine.py'}:digits"),)
    ),
    SLOW: lambda home: tokens(
        24,
        1,
        Native(slots=4, precision="int8"),
        workflow=Branching(inside=Dialogue(tool=Slow(), overlap=3)),
        curriculum=Tracked(),
        tasks=rows(3),
    ),
    TERMINAL: lambda home: terminal_run(max_staleness=1),
    AGENT: lambda home: agent_run(max_staleness=1),
    "control": lambda home: cart(),
    "control, from a buffer on disk": from_a_buffer,
    "control, in processes of their own": lambda home: apart(),
    "control, by errors": lambda home: by_errors(),
    "control, of goals": lambda home: of_goals(),
    "control, a learned world": lambda home: in_a_world(),
    DENOISING: lambda home: denoising_run(),
    "masked text": lambda home: masked_run(),
    SPLIT: lambda home: denoising_run(workflow=FixedSplits(splits=(1, 2)), advantage=NodeNormalized()),
    DISTILLED: lambda home: distilled_run(),
    "control, recorded": lambda home: recorded(),
}


@pytest.fixture(scope="module")
def context():
    if torch.cuda.is_available():
        pytest.skip("its children are forked, which a GPU does not survive")
    return warm()


def state(directory):
    found = checkpoint.load(checkpoint.newest(directory))
    del found["totals"]["seconds"]
    return found


def records(directory):
    metrics = [deterministic(json.loads(line)) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    model = {str(path): path.read_bytes() for path in (directory / "model").rglob("*") if path.is_file()}
    model = {path.removeprefix(str(directory)): found for path, found in model.items()}
    rollouts = [deterministic(json.loads(line)) for line in (directory / "rollouts.jsonl").read_text().splitlines()]
    return metrics, rollouts, model


def drawn_ahead(name, run) -> bool:
    """Whether rollouts are half drawn where a checkpoint is written: in a run ahead; but of agents it is episodes that are, between
    their calls."""
    return run.max_staleness > 0 and name != AGENT


def covers(kills, kinds, ahead, acts) -> bool:
    """Whether every kind of moment was met, and rollouts half drawn and calls under way were among what was resumed.
    When a kill comes is a matter of the machine's load: eight are enough nearly always.
    """
    half, calls = any(half for _, half, _ in kills), any(calls for *_, calls in kills)
    return {kind for kind, *_ in kills} == set(kinds) and half >= ahead and calls >= acts


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_a_killed_run_comes_to_the_same_bits(context, tmp_path, name):
    if name in (DENOISING, SPLIT, DISTILLED):
        pytest.importorskip("diffusers", reason="diffusers is not installed: pip install -e '.[denoising]'")
    (tmp_path / "mine.py").write_text(REWARD)
    run = replace(RUNS[name](tmp_path), steps=8, record_every=2)
    whole = trained(context, run, tmp_path / "whole")
    whole.join(600)
    assert whole.exitcode == 0
    draw, kills = random.Random(name), []
    kinds, ahead = KINDS.get(name, ("operation", "time")), drawn_ahead(name, run)
    for number in itertools.count():
        if len(kills) >= KILLS and (covers(kills, kinds, ahead, name in ACTING) or len(kills) >= MOST):
            break
        kills += killed(context, run, cut := tmp_path / f"cut {number}", draw, kinds)
        assert records(cut) == records(tmp_path / "whole")
        assert records(cut)[0][-1].get("replay/used", 1) > 0
        assert differing(state(cut), state(tmp_path / "whole")) is None
    assert covers(kills, kinds, ahead, name in ACTING), kills
    assert any(calls for *_, calls in kills) == (name in ACTING), "nothing but calls of tools waits"
    assert any(half for _, half, _ in kills) == ahead, "rollouts are half drawn only in a run ahead"
