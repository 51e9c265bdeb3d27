"""What parts say of the run they are in: for each rule a run that breaks it (refused.py, advised.py), and what the rule tells one to
type silences it."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import ast
import re
from dataclasses import dataclass
from typing import ClassVar

import wrong_recordings
from advised import ADVICE
from refused import REFUSALS
from small import Digits, small_run

import gimbal
from gimbal.advantages import GroupCentered, ReturnToGo, Whitened
from gimbal.advantages.estimators.reward_decoupled import RewardDecoupled
from gimbal.advantages.estimators.stratified import Stratified
from gimbal.advantages.reward_shaping.priced_cost import PricedCost
from gimbal.composition import Advice, Refusal
from gimbal.controllers.stability import Stability
from gimbal.dataflow.real_samples import RealSamples
from gimbal.dataflow.replay.buffer import Buffer
from gimbal.dataflow.replay.corrected_plans import CorrectedPlans
from gimbal.dataflow.replay.once import Once
from gimbal.dataflow.replay.preferences import Prioritized
from gimbal.dataflow.replay.recordings import Recordings
from gimbal.dataflow.replay.transitions import Transitions
from gimbal.dataflow.staleness import MaskStale
from gimbal.engines.episodes import Episodes
from gimbal.engines.native import Native
from gimbal.engines.unmasking import Unmasking
from gimbal.environments.conditions import Conditions
from gimbal.environments.gym import Gymnasium
from gimbal.learning.guardian import Guardian
from gimbal.learning.optimization import Optimization
from gimbal.learning.proximal.behavior import Behavior
from gimbal.learning.proximal.sampling_version import SamplingVersion
from gimbal.learning.updates.adversarial_flow import AdversarialFlow
from gimbal.learning.updates.adversarial_forcing import AdversarialForcing
from gimbal.learning.updates.cached_steps import CachedSteps
from gimbal.learning.updates.discriminator import AdversarialLoss
from gimbal.learning.updates.gradient_steps import GradientSteps
from gimbal.learning.updates.path_distillation import PathDistillation, Teacher
from gimbal.learning.updates.plan_learning import PlanLearning
from gimbal.learning.updates.synthetic_replay import SyntheticReplay
from gimbal.objectives import Reinforce, TruncatedWeight
from gimbal.objectives.base import AbstractMask
from gimbal.objectives.regularisers.right_likelihood import RightLikelihood
from gimbal.objectives.surrogates.joints_clipped import JointsClipped
from gimbal.objectives.surrogates.total_ratio_weight import TotalRatioWeight
from gimbal.objectives.surrogates.turn_sweep import TurnSweep
from gimbal.policies.control import CONFIG
from gimbal.policies.denoiser import Denoiser
from gimbal.policies.gaussian import Gaussian
from gimbal.policies.least import LeastValues
from gimbal.policies.lora import LoRA
from gimbal.policies.paths import PathSampling
from gimbal.recipes.core.grpo import grpo
from gimbal.recipes.papers.control.bresa import bresa
from gimbal.recipes.papers.control.cartpole import cartpole
from gimbal.recipes.papers.control.dqn import dqn
from gimbal.recipes.papers.control.dsrl import dsrl
from gimbal.recipes.papers.control.expo import expo
from gimbal.recipes.papers.control.gcsl import gcsl
from gimbal.recipes.papers.control.gorl import gorl
from gimbal.recipes.papers.control.h_infinity import h_infinity
from gimbal.recipes.papers.control.her import her
from gimbal.recipes.papers.control.intermimic import intermimic
from gimbal.recipes.papers.control.korr import korr
from gimbal.recipes.papers.control.least import least
from gimbal.recipes.papers.control.mbpo import mbpo
from gimbal.recipes.papers.control.pde_refiner import pde_refiner
from gimbal.recipes.papers.control.pendulum import pendulum
from gimbal.recipes.papers.control.pets import pets
from gimbal.recipes.papers.control.rad_2 import rad_2
from gimbal.recipes.papers.control.residual import residual
from gimbal.recipes.papers.control.rlpd import rlpd
from gimbal.recipes.papers.control.sac import sac
from gimbal.recipes.papers.control.sac_lagrangian import sac_lagrangian
from gimbal.recipes.papers.control.sequoia import sequoia
from gimbal.recipes.papers.control.td3 import td3
from gimbal.recipes.papers.denoising.branch_grpo import branch_grpo
from gimbal.recipes.papers.denoising.dance_grpo import dance_grpo
from gimbal.recipes.papers.denoising.ddpo import ddpo
from gimbal.recipes.papers.denoising.diffusion_nft import diffusion_nft
from gimbal.recipes.papers.denoising.draft import draft
from gimbal.recipes.papers.denoising.flow_bp import flow_bp
from gimbal.recipes.papers.denoising.flow_grpo import flow_grpo
from gimbal.recipes.papers.denoising.next_scale_sft import next_scale_sft
from gimbal.recipes.papers.denoising.one_reward import one_reward
from gimbal.recipes.papers.denoising.reflective_masking import reflective_masking
from gimbal.recipes.papers.denoising.sar import sar
from gimbal.recipes.papers.denoising.sol_rl import sol_rl
from gimbal.recipes.papers.denoising.streams import streams
from gimbal.recipes.papers.denoising.unigrpo import unigrpo
from gimbal.recipes.papers.distillation.any_flow import any_flow
from gimbal.recipes.papers.distillation.arc_forcing import arc_forcing
from gimbal.recipes.papers.distillation.asd import asd
from gimbal.recipes.papers.distillation.diffusion_opd import diffusion_opd
from gimbal.recipes.papers.distillation.dmd2 import dmd2
from gimbal.recipes.papers.distillation.dmd2_gan import dmd2_gan
from gimbal.recipes.papers.distillation.stream_r1 import stream_r1
from gimbal.recipes.papers.offline.bc import bc
from gimbal.recipes.papers.offline.bisimulation import bisimulation
from gimbal.recipes.papers.offline.cdsa import cdsa
from gimbal.recipes.papers.offline.coflow import coflow
from gimbal.recipes.papers.offline.cql import cql
from gimbal.recipes.papers.offline.diffusion_world import diffusion_world
from gimbal.recipes.papers.offline.famo2o import famo2o
from gimbal.recipes.papers.offline.fisor import fisor
from gimbal.recipes.papers.offline.fql import fql
from gimbal.recipes.papers.offline.idql import idql
from gimbal.recipes.papers.offline.iql import iql
from gimbal.recipes.papers.offline.ogsrl import ogsrl
from gimbal.recipes.papers.offline.persist_world import persist_world
from gimbal.recipes.papers.offline.synther import synther
from gimbal.recipes.papers.offline.trajectory_diffuser import trajectory_diffuser
from gimbal.rewards.consistency import DigitConsistency
from gimbal.rewards.debate import Debated
from gimbal.rewards.digits import DigitClass
from gimbal.rewards.pattern import Pattern
from gimbal.rewards.points import ModeNearness
from gimbal.rewards.shown_digits import DigitJudge
from gimbal.runtime.compose import check, verdicts
from gimbal.workflows.branching import Branching
from gimbal.workflows.fixed_splits import FixedSplits
from gimbal.workflows.guided import Guided
from gimbal.workflows.in_scales import InScales
from gimbal.workflows.searched_stream import SearchedStream
from gimbal.workflows.streamed import Streamed
from gimbal.workflows.tempered import Tempered

PACKAGE = Path(gimbal.__file__).parent


def said(**changes: object) -> list[str]:
    """All that the parts of this run say, whether it stops the run or not."""
    return [verdict.reason for verdict in verdicts(small_run(**{"num_generations": 4, **changes}))]


@pytest.mark.parametrize(("changes", "reason", "cure"), REFUSALS)
def test_refused_until_what_it_says_is_typed(changes, reason, cure):
    with pytest.raises(ValueError, match=reason):
        check(small_run(**{"num_generations": 4, **changes}))
    assert [other for other in said(**{**changes, **cure}) if reason in other] == []


@pytest.mark.parametrize(("changes", "sentence", "cure"), ADVICE)
def test_advised_until_what_it_says_is_typed(changes, sentence, cure):
    assert [other for other in check(small_run(**{"num_generations": 4, **changes})) if sentence in other] != []
    assert [other for other in said(**{**changes, **cure}) if sentence in other] == []


def _sentences(file: Path) -> list[str]:
    """What the file's refusals and advice say, as regular expressions."""
    calls = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call)]
    said = [call.args[0] for call in calls if ast.unparse(call.func) in ("Refusal", "Advice")]
    return [
        "".join(re.escape(piece.value) if isinstance(piece, ast.Constant) else ".*" for piece in pieces)
        for text in said
        for pieces in [text.values if isinstance(text, ast.JoinedStr) else [text]]
    ]


def of_named_classes(directory):
    """A stream of a network that draws only samples of a class that is named."""
    diffusers = pytest.importorskip("diffusers")
    blocks = {"down_block_types": ("DownBlock2D",), "up_block_types": ("UpBlock2D",), "block_out_channels": (8,)}
    size = {"sample_size": 8, "in_channels": 3, "out_channels": 1, "layers_per_block": 1, "norm_num_groups": 4}
    diffusers.UNet2DModel(**size, **blocks, num_class_embeds=10).save_pretrained(directory / "unet")
    diffusers.FlowMatchEulerDiscreteScheduler().save_pretrained(directory / "scheduler")
    return replace(streams(), policy=Denoiser(model=str(directory)))


def of_grey_pictures(directory):
    """Real samples from 0 to 1, where the policy draws from -1 to 1."""
    np.savez(directory / "real.npz", samples=np.full((2, 1, 8, 8), 0.5, "float32"))
    return adversarial(dmd2(), str(directory / "real.npz"))


def of_saved_policy(directory):
    """It begins with a policy that was saved with one hidden layer of 8."""
    (directory / CONFIG).write_text('{"observations": 3, "actions": 1, "hidden": [8], "normalize": false}')
    return replace(sac(), policy=sac().policy.at(directory))


def drawn_by(policy):
    run = unigrpo()
    own = run.separate["painter"]
    return replace(run, separate={"painter": replace(own, kind=replace(own.kind, policy=policy))})


def test_a_network_of_named_classes_is_asked_for_one_in_training_and_evaluation(tmp_path):
    run = replace(diffusion_nft(), policy=of_named_classes(tmp_path).policy, tasks=Conditions())
    run = replace(run, held_out=replace(run.held_out, tasks=Conditions()))
    (said,) = [verdict.reason for verdict in verdicts(run) if "samples only with one" in verdict.reason]
    labels = "[0,1,2,3,4,5,6,7,8,9]"
    assert said.startswith("tasks asks for no class, and ")
    assert said.endswith(f"with one: set tasks.labels={labels} held_out.tasks.labels={labels}")


def test_every_rule_of_a_part_has_its_case(monkeypatch, tmp_path):
    """So that a new rule comes with a run that breaks it and one that keeps it."""
    monkeypatch.setattr("gimbal.workflows.agent.find_spec", lambda name: None)  # the extra that is installed here
    files = [file for file in PACKAGE.rglob("*.py") if file.name not in ("compose.py", "faults.py")]
    rules = [rule for file in files for rule in _sentences(file)]
    heard = [reason for changes, _, _ in (*REFUSALS, *ADVICE) for reason in said(**changes)]
    pytest.importorskip("h5py")
    others = (
        OF_ANY_AGE,
        UNTRAINED,
        rad_2(),  # of no flow
        residual(),  # of no base
        cdsa(),  # of none either
        TAUGHT,
        TEACHING,
        CRITICS_ALONE,
        EXPLORING,
        ITSELF,
        *OFF_POLICY.values(),
        *DENOISING.values(),
        named := of_named_classes(tmp_path),
        drawn_by(named.policy),
        of_grey_pictures(tmp_path),
        of_saved_policy(tmp_path),
        *wrong_recordings.runs(tmp_path).values(),
    )
    heard += [verdict.reason for run in others for verdict in verdicts(run)]
    assert len(rules) > 60
    assert [rule for rule in rules if not any(re.fullmatch(rule, reason) for reason in heard)] == []


OF_ANY_AGE = replace(sac(), update=replace(sac().update, stability=Stability()))
# Of another run, without its policy.
CRITICS_ALONE = replace(iql(), update=replace(iql().update, begin_from="runs/RUN"))
# Of another run, with its policy and as much noise as if nothing had been learned.
EXPLORING = replace(
    td3(), policy=td3().policy.at(Path("runs/RUN/model")), update=replace(td3().update, begin_from="runs/RUN")
)
ITSELF = replace(gcsl(), store=replace(gcsl().store, hindsight=None))  # clones what it does
UNTRAINED = dsrl()  # steers a flow that nobody trained
TAUGHT = intermimic()  # by nobody
TEACHING = replace(TAUGHT, policy=TAUGHT.reference)
OFF_POLICY = {  # what is refused of runs that learn from single decisions, by how it is said
    r"store='Transitions\(\)'": replace(sac(), store=Buffer()),
    r"staleness=Pace\(\)": replace(sac(), staleness=MaskStale()),
    "leave optimization.minibatches and epochs at 1": replace(
        sac(), update=replace(sac().update, optimization=Optimization(minibatches=4))
    ),
    "a deterministic policy, but SquashedGaussian is not one": replace(td3(), policy=sac().policy),
    r"store='Transitions\(\)', or update\.burn_in=0": replace(
        residual(), store=Once(), update=replace(residual().update, burn_in=5)
    ),
    r"a single step, but store\.n is 3: set store\.n=1, or policy\.foresight=none": replace(
        korr(), store=replace(korr().store, n=3)
    ),
    r"DQN has none that learns by itself: policy\.model=runs/RUN/model": replace(
        dqn(), update=replace(dqn().update, begin_from="runs/RUN")
    ),
    "the values of choices, and SquashedGaussian has none": replace(dqn(), policy=sac().policy),
    "the values of sets of actions, and SquashedGaussian has none": replace(sequoia(), policy=sac().policy),
    "LeastValues is played and not trained": replace(dqn(), policy=LeastValues(beside=("model",))),
    r"no density of real actions: policy='Gaussian": replace(iql(), policy=td3().policy),
    r"the code that a policy acts on, and Gaussian has none: policy='Encoded.*begin with iql": replace(
        bisimulation(), policy=replace(iql().policy, observations=31)
    ),
    "policy.code is 4 and update.code 8": replace(bisimulation(), policy=replace(bisimulation().policy, code=4)),
    r"compares recorded single steps.*only store='Recordings": replace(bisimulation(), store=Once()),
    "a code that its critics teach, and BehaviorCloning teaches none: begin with bisimulation": replace(
        bisimulation(), update=bc().update
    ),
    r"and Gaussian is one policy: policy='Balanced": replace(famo2o(), policy=iql().policy),
    "draws actions without a density, which BehaviorCloning learns by": replace(bc(), policy=fql().policy),
    "reads its noise, and SquashedGaussian reads none": replace(fql(), policy=cql().policy),
    "whose proposals are scored, and OneStep proposes none": replace(idql(), policy=fql().policy),
    r"a copy of the critic, and policy\.members is 1": replace(idql(), policy=replace(idql().policy, members=1)),
    r"ImplicitFlow trains no edits: set policy\.edit=0": replace(idql(), policy=replace(idql().policy, edit=0.1)),
    r"set policy\.pick\.expectile=0\.5": replace(idql(), update=replace(idql().update, expectile=0.5)),
    r"EditedFlow learns none: policy\.pick='Best\(\)'": replace(
        expo(), policy=replace(expo().policy, pick=idql().policy.pick)
    ),
    r"update\.critic\.blocks is 1; set update\.critic\.blocks=0": replace(
        idql(),
        update=replace(idql().update, critic=replace(idql().update.critic, hidden=(64,), blocks=1, layer_norm=False)),
    ),
    "draws among many: update.guidance=0": replace(
        synther(),
        policy=iql().policy,
        update=SyntheticReplay(inside=iql().update, guidance=1.0),
    ),
    r"the run makes 2500 moves.*update\.warmup=625": replace(synther(), steps=10),
    r"the noise of a frozen flow, and SquashedGaussian has none": replace(dsrl(), policy=sac().policy),
    r"the noise that a flow begins from, and TD3 learns from actions": replace(td3(), policy=gorl().policy),
    r"what plans are made by, and Gaussian makes none: policy='DraftedPlan": replace(
        trajectory_diffuser(), policy=iql().policy
    ),
    r"learns from whole episodes, and Recordings draws single steps: set store='Once\(\)'": replace(
        trajectory_diffuser(), store=iql().store, update=PlanLearning()
    ),
    r"how far a flow leads, and Gaussian is told no span: policy='JointFlow": replace(
        coflow(), policy=replace(iql().policy, actions=3)
    ),
    r"2 agents do not share 3 observations evenly: policy\.agents must divide": replace(
        coflow(), policy=replace(coflow().policy, agents=2)
    ),
    r"nearer to data, and Gaussian has none of it: policy='TowardData": replace(cdsa(), policy=iql().policy),
    r"policy\.noise is 0\.7, and noise from 0\.01 to 0\.5 is learned": replace(
        cdsa(), policy=replace(cdsa().policy, noise=0.7)
    ),
    r"none are kept of what store\.prior holds": replace(rlpd(), store=replace(rlpd().store, preference=Prioritized())),
    r"of none or of several: set store\.hindsight=none": replace(
        sac(),
        tasks=Gymnasium(environment="Pendulum-v1", grid={"m": (1.0, 2.0)}),
        store=her().store,
        engine=her().engine,
    ),
    r"Pendulum-v1 has no goals: its observations must be a Dict.*store\.hindsight=none": replace(
        sac(), store=her().store, engine=her().engine
    ),
    r"cuts rows of 10 steps out of it: set engine\.segment=0": replace(her(), engine=sac().engine),
    "EditedFlow tells none of its values.*begin with sac, td3, dqn or dsrl": replace(
        expo(), store=Transitions(preference=Prioritized())
    ),
    r"no density that another would change.*sampling\.temperature=1": replace(
        idql(), sampling=replace(idql().sampling, temperature=0.5)
    ),
    r"its largest value: set policy='Categorical": replace(dqn(), update=bc().update),
    "FeasibilityGuided makes recorded actions likelier": replace(fisor(), policy=replace(td3().policy, observations=2)),
    r"recorded costs, which only store='Recordings": replace(fisor(), store=Once()),
    "says nothing of it: each episode must hold infos/cost": replace(iql(), update=fisor().update),
    r"Playback plays recorded episodes.*engine='Episodes\(\)'": replace(iql(), tasks=sac().tasks, store=Buffer()),
    r"there is none: set store.prior='Minari": replace(sac(), store=replace(sac().store, share=0.25)),
    r"Recordings draws from recorded episodes.*tasks='Minari": replace(sac(), store=Recordings()),
    "of gimbal/pendulum/mixed-v0 Pendulum-v1 has no method replanned.*set store.corrections=none": replace(
        iql(), store=Recordings(corrections=CorrectedPlans())
    ),
    "Episodes would act in their environment and ignore them": replace(sac(), tasks=iql().tasks),
    "set engine.correlation=0": replace(pendulum(), engine=Episodes(correlation=0.9), held_out=None),
    "is of noise on real actions, and Greedy takes choices": replace(
        dqn(), engine=replace(dqn().engine, correlation=0.9)
    ),
    "would shape the evaluation as well": replace(
        sac(), engine=Episodes(correlation=0.9), held_out=replace(sac().held_out, engine=None)
    ),
    "samples real steps from a buffer, but Once is not one": replace(mbpo(), store=Once()),
    "store.disk=nowhere is not a directory: create it": replace(sac(), store=Transitions(disk="nowhere")),
    r"a buffer's are not: store='Recordings\(\)'.*update\.guard=none": replace(
        mbpo(), update=replace(mbpo().update, guard=Guardian())
    ),
    r"what a reflex reads, and SquashedGaussian has none: policy='Reflexive": replace(bresa(), policy=sac().policy),
    "reads a learned risk, and SoftActorCritic learns none: begin with bresa": replace(bresa(), update=sac().update),
    r"travels with the policy, and SquashedGaussian carries none: .* set policy\.judges=2": replace(
        least(), policy=replace(least().policy, judges=0)
    ),
    r"EarlyStop\.gamma is 0\.95, .* update's is 0\.9: set both alike": replace(
        least(), update=replace(least().update, gamma=0.9)
    ),
    r"EarlyStop would cut the episodes of the evaluation off: set held_out\.engine": replace(
        least(), held_out=replace(least().held_out, engine=None)
    ),
    r"the critic is ActionValues\(.*members=10.*: let it have .* members=2, and neither layer_norm": replace(
        least(), update=replace(least().update, critic=replace(least().update.critic, members=10))
    ),
    r"travel with the policy, and BehaviorCloning brings it none: set policy\.judges=0": replace(
        gcsl(), policy=replace(gcsl().policy, judges=2)
    ),
    r"as the update begins, and Behavior is another anchor: set anchor='Recompute": replace(
        pendulum(), objective=JointsClipped(), anchor=Behavior()
    ),
    r"update\.price prices single steps.*set store\.n=1": replace(sac_lagrangian(), store=Transitions(n=3)),
    "Dyna learns from steps of its own making too, which tell no cost.*begin with sac_lagrangian": replace(
        mbpo(), update=replace(mbpo().update, inside=replace(mbpo().update.inside, price=PricedCost()))
    ),
    r"what was decided and what was done: store='Transitions\(\)', with n=1": replace(bresa(), store=Transitions(n=3)),
    r"goes on with the last action, and Pendulum-v1 shows none: .*set tasks\.environment=": replace(
        bresa(), tasks=sac().tasks, update=replace(bresa().update, unsafe="mine.py:limit")
    ),
    "update.unsafe is the limit of gimbal's own cart, and Pendulum-v1 is another.*set update.unsafe=file.py:function": replace(
        bresa(), tasks=replace(bresa().tasks, environment="Pendulum-v1")
    ),
    "update.guard.unsafe is the limit of gimbal's own cart, and Pendulum-v1 is another.*set update.guard.unsafe=": replace(
        ogsrl(), tasks=iql().tasks, held_out=None, policy=replace(ogsrl().policy, observations=3)
    ),
    "its hidden is .64, 64. where update.critic.hidden is .8,.: set both alike": replace(
        bresa(), update=replace(bresa().update, critic=replace(bresa().update.critic, hidden=(8,)))
    ),
    r"its disturber, and Gaussian has none: policy='Disturbed": replace(h_infinity(), policy=pendulum().policy),
    r"learns no world from them: set store.path=1": replace(sac(), store=Transitions(path=5)),
    r"set store\.path=1, or world\.refine=\(\)": replace(pde_refiner(), store=replace(pde_refiner().store, path=5)),
    r"a diffusion world has none: set update='WorldDenoising": replace(diffusion_world(), update=pets().update),
    r"this policy has none: set policy='Planned.world=DiffusionDynamics": replace(
        pets(), update=diffusion_world().update
    ),
    r"and store\.path is 1: set store\.path=3, or update\.own=none": replace(
        persist_world(), store=diffusion_world().store
    ),
    r"from paths: set update\.own='OwnRollouts": replace(diffusion_world(), store=persist_world().store),
    r"ImplicitQ learns no world from them: set store\.path=1": replace(iql(), store=Recordings(path=5)),
    "learns what follows a single step, but store.n is 3": replace(mbpo(), store=Transitions(n=3)),
    "the world of a planning policy, but SquashedGaussian has none": replace(pets(), policy=sac().policy),
    "learns from what its own policy drew: begin": replace(
        cartpole(), tasks=iql().tasks, store=Recordings(), engine=iql().engine
    ),
    "read what the policy wrote, and Categorical writes nothing: leave Debated out of rewards": replace(
        cartpole(), rewards=(Debated(),)
    ),
    "does not act: begin with iql": replace(iql(), policy=grpo().policy, sampling=grpo().sampling, held_out=None),
    "store.moves, and leave optimization": replace(
        iql(), update=replace(iql().update, optimization=Optimization(epochs=2))
    ),
    "has 3 observations, 1 real actions, and the policy 4": replace(iql(), policy=Gaussian(observations=4, actions=1)),
    "which the evaluation plays, 4 observations, 2 choices": replace(iql(), held_out=dqn().held_out),
}


SLOPE = DigitClass(wanted=4)


def climbing(run, steps):
    return replace(run, update=replace(run.update, steps=steps))


def adversarial(run, file, only=(), **changes):
    beside = AdversarialLoss(real=RealSamples(file=file, only=only))
    return replace(run, update=replace(run.update, adversarial=beside), **changes)


def splitting(*splits):
    return replace(branch_grpo(), workflow=FixedSplits(splits=splits))


def taught(label: int) -> PathDistillation:
    return replace(diffusion_opd().update, teachers=(Teacher(policy=Denoiser(), labels=(label,)),))


DENOISING = {  # what is refused of denoising, and of finished samples
    "sampler=flow_sde": replace(flow_grpo(), sampling=PathSampling(max_length=10, sampler="ode")),
    "no step is sampled from sampling.first=9 .*set sampling.first=0": replace(
        flow_grpo(), sampling=PathSampling(max_length=10, first=9)
    ),
    "no step is sampled .* to sampling.last=-12 of sampling.max_length=10": replace(
        flow_grpo(), sampling=PathSampling(max_length=10, last=-12)
    ),
    r"policy='Denoiser\(\)'": replace(sac(), update=diffusion_nft().update, store=Once()),
    r"no more draws than steps: set update\.draws=10, or sampling\.max_length=11": replace(
        diffusion_nft(), update=replace(diffusion_nft().update, draws=11)
    ),
    r"goes through the steps of a network.*policy='Denoiser\(\)'": replace(
        sac(), update=draft().update, store=Once(), rewards=(SLOPE,)
    ),
    r"count is 11 and late 1, and a path has 10 steps: set update\.steps\.count=10 update\.steps\.late=1": climbing(
        draft(), GradientSteps(count=11)
    ),
    "late 11, and a path has 10 steps": climbing(draft(), GradientSteps(late=11)),
    r"count is 11, and a path has 10 steps: set update\.steps\.count=10, or sampling\.max_length=11": climbing(
        draft(), CachedSteps(count=11)
    ),
    "sampler is flow_sde: set sampling.sampler=ode, or update.steps=GradientSteps": replace(
        climbing(draft(), CachedSteps()), sampling=PathSampling(max_length=10)
    ),
    "real pictures were not sampled.*correction=None": replace(next_scale_sft(), correction=TruncatedWeight()),
    r"sides of \[4, 8\].*max_length=80,threshold=0,blocks=\[16, 64\]": replace(
        next_scale_sft(), workflow=InScales(sides=(4, 8))
    ),
    "there is no file nowhere.npz of real samples": adversarial(dmd2(), "nowhere.npz"),
    r"asks for class 5, of which digits has no sample that is shown: set tasks\.labels=\[\]": adversarial(
        dmd2(), "digits", only=(4,), tasks=Conditions(labels=(5,))
    ),
    r"samples for a network that denoises: policy='Denoiser\(\)'": replace(
        sac(), update=AdversarialFlow(), store=Once()
    ),
    "update.rewards are the run's: leave them out": replace(draft(), update=replace(draft().update, rewards=(SLOPE,))),
    r"no reward of the run has a weight: reward='DigitClass": replace(draft(), rewards=(replace(SLOPE, weight=0.0),)),
    r"of 'seen' \(DigitClass\) the gradient teaches nothing: it counts votes.*set by=linear; or set its weight to 0": replace(
        draft(), rewards=(SLOPE, DigitClass(wanted=4, by="neighbours", scale="hit", name="seen"))
    ),
    r"so there is nothing to train on: .* or more steps, or sampling\.sampler=ode": replace(
        dmd2(), sampling=replace(dmd2().sampling, max_length=1)
    ),
    r"for networks that denoise: policy='Denoiser\(\)'": replace(sac(), update=dmd2().update, store=Once()),
    r"tasks.labels asks for class 12, and gimbal-digits has classes 0 to 9: set tasks.labels=\[3\]": replace(
        flow_grpo(), tasks=Conditions(labels=(12, 3))
    ),
    r"8x8 pixels in one channel, and these have 768 numbers: set reward=FILE\.py:FUNCTION, .*or rewards=\[\]": replace(
        flow_grpo(), policy=Denoiser(model="gimbal-shapes")
    ),
    r"rewards of points look at samples of two numbers .* these have 64: set reward=": replace(
        flow_grpo(), rewards=(ModeNearness(),)
    ),
    r"digits have the shape \(1, 8, 8\), .*\(2, 1, 1\): set update\.adversarial\.real\.file=FILE\.npz": replace(
        adversarial(dmd2(), "digits"), policy=Denoiser(model="gimbal-ring"), rewards=(), held_out=None
    ),
    r"update\.adversarial\.real\.only names class 12, .*: set update\.adversarial\.real\.only=\[4\], or add": adversarial(
        dmd2(), "digits", only=(4, 12)
    ),
    r"policy.guidance=3 pulls towards the class .*name classes \(tasks.labels": replace(
        flow_grpo(), policy=Denoiser(guidance=3.0)
    ),
    r"sampling.window is 50, and of sampling.max_length=10 steps 9 may be drawn .*set sampling.window=9, or 0": replace(
        dance_grpo(), sampling=replace(dance_grpo().sampling, window=50)
    ),
    r"sampling.max_length is 2000, and gimbal-digits-ddim was trained on 1000 noise levels .*max_length=1000 or less": replace(
        ddpo(), sampling=replace(ddpo().sampling, max_length=2000)
    ),
    r"update.teachers.0.labels names class 12": replace(diffusion_opd(), update=taught(12)),
    r"asks for no class, .*set tasks.labels=\[1\]": replace(diffusion_opd(), update=taught(1), tasks=Conditions()),
    r"asks for class 0, which has no teacher": replace(diffusion_opd(), update=taught(1)),
    r"update\.teacher='Denoiser\(guidance=3\)' policy\.guidance=1": replace(
        dmd2(), policy=Denoiser(guidance=3.0), tasks=Conditions(labels=(1,))
    ),
    r"update.teacher.guidance=3 pulls .*or set update.teacher.guidance=1": replace(
        dmd2(), update=replace(dmd2().update, teacher=Denoiser(guidance=3.0))
    ),
    r"steps of networks that denoise: policy='Denoiser\(\)'": replace(
        sac(), update=diffusion_opd().update, store=Once()
    ),
    r"steps of a network that denoises: policy='Denoiser\(jumps=true\)'": replace(
        sac(), update=any_flow().update, store=Once()
    ),
    "the network is not told it: set policy.jumps=true": replace(any_flow(), policy=Denoiser()),
    "begins the last of them almost without noise: set sampling.spacing=trailing": replace(
        any_flow(), sampling=PathSampling(max_length=2, sampler="ode")
    ),
    "asks it where the path ends: set sampling.sampler=ode, or policy.jumps=false": replace(
        any_flow(), sampling=dmd2().sampling
    ),
    "the span of a step enters by weights of another layer.*set policy.lora=None": replace(
        any_flow(), policy=replace(any_flow().policy, lora=LoRA(rank=2))
    ),
    "rounds of them is more than the proof of delivery allows: set engine.precision=float32": replace(
        reflective_masking(), engine=Unmasking(precision="bfloat16")
    ),
    "mean ones of whole steps: set policy.jumps=false": replace(
        draft(), policy=Denoiser(jumps=True), sampling=PathSampling(max_length=10, sampler="ode")
    ),
    "fixes it only on the ODE": replace(sol_rl(), sampling=PathSampling(max_length=10)),
    "draft is 11, more steps than a sample has": replace(sol_rl(), workflow=replace(sol_rl().workflow, draft=11)),
    "keeps 16 of a group of 16": replace(sol_rl(), num_generations=16),
    "Preselected chooses samples by their reward": replace(sol_rl(), held_out=diffusion_nft().held_out),
    r"Preselected goes by DigitClass \('log_p'\), but this run has 'other'": replace(
        sol_rl(), rewards=(replace(SLOPE, name="other"),)
    ),
    "splits denoising paths, .*workflow='Branching": replace(grpo(), workflow=FixedSplits(), held_out=None),
    "Branching splits rows by what was written.*workflow='FixedSplits": replace(branch_grpo(), workflow=Branching()),
    "the ODE and updates of finished samples do without": replace(
        diffusion_nft(), workflow=FixedSplits(), held_out=branch_grpo().held_out
    ),
    "sampling.window=6 puts it into a random window": replace(branch_grpo(), sampling=dance_grpo().sampling),
    r"before step 9, which is not sampled, .*=10 steps those from 0 to 8 are": splitting(2, 9),
    r"before step 2, which is not sampled, .*=10 steps those from 3 to 8 are": replace(
        branch_grpo(), sampling=replace(branch_grpo().sampling, first=3)
    ),
    "splits nothing in a group of 16 with splits ()": splitting(),
    "splits nothing in a group of 1 ": replace(branch_grpo(), num_generations=1, advantage=ReturnToGo()),
    "FixedSplits draws samples that share steps": replace(branch_grpo(), held_out=dance_grpo().held_out),
    "Streamed draws each block after .*which this policy does not see: .*or policy.history=true": replace(
        streams(), policy=Denoiser()
    ),
    "tells every block the class of its task, which has none: set tasks.labels": replace(
        streams(), workflow=Streamed(told="all"), tasks=Conditions()
    ),
    r"a past that they do not have when the policy is used.*held_out.workflow='Streamed\(\)'": replace(
        streams(), workflow=Streamed(past=RealSamples()), held_out=diffusion_nft().held_out
    ),
    r"and this workflow draws single samples: set workflow='Streamed\(\)', or policy.history=false": replace(
        diffusion_nft(), policy=Denoiser(history=True)
    ),
    "the block before enters by weights of another layer.*set policy.lora=None": replace(
        streams(), policy=Denoiser(history=True, lora=LoRA(rank=2))
    ),
    "these tasks show a part of a picture, which this policy does not see: .*or policy.history=true": replace(
        one_reward(), policy=Denoiser()
    ),
    "draws a rival for each sample from noise alone, .*told begin elsewhere": replace(
        one_reward(), sampling=replace(one_reward().sampling, strength=0.8)
    ),
    "begins with the picture that a task shows, and these tasks show none: .*or tasks='ShownPictures": replace(
        diffusion_nft(), sampling=PathSampling(sampler="ode", spacing="trailing", strength=0.8)
    ),
    r"RewardWeighted.saliency follows a reward of single samples, and 'judge' .*set update.weighted.saliency=false": replace(
        stream_r1(), rewards=(DigitJudge(),), held_out=None
    ),
    r"compares the samples of an episode with each other.* has one: workflow='Streamed": replace(
        diffusion_nft(), rewards=(DigitConsistency(),)
    ),
    r"RewardGradient learns from samples that follow no other.*policy.history=false": replace(
        streams(), update=draft().update, rewards=(SLOPE,)
    ),
    r"RewardWeighted weighs by a reward, and no reward of the run has a weight: reward=": replace(
        stream_r1(), rewards=(replace(SLOPE, weight=0.0),)
    ),
    r"RewardWeighted.saliency needs .*it counts votes.*or update.weighted.saliency=false": replace(
        stream_r1(), rewards=(DigitClass(by="neighbours", scale="hit"),)
    ),
    "update.rewards are the run's: leave them out, and set reward=": replace(
        dmd2(), update=replace(dmd2().update, rewards=(SLOPE,))
    ),
    r"FlowMap learns from samples that follow no other": replace(
        streams(), update=any_flow().update, policy=replace(streams().policy, jumps=True)
    ),
    "a policy gradient would count them as drawn: set workflow='Streamed": replace(
        flow_grpo(),
        policy=streams().policy,
        rewards=(DigitClass(),),
        workflow=SearchedStream(reward=DigitClass()),
        held_out=streams().held_out,
    ),
    r"AdversarialFlow learns from samples that follow no other": replace(streams(), update=AdversarialFlow()),
    "compares a step of a path with the next, and a path has one: set sampling.max_length=2": replace(
        asd(), sampling=PathSampling(max_length=1, sampler="ode", spacing="trailing")
    ),
    r"AdversarialForcing noises samples .*policy='Denoiser": replace(sac(), update=AdversarialForcing(), store=Once()),
    r"conditions of two classes, and tasks.labels has 1: set update.contrast=0, or two": replace(
        arc_forcing(), tasks=Conditions(labels=(4, 4))
    ),
    r"AdversarialLoss with real samples learns from samples that follow no other": replace(
        streams(), update=adversarial(dmd2(), "digits").update
    ),
    r"of 'format' \(Pattern\) only the score is known.*AbstractSampleReward.*gimbal train flow_grpo": replace(
        draft(), rewards=(SLOPE, Pattern(pattern="4"))
    ),
}


@pytest.mark.parametrize("said", DENOISING)
def test_what_does_not_go_with_denoising_is_refused(said):
    with pytest.raises(ValueError, match=said):
        check(DENOISING[said])
    assert (
        check(diffusion_nft())
        == check(draft())
        == check(sol_rl())
        == check(dmd2())
        == check(streams())
        == check(stream_r1())
        == check(arc_forcing())
        == check(next_scale_sft())
        == check(sar())
        == check(asd())
        == check(replace(streams(), update=asd().update))
        == check(replace(streams(), update=dmd2().update))
        == check(diffusion_opd())
        == check(any_flow())
        == check(flow_bp())
        == check(dmd2_gan())
        == []
    )
    assert check(branch_grpo()) == check(splitting(8)) == check(dance_grpo())
    assert check(replace(flow_grpo(), sampling=PathSampling(max_length=10, first=8))) == check(flow_grpo())
    measured = DigitClass(wanted=4, by="neighbours", scale="hit", name="seen", weight=0.0)
    assert check(replace(draft(), rewards=(measured, SLOPE))) == []
    plain = replace(arc_forcing().update, contrast=0.0)
    assert check(replace(arc_forcing(), update=plain, tasks=Conditions(labels=(4, 4)))) == []


@pytest.mark.parametrize("said", OFF_POLICY)
def test_what_does_not_go_with_single_decisions_is_refused(said):
    with pytest.raises(ValueError, match=said):
        check(OFF_POLICY[said])
    assert (
        check(replace(sac(), engine=Episodes(correlation=0.9)))
        == check(replace(td3(), engine=Episodes(correlation=0.9)))
        == []
    )
    assert (
        check(sac())
        == check(td3())
        == check(dqn())
        == check(iql())
        == check(bc())
        == check(diffusion_world())
        == check(persist_world())
        == check(fisor())
        == check(fql())
        == check(idql())
        == check(expo())
        == check(replace(sac(), store=Transitions(preference=Prioritized())))
        == []
    )


def test_a_flow_that_nobody_trained_is_advised_against(tmp_path):
    for untrained in (UNTRAINED, rad_2()):
        (said,) = check(untrained)
        assert "policy.flow=runs/RUN/model, of a run of idql" in said
        assert check(replace(untrained, policy=replace(untrained.policy, flow=str(tmp_path)))) == []


def test_teachers_are_named_and_not_trained():
    named = replace(TAUGHT, reference=replace(TAUGHT.reference, teachers={"runs/light/model": 0.5}))
    (said,) = set(check(TAUGHT)) - set(check(named))
    assert '''reference.teachers="{'runs/light/model':0.5,'runs/heavy/model':2}"''' in said
    with pytest.raises(ValueError, match="Teachers are asked and not trained: set reference=Teachers"):
        check(TEACHING)


def test_a_policy_that_clones_itself_is_advised_against():
    assert ["imitates what it does already" in reason for reason in check(ITSELF)] == [True]
    assert check(gcsl()) == []


def test_what_a_saved_policy_decides_is_told(tmp_path):
    run = of_saved_policy(tmp_path)
    (told,) = (verdict.reason for verdict in verdicts(run) if "stays so" in verdict.reason)
    assert (
        told
        == f"policy.model={tmp_path} was saved with hidden [8], and stays so: policy.hidden as given here changes nothing"
    )
    alike = replace(run, policy=replace(run.policy, hidden=(8,)))
    assert not any("stays so" in verdict.reason for verdict in verdicts(alike))


def test_recorded_data_that_are_wrong_are_refused_and_others_are_not(tmp_path):
    pytest.importorskip("h5py")
    for said, run in wrong_recordings.runs(tmp_path).items():
        with pytest.raises(ValueError, match=said):
            check(run)
    assert [check(run) for run in wrong_recordings.sound(tmp_path)] == [[]] * 4


def test_what_goes_by_age_is_refused_where_an_update_takes_any():
    with pytest.raises(ValueError, match="stability=None"):
        check(OF_ANY_AGE)
    assert check(replace(OF_ANY_AGE, update=replace(OF_ANY_AGE.update, stability=None))) == []


@dataclass(frozen=True, kw_only=True)
class Picky(AbstractMask):
    """A part that no file of the package knows."""

    right: str = ""
    names_rewards: ClassVar[tuple[str, ...]] = ("right",)

    def __call__(self, batch):
        return batch.mask_NS

    def fits(self, whole):
        if whole.has(Whitened):
            yield Refusal("Picky wants advantages as they are: drop Whitened")
        if whole.run.num_generations < 8:
            yield Advice("Picky learns little from small groups: num_generations=8")


def test_a_users_own_part_refuses_and_advises():
    assert check(small_run(masks=(Picky(),), **SEVERAL)) == ["Picky learns little from small groups: num_generations=8"]
    assert check(small_run(masks=(Picky(),), **{**SEVERAL, "num_generations": 8})) == []
    with pytest.raises(ValueError, match="drop Whitened"):
        check(small_run(masks=(Picky(),), shaping=(Whitened(),), **SEVERAL))
    with pytest.raises(ValueError, match="Picky reads the reward 'speed'"):
        check(small_run(masks=(Picky(right="speed"),), **SEVERAL))


def test_parts_within_parts_are_asked():
    outer = {"engine": Native(entropy=True), "workflow": Guided(others=Tempered())}
    assert [reason for reason in said(**outer) if "as if on-policy" in reason] != []


@pytest.mark.parametrize(
    "changes",
    [
        {"advantage": RewardDecoupled(rewards=("digits", "speed"), whiten="off")},
        {"advantage": Stratified(strata="score/speed")},
        {"regularisers": (RightLikelihood(right="speed"),)},
    ],
)
def test_a_reward_that_is_not_there_is_named(changes):
    with pytest.raises(ValueError, match="reads the reward 'speed'"):
        check(small_run(rewards=(Digits(),), num_generations=4, **changes))


def test_a_reward_that_is_there_is_found():
    rewards = (Digits(), Pattern(name="speed", weight=0.0))
    assert check(small_run(rewards=rewards, **SEVERAL, advantage=Stratified(strata="score/speed"))) == []


SEVERAL = {"num_generations": 4, "optimization": Optimization(minibatches=2)}


def test_a_sound_run_is_not_warned_of():
    assert check(small_run(**SEVERAL, advantage=GroupCentered(), shaping=(Whitened(),))) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"optimization": Optimization(minibatches=2)},
        {"optimization": Optimization(epochs=2)},
        {"objective": Reinforce()},
        {"objective": TurnSweep()},
        {"objective": TotalRatioWeight()},
        {"anchor": Behavior()},
        {"anchor": SamplingVersion(window=1), "max_staleness": 1},
    ],
)
def test_a_clip_that_can_act_is_not_warned_of(changes):
    run = small_run(num_generations=4)
    assert NEVER in check(run)
    assert NEVER not in check(replace(run, **changes))


def test_the_version_that_sampled_is_the_present_one_where_nothing_is_stale():
    assert NEVER in check(small_run(num_generations=4, anchor=SamplingVersion(window=1), max_staleness=0))


NEVER = next(reason for reason in said() if "the clip never acts" in reason)
