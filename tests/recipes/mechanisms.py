"""What defines each recipe: the part, what stands there without it, and the metric that shows it at work."""

from __future__ import annotations

import math
from dataclasses import replace

from parts import Mechanism, Part, above, below, differs, of, varies
from starts import (
    by_teachers,
    from_atoms,
    from_judge,
    from_lookups,
    from_tuned,
    on_a_base,
    on_a_flow,
    repeated,
    swarm,
    tuned,
    unsolved,
)
from trials import APART

from gimbal import recipes
from gimbal.advantages import GAE, GroupCentered, GroupNormalized, KLReward, ReturnToGo, Whitened
from gimbal.advantages.estimators.batch_scaled import BatchScaled
from gimbal.advantages.estimators.reward_decoupled import RewardDecoupled
from gimbal.advantages.reward_shaping.running_normalized import RunningNormalized
from gimbal.controllers import AdaptiveKL
from gimbal.controllers.delayed import Delayed
from gimbal.controllers.new_extremes import NewExtremes
from gimbal.controllers.phased_pid import PhasedPID
from gimbal.controllers.ready import Ready
from gimbal.controllers.staircase import Staircase
from gimbal.critics.actions import ActionValues
from gimbal.critics.tokens import HiddenValue
from gimbal.dataflow.budgets.fixed import Fixed
from gimbal.dataflow.budgets.token_priced import TokenPriced
from gimbal.dataflow.curricula.epochs import Epochs
from gimbal.dataflow.curricula.horizon import Horizon
from gimbal.dataflow.real_samples import RealSamples
from gimbal.dataflow.replay.corrected_plans import CorrectedPlans
from gimbal.dataflow.replay.hindsight import Hindsight
from gimbal.dataflow.replay.once import Once
from gimbal.dataflow.replay.preferences import AgeDecay
from gimbal.dataflow.replay.recent import Recent
from gimbal.dataflow.replay.recordings import Recordings
from gimbal.dataflow.replay.transitions import Transitions
from gimbal.engines.denoising import Denoising
from gimbal.engines.early_stop import EarlyStop
from gimbal.engines.native import Native
from gimbal.environments.alternating import Alternating
from gimbal.environments.choices import Choices
from gimbal.environments.chores import Chores
from gimbal.environments.conditions import Conditions
from gimbal.environments.gym import Gymnasium
from gimbal.environments.hops import Hops
from gimbal.environments.lookups import Lookups, LookupTurns, Pages
from gimbal.environments.natural_deduction import GOAL, Theorems
from gimbal.environments.proofreading import Proofreading
from gimbal.environments.reasoning import ReasoningGym
from gimbal.environments.segments import Segments
from gimbal.environments.shown_pictures import ShownPictures
from gimbal.environments.string_programs import StringPrograms
from gimbal.environments.terminal import Terminal
from gimbal.learning.renewal import RenewedReference
from gimbal.learning.updates.better_actions import BetterActions
from gimbal.learning.updates.critic_matching import CriticWeightedMatching
from gimbal.learning.updates.forward_process import AdvantageWeightedMatching
from gimbal.learning.updates.off_policy import Explore
from gimbal.learning.updates.synthetic_replay import SyntheticReplay
from gimbal.learning.updates.td3 import TD3, Imitation
from gimbal.learning.updates.world_denoising import OwnRollouts
from gimbal.objectives import ClippedRatio, ClippedStep, ClippedWeight, KLPenalty, Reinforce, ValueLoss
from gimbal.objectives.regularisers.entropy_bonus import EntropyBonus
from gimbal.objectives.regularisers.entropy_gated_kl import EntropyGatedKL
from gimbal.objectives.regularisers.entropy_smoothing import EntropySmoothing
from gimbal.objectives.regularisers.right_likelihood import RightLikelihood
from gimbal.objectives.surrogates.turn_sweep import TurnSweep
from gimbal.objectives.values.huber_value_loss import HuberValueLoss
from gimbal.objectives.values.member_value_loss import EnsembleValueLoss
from gimbal.policies.commits import MaskedSampling
from gimbal.policies.planners import MPPI
from gimbal.policies.token import CausalLM
from gimbal.recipes.papers.data.dereason_sft import ALL
from gimbal.rewards.digits import DigitDistance, DigitLikeness
from gimbal.rewards.exact import ExactAnswer
from gimbal.rewards.reasoning import ReasoningScore
from gimbal.rewards.refined_digits import Fidelity
from gimbal.rewards.shapes import ShapeAttributes
from gimbal.rewards.shown_digits import UsablePicture
from gimbal.rewards.verdict_place import VerdictAndPlace
from gimbal.runtime.run import Run
from gimbal.workflows.dialogue import Dialogue
from gimbal.workflows.in_scales import InScales
from gimbal.workflows.pruning import Pruning
from gimbal.workflows.single import SingleTurn
from gimbal.workflows.streamed import Streamed


def plain_critics(update):
    """Without the layer norm."""
    return replace(update, critic=replace(update.critic, layer_norm=False))


def unafraid(update):
    """Without pessimism."""
    return replace(update, critic=replace(update.critic, pessimism=0.0))


def painting(learning_rate=None, **fields):
    """The flow of unigrpo with these fields of its kind, or another rate."""
    own = recipes.function("unigrpo")().separate["painter"]
    rate = own.learning_rate if learning_rate is None else learning_rate
    return {"painter": replace(own, learning_rate=rate, kind=replace(own.kind, **fields))}


ADVANTAGE, GRADIENT, REWARD = differs("advantage/std"), differs("grad_norm"), differs("reward/mean")
KL = "control/regularisers.0.coef"
DULL = 10  # a seed whose first groups hold one that is all wrong, which is one in twenty
BRANCHED = recipes.function("branch_grpo")().sampling
DRIVEN = recipes.function("reflect_drive")().sampling
GIVEN = recipes.function("fast_d_drive")().sampling
UNCLIPPED = ClippedRatio(clip_low=math.inf, clip_high=math.inf)
FEW = {Transitions: {"minibatch": 32, "learning_starts": 0}}
BIASED = Imitation(alpha=20.0, better=BetterActions(reconstruction=9.0))  # a coder that learns more of the same actions
FEW_RECORDED = {Recordings: {"moves": 4, "minibatch": 32}}
FORGETFUL = replace(recipes.function("agent_brace")().workflow, believe="{prompt}<eos>{seen}")
BLIND = replace(recipes.function("skill_r1")().workflow, past="")  # of what came of earlier skills
BY_OUTCOME = replace(recipes.function("inspector")().workflow, residual=False)
FLAT = replace(recipes.function("mars2")().workflow, deepest=1)
UNEDITED = replace(recipes.function("mem_act")().workflow, edit="(never)")  # a sliding window
ONE_CONTEXT = Dialogue(tool=Pages(), answers=4, overlap=1)
GUARDED = recipes.function("ogsrl")().update
OUT_OF_BOUNDS = replace(GUARDED, guard=replace(GUARDED.guard, unsafe=""), controllers={})
THREE_TERMS = {"min_terms": 3, "max_terms": 3, "min_digits": 2, "max_digits": 2}
WHOLE_PROOFS = Segments(tasks=Theorems(size=2_000), goal=GOAL, at_goals=False)
FEW_TASKS = {ReasoningGym: {"size": 32}}  # of which a small run takes an eighth, so that they come again at once
SILENT = Dialogue(tool=Terminal(most=24), answers=0)  # the terminal that answers nothing: one turn an episode
LATE = {"optimization.learning_rate": Delayed(steps=1, after=1e-4)}
OPENING = Ready(bar=-math.inf, checks=1, steps=2)
PPO_CONTROL = of(
    "grpo",
    advantage=differs("value/loss").by(advantage=GAE(gamma=1.0, lam=1.0)),
    objective=above("clip_ratio/low").by(objective=UNCLIPPED),
    shaping=ADVANTAGE.by(shaping=()),
)


MECHANISMS: dict[str, Mechanism] = {
    "ac_flow": of(
        "diffusion_nft",
        3,
        sooner={CriticWeightedMatching: {"warm_up": 1}},
        update=above("critic/left_noisy"),
        critic=differs("critic/weight").by(update=replace(recipes.function("ac_flow")().update, warm_up=100)),
    ),
    "acre": of("grpo", prompts=4, rewards=differs("reward/consistent/mean")),
    "aepo": of("grpo", 5, prompts=4, workflow=above("imitated/cold"), shaping=above("imitated/cold")),
    "afd": of("dmd2", update=above("discriminator/loss")),
    "agent_brace": of(
        "grpo",
        workflow=differs("role/actor/reward").by(workflow=FORGETFUL),
        separate=above("grad_norm/actor"),
    ),
    "agentflow": of(
        "terminal",
        objective=above("clip_ratio/low").by(objective=UNCLIPPED),
        advantage=ADVANTAGE,
        shaping=ADVANTAGE,
        regularisers=above("kl/ref"),
    ),
    "agentfly": of("grpo", 4, prompts=8, workflow=REWARD),
    "ai_searchplanner": of("ppo", tasks=REWARD, rewards=REWARD, workflow=above("tool/calls")),
    "any_flow": of(
        "dmd2",
        update=above("flow_map/long"),
        walker=differs("flow_map/off").by(update=replace(recipes.function("any_flow")().update, walker="teacher")),
    ),
    "arc_forcing": of(
        "streams",
        update=above("discriminator/loss"),
        contrast=differs("discriminator/read").by(
            update=replace(recipes.function("arc_forcing")().update, contrast=0.0)
        ),
    ),
    "arpo": of(
        "terminal",
        4,
        start=repeated,
        store=above("replay/share"),
        correction=differs("is_weight/max"),
    ),
    "arrol": of("grpo", 4, sooner={Pruning: {"warm_up": 1}}, workflow=above("drops/rollouts/pruned")),
    "asyppo": of(
        "ppo",
        masks=below("mask/DisagreementMask"),
        regularisers=differs("entropy/policy").by(regularisers=(EnsembleValueLoss(),)),
        critic=above("value/disagreement").by(critic=HiddenValue(hidden=(64,)), masks=(), regularisers=(ValueLoss(),)),
    ),
    "asd": of("dmd2", update=above("discriminator/against")),
    "atomic_start": of("sft", tasks=GRADIENT.by(tasks=Hops(kinds=("across",)))),
    "atomic_to_composite": of("grpo", prompts=8, start=from_atoms, tasks=REWARD.by(tasks=Hops(kinds=("within",)))),
    "awm": of("diffusion_nft", 2, update=above("clip_ratio/low")),
    "bapo": of("grpo", 4, objective=varies("clip_bound/high"), anchor=differs("kl/old")),
    "bnpo": of("grpo", prompts=4, advantage=varies("beta/alpha"), aggregation=GRADIENT),
    "branched": of("grpo", workflow=differs("length/mean")),
    "capo": of("grpo", masks=below("mask/CurvatureMask").by(masks=()), optimization=differs("lr")),
    "caprl": of("grpo", rewards=REWARD, regularisers=above("kl/ref")),
    "cartpole": PPO_CONTROL,
    "cartpole_horizons": of(
        "cartpole",
        advantage=GRADIENT,  # the advantages are whitened
        regularisers__critic=differs("value/loss").by(
            regularisers=recipes.function("cartpole")().regularisers, critic=recipes.function("cartpole")().critic
        ),
    ),
    "ce_rm": of(
        "grpo", prompts=4, workflow=differs("reward/condition/mean"), advantage=ADVANTAGE, regularisers=above("kl/ref")
    ),
    "cispo": of("grpo", objective=above("clip_ratio/high").by(objective=ClippedWeight(clip_high=math.inf))),
    "clip_cov": of("grpo", masks=below("mask/CovarianceMask")),
    "clip_higher": of("grpo", objective=above("clip_ratio/high")),
    "codev_r1": of("dapo", 3, prompts=16, controllers=varies("control/oversampling")),
    "coda": of(
        "grpo",
        3,
        rewards=differs("reward/mean").by(rewards=(replace(recipes.function("coda")().rewards[0], form_weight=0.0),)),
        regularisers=above("kl/ref"),
    ),
    "coda_peco": of(
        "grpo",
        3,
        start=from_lookups,
        workflow=differs("role/executor/reward").by(workflow=ONE_CONTEXT, tasks=Lookups()),
    ),
    "coda_start": of("sft", tasks=GRADIENT.by(tasks=LookupTurns(slips=0.0))),
    "complementary_rl": of(
        "grpo",
        3,
        prompts=16,
        workflow=differs("role/guided/reward").by(workflow=SingleTurn(), separate={}, advantage=GroupNormalized()),
        advantage=ADVANTAGE,
        separate=above("grad_norm/extractor"),
    ),
    "dapo": of(
        "grpo",
        prompts=16,
        objective=differs("clip_ratio/high"),
        aggregation=GRADIENT,
        filters=above("drops/zero_variance"),
        rewards=below("reward/overlong/mean", 0.0),
    ),
    "dart": of(
        "terminal",
        4,
        start=repeated,
        store=above("replay/share"),
        masks=below("mask/StepEntropy"),
        correction=differs("is_weight/max"),
        regularisers=above("kl/ref"),
    ),
    "dars": of(
        "grpo",
        3,
        budget=above("budget/Deepened/largest", 8.0),
        advantage=ADVANTAGE,
        filters=above("drops/zero_variance"),
    ),
    "dars_b": of("dars", optimization=above("clip_ratio/low")),
    "dcmdp": of(
        "grpo",
        4,
        shaping=ADVANTAGE.by(shaping=(), controllers={}),
        controllers=varies("control/shaping.0.strength").exactly(),
        anchor=differs("mismatch/prob_diff"),
    ),
    "debate": of("grpo", rewards=REWARD),
    "ddpo": of(
        "flow_grpo",
        2,
        objective=above("clip_ratio/low").by(objective=ClippedStep(clip_low=math.inf, clip_high=math.inf)),
        advantage=ADVANTAGE,
        policy__sampling=differs("reward/mean"),
    ),
    "decoupled_ppo": of(
        "grpo", 6, objective=above("clip_ratio/low").by(objective=UNCLIPPED), correction=differs("is_weight/max")
    ),
    "decs": of(
        "grpo",
        4,
        prompts=16,
        advantage=above("redundant_frac"),
        curriculum__filters=above("drops/all_wrong"),
    ),
    "degrpo": of("grpo", aggregation=GRADIENT, filters=GRADIENT, regularisers=above("kl/ref")),
    "demo": of(
        "grpo",
        prompts=4,
        seed=DULL,
        correction=differs("is_weight/max"),
        aggregation=GRADIENT,
        filters=above("drops/zero_variance"),
    ),
    # On text what is DePO's own, a clip and a mean of latents, has nothing to act on: no policy here draws any.
    "depo": of("gspo", objective=differs("clip_ratio/low"), aggregation=GRADIENT),
    "dereason": of("grpo", prompts=16, tasks=differs("length/mean")),
    "dereason_sft": of("grpo", objective=GRADIENT, tasks=differs("length/mean").by(tasks=ALL)),
    "descore": of(
        "grpo",
        4,
        prompts=4,
        start=from_judge,
        reward_shaping=varies("rank/right"),
        regularisers=varies("rank/accuracy"),
    ),
    "difficulty_bands": of("grpo", 4, sooner=FEW_TASKS, curriculum=above("curriculum/Banded/band_0")),
    "dance_grpo": of(
        "flow_grpo",
        sampling=differs("mismatch/logp_diff_max"),
        advantage=ADVANTAGE,
    ),
    "branch_grpo": of(
        "dance_grpo",
        workflow=above("rows/shared_frac").by(workflow=SingleTurn()),
        advantage=ADVANTAGE,
        sampling=differs("mismatch/logp_diff_max").by(sampling=replace(BRANCHED, same_start=False)),
    ),
    "diffusion_dpo": of("awm", 2, update=above("dpo/margin")),
    "diffusion_opd": of("dmd2", update=above("distil/teacher_0")),
    "dmd2": of("diffusion_opd", update=above("matching/apart")),
    "dmd2_gan": of("dmd2", update=above("discriminator/against")),
    "diffusion_nft": of(
        "flow_grpo",
        2,
        update=above("nft/decay").by(
            update=AdvantageWeightedMatching(
                draws=8, optimization=recipes.function("diffusion_nft")().update.optimization
            )
        ),
        sampling=REWARD.by(sampling=recipes.function("flow_grpo")().sampling),
    ),
    "direct_advantage": of(
        "dpo", objective=varies("regression/error"), tasks=differs("length/mean").by(tasks=Choices(count=4))
    ),
    "draft": of("awm", 2, update=above("reward_gradient/slope")),
    "drtune": of("draft", 3, update=above("reward_gradient/left")),
    "dispo": of("gspo", objective=above("clip_ratio/low"), aggregation=GRADIENT),
    "doge": of("grpo", tasks=REWARD, rewards=REWARD),
    "doge_apply": of("grpo", rewards=REWARD, objective=differs("clip_ratio/high")),
    "dpo": of("grpo", objective=varies("pair/accuracy")),
    "dps": of("grpo", 4, sooner=FEW_TASKS, curriculum=varies("curriculum/StatePredicted/score")),
    "dr_grpo": of("grpo", advantage=ADVANTAGE, aggregation=GRADIENT),
    "cql": of(
        "sac",
        2,
        sooner=FEW_RECORDED,
        store=differs("q/mean").by(store=Once()),
        update=above("q/gap", -100.0).by(update=replace(recipes.function("cql")().update, conservative=None)),
    ),
    "daert": of(
        "dqn",
        3,
        sooner=FEW,
        chance=differs("q/target").by(update=replace(recipes.function("daert")().update, chance=0.0)),
        value_temperature=differs("entropy/sampled").by(
            policy=replace(recipes.function("daert")().policy, value_temperature=0.0)
        ),
    ),
    "dqn": of(
        "sac",
        3,
        sooner=FEW,
        store=differs("q/mean").by(store=Once()),
        policy__update=differs("q/target").by(update=replace(recipes.function("dqn")().update, double=False)),
        scale=differs("q/mean").by(policy=replace(recipes.function("dqn")().policy, scale=1.0)),
    ),
    "per": of("dqn", 3, sooner=FEW, store=below("replay/importance").by(store=recipes.function("dqn")().store)),
    "drpo": of("grpo", objective=varies("contrast/share"), regularisers=above("kl/anchor")),
    "duet": of("grpo", 3, prompts=8, sooner={TokenPriced: {"tokens": 1000}}, budget=varies("budget/TokenPriced/price")),
    "duet_aborts": of(
        "duet",
        3,
        prompts=8,
        workflow__advantage=above("drops/rollouts/aborted"),
        advantage=ADVANTAGE.by(advantage=GroupNormalized()),
    ),
    "echo": of("terminal", regularisers=above("nll/observation"), aggregation=GRADIENT),
    "echo_ttrl": of("ttrl", prompts=2, start=unsolved, workflow=above("drops/rollouts/pruned")),
    "entropy": of("grpo", regularisers=above("entropy/policy")),
    "epo": of(
        "terminal",
        4,
        regularisers=above("entropy/price").by(regularisers=(), controllers={}),
        controllers=varies("control/regularisers.0.smoothing").exactly(),
        turns=differs("entropy/turn_1").by(regularisers=(EntropySmoothing(),)),
    ),
    "exact_proximal": of("ppo_ewma", anchor=differs("kl/old")),
    "flow_grpo": of(
        "grpo",
        2,
        objective=above("clip_ratio/high").by(objective=ClippedStep(clip_low=math.inf, clip_high=math.inf)),
        regularisers=above("kl/ref"),
        advantage=ADVANTAGE.by(advantage=GroupNormalized()),
        engine=differs("mismatch/k3").by(engine=Denoising()),
    ),
    "fapo": of(
        "grpo",
        prompts=4,
        rewards=above("reward/flawed/mean"),
        objective=above("clip_ratio/high"),
        aggregation=GRADIENT,
    ),
    "gardo": of(
        "flow_grpo",
        4,
        # Of eight samples a minibatch a tenth more is the same one.
        sooner={RenewedReference: {"limit": 1e-4}, NewExtremes: {"up": 5.0, "high": 0.9, "window": 1}},
        advantage=ADVANTAGE,
        shaping=ADVANTAGE,
        regularisers__controllers=above("gate/frac"),
        controllers=varies("control/regularisers.0.share").by(controllers={}),
        renewal=differs("kl/ref"),
    ),
    "gdpo": of("grpo", advantage=ADVANTAGE),
    "gdro": of("awm", 2, update=above("gdro/spread")),
    "gdpo_sr": of(
        "diffusion_dpo",
        sampling=differs("reward/psnr/mean").by(
            sampling=replace(recipes.function("gdpo_sr")().sampling, strength=1.0, told=0.0)
        ),
        rewards=differs("dpo/margin").by(rewards=(Fidelity(weight=1.0),)),
        advantage=differs("dpo/margin").by(
            update=replace(recipes.function("gdpo_sr")().update, advantage=BatchScaled(limit=5.0))
        ),
    ),
    "gflownet": of(
        "tba",
        3,
        objective=varies("balance/error").by(objective=Reinforce()),
        tasks=REWARD.by(tasks=Gymnasium(environment="gimbal.environments.hypergrid:Hypergrid", seed=1)),
        store=above("replay/share").by(store=Once()),
    ),
    "ghpo": of("grpo", curriculum__filters=above("drops/hinted")),
    "gndm": of("dmd2", update=differs("loss")),
    "greso": of(
        "grpo",
        5,
        sooner=FEW_TASKS,
        curriculum=above("curriculum/Skipping/skipped"),
        filters=above("drops/zero_variance"),
    ),
    "grpo": of(
        "grpo",
        advantage=ADVANTAGE.by(advantage=ReturnToGo()),
        max_staleness=above("staleness/max").by(max_staleness=0),
        engine=above("mismatch/prob_diff").by(engine=Native(slots=128)),
    ),
    "grpo_guard": of("flow_grpo", objective=above("clip_ratio/high")),
    "gspo": of("grpo", objective=above("clip_ratio/high"), optimization=above("clip_ratio/high")),
    "gtr": of(
        "gspo",
        3,
        sooner={Alternating: {"period": 8}},
        objective=above("trust/price"),
        anchor=differs("trust/price"),
        tasks=REWARD,
    ),
    "hc_rlhf": of(
        "rloo",
        reward_shaping=above("cost/upper").by(reward_shaping=(KLReward(coef=1e-3),), controllers={}),
        controllers=varies("control/reward_shaping.1.multiplier"),
    ),
    "hdpo": of(
        "grpo",
        prompts=8,
        objective=above("economy/qualified").by(objective=ClippedRatio()),
        optimization=above("clip_ratio/low"),
        workflow=above("tool/calls"),
    ),
    "ic_grpo": of("grpo", reward_shaping=ADVANTAGE),
    "icepop": of("grpo", prompts=4, correction=above("is_weight/masked_frac")),
    "inspector": of("grpo", workflow=REWARD.by(workflow=BY_OUTCOME)),
    "ipa": of(
        "terminal",
        5,
        advantage=ADVANTAGE,
        shaping=ADVANTAGE,
        masks=below("mask/DiscrepancyBand"),
        objective=below("taper").by(objective=Reinforce()),
        anchor=differs("taper"),
    ),
    "kimi_length": of(
        "grpo",
        2,
        sooner={Delayed: {"steps": 1}},
        reward_shaping=above("length/penalised_right").by(reward_shaping=(), controllers={}),
    ),
    "kl_adaptive": of(
        "grpo", 4, regularisers=above("kl/ref").by(regularisers=(), controllers={}), controllers=varies(KL)
    ),
    "kl_cov": of("grpo", objective=above("covariance/held"), aggregation=GRADIENT),
    "kl_reward": of("grpo", prompts=4, reward_shaping=ADVANTAGE),
    "kl_smoothed": of(
        "kl_adaptive",
        4,
        controllers=varies(KL).by(controllers={"regularisers.0.coef": AdaptiveKL(target=0.05, gain=1.0)}),
    ),
    "kuhn": of(
        "grpo",
        4,
        prompts=12,
        advantage=ADVANTAGE.by(advantage=GroupCentered()),
        regularisers=above("kl/ref").by(regularisers=(), reference_rate=0.0),
        reference_rate=differs("kl/ref"),
        policy=differs("reward/mean").by(policy=CausalLM(fresh=True)),
    ),
    "latr": of("grpo", 3, workflow=differs("length/mean"), regularisers=above("kl/ref")),
    "leduc": of(
        "kuhn",
        4,
        prompts=12,
        policy=differs("reward/mean"),
        regularisers=differs("kl/ref"),
        reference_rate=differs("kl/ref"),
        tasks__workflow=differs("reward/mean"),
    ),
    "lightning_rl": of(
        "masked_grpo",
        prompts=8,
        speed=ADVANTAGE.by(advantage=RewardDecoupled(rewards=("right",), ddof=0)),
        advantage=ADVANTAGE,
        filters=above("drops/no_trade_off"),
        anchored=above("nll/right").by(regularisers=(KLPenalty(coef=0.01),)),
        regularisers=above("kl/ref").by(regularisers=(RightLikelihood(right="right"),)),
    ),
    "lintseq": of("sft", tasks=differs("length/mean").by(tasks=StringPrograms(size=2_000))),
    "lite_ppo": of("grpo", advantage=ADVANTAGE, aggregation=GRADIENT),
    "mars2": of(
        "grpo",
        3,
        workflow=above("reward/before/mean").by(workflow=FLAT),
        advantage=GRADIENT,
        regularisers=above("entropy/policy"),
        separate=above("grad_norm/second"),
    ),
    "masked_grpo": of(
        "grpo",
        prompts=8,
        sampling=differs("reward/speed/mean").by(sampling=MaskedSampling(max_length=16, threshold=0.9)),
        advantage=ADVANTAGE.by(advantage=GroupCentered()),
    ),
    "mc_grpo": of(
        "grpo",
        advantage=ADVANTAGE.by(advantage=GroupNormalized(), masks=()),
        masks=below("mask/PivotMask"),
        optimization=above("clip_ratio/low"),
    ),
    "mem_act": of("grpo", workflow=above("rows/broken_frac", 0.5).by(workflow=UNEDITED)),
    "mhpo": of("gspo", objective=below("hazard/weight")),
    "minirl": of("gspo", objective=above("clip_ratio/low"), advantage=ADVANTAGE, aggregation=GRADIENT),
    "mssr": of(
        "grpo",
        4,
        advantage__shaping=ADVANTAGE,
        curriculum=varies("reward/expected/mean"),
        shaping=ADVANTAGE.by(shaping=(Whitened(),)),
    ),
    "next_scale": of(
        "masked_grpo",
        sampling=GRADIENT.by(sampling=replace(recipes.function("next_scale")().sampling, blocks=(20, 64))),
        regularisers=differs("kl/ref").by(regularisers=()),
    ),
    "next_scale_sft": of(
        "next_scale",
        workflow__sampling=differs("length/mean").by(
            workflow=InScales(sides=(4, 8)), sampling=MaskedSampling(max_length=80, threshold=0.0, blocks=(16, 64))
        ),
    ),
    "nsr": of("w_reinforce", advantage=ADVANTAGE),
    "omniverifier_m1": of(
        "grpo",
        3,
        prompts=4,
        start=from_judge,
        tasks=differs("reward/place/mean").by(tasks=Proofreading()),
        rewards=REWARD.by(rewards=(VerdictAndPlace(),)),
        objective=above("clip_ratio/high").by(objective=UNCLIPPED),
        aggregation=GRADIENT,
    ),
    "otr": of("dpo", objective=varies("rollout/hit")),
    "one_reward": of(
        "refl",
        tasks=differs("reward/usable/mean").by(tasks=ShownPictures(kinds=("fill",), seed=1)),
        rewards=differs("reward_gradient/score").by(rewards=(UsablePicture(weight=0.0), DigitDistance(weight=-1.0))),
        update=above("reward_gradient/score").by(update=recipes.function("diffusion_nft")().update),
    ),
    "opd": of(
        "grpo",
        advantage__reference=above("distillation/kl"),
        correction=differs("is_weight/max"),
        aggregation=GRADIENT,
    ),
    "paced": of("grpo", 4, sooner=FEW_TASKS, curriculum=varies("curriculum/Frontier/score")),
    "paced_opd": of("opd", 4, sooner=FEW_TASKS, curriculum=varies("curriculum/Frontier/score")),
    "paco_pairs": of("streams", rewards=above("reward/same/mean", 0.5)),
    "paco_resolution": of("next_scale", sampling=differs("length/mean")),
    "paco_grpo": of("grpo", reward_shaping=above("tamed/reasoning")),
    "pendulum": PPO_CONTROL,
    "spread": PPO_CONTROL,
    "perlad": of(
        "cartpole",
        tasks=REWARD.by(tasks=Gymnasium(environment="gimbal.environments.merging:Merging@reacts=0", seed=1)),
        logs=REWARD.by(tasks=Gymnasium(environment="gimbal.environments.merging:Merging@logs=0", seed=1)),
        objective=above("clip_ratio/low").by(objective=UNCLIPPED),
    ),
    "poise": of("grpo", 4, advantage__critic__controllers=varies("baseline/explained")),
    "policy_cliff": of("grpo", rewards__reward_shaping=above("cliff/tied"), regularisers=above("entropy/policy")),
    "policy_rollout": of("grpo", prompts=4, workflow=above("role/aware/reward").by(workflow=SingleTurn())),
    "polychromic": of("grpo", advantage=ADVANTAGE),
    "ppo": of(
        "grpo",
        advantage=differs("value/loss").by(advantage=GAE(gamma=1.0, lam=1.0)),
        objective=above("clip_ratio/low").by(objective=UNCLIPPED),
    ),
    "ppo_ewma": of("grpo", 6, anchor=differs("kl/old"), correction=differs("is_weight/masked_frac")),
    "ppo_max": of(
        "ppo",
        3,
        prompts=8,
        sooner={Delayed: {"steps": 1}},
        rewards=below("reward/overlong/mean", 0.0).by(rewards=(ReasoningScore(weight=5.0),)),
        normalised=varies("reward_moment/std").by(reward_shaping=(KLReward(coef=0.05),)),
        reward_shaping=differs("value/loss").by(reward_shaping=(RunningNormalized(),)),
        critic=differs("value/loss"),
        controllers=varies("lr").by(controllers={}),
    ),
    "proofreading_start": of("sft", tasks=differs("length/mean")),
    "prompt_gdro": of(
        "grpo", 4, sooner=FEW_TASKS, curriculum__rewards__shaping=above("curriculum/Adversarial/largest", 1.0)
    ),
    "prorag": of("terminal", shaping=ADVANTAGE),
    "r2vpo": of(
        "gspo",
        objective=above("ratio/variance").by(objective=UNCLIPPED, controllers={}),
        controllers=varies("control/objective.strength"),
    ),
    "r3l": of(
        "grpo",
        prompts=4,
        seed=DULL,
        workflow=differs("length/mean"),
        shaping=ADVANTAGE,
        filters=above("drops/zero_variance"),
    ),
    "reflective_masking": of(
        "masked_grpo",
        prompts=8,
        sampling=above("reward/remasked/mean").by(
            sampling=replace(recipes.function("reflective_masking")().sampling, reviews=0)
        ),
    ),
    "reflect_drive": of(
        "masked_grpo",
        prompts=8,
        sampling=above("reward/remasked/mean").by(sampling=replace(DRIVEN, reviews=0, in_place=False)),
        in_place=differs("reward/speed/mean").by(sampling=replace(DRIVEN, in_place=False)),
    ),
    "fast_d_drive": of(
        "reflect_drive", prompts=8, sampling=differs("reward/route/mean").by(sampling=replace(GIVEN, scaffold=""))
    ),
    "edit_r2": of("streams", filters=above("drops/decisions/Unspoilt")),
    "flow_bp": of("draft", update=GRADIENT),
    "refl": of("draft", update=below("reward_gradient/steps", 1.5)),
    "reinforce": of("grpo", shaping=ADVANTAGE, correction=differs("is_weight/max")),
    "reinforce_plus_plus": of("grpo", prompts=32, shaping=ADVANTAGE, regularisers=above("kl/ref")),
    "rejuvenation": Mechanism(
        (
            Part(
                "policy",
                lambda run: replace(run, policy=CausalLM(model=tuned())),
                GRADIENT.metric,
                GRADIENT.moves,
                APART,
            ),
        ),
        start=from_tuned,
    ),
    "rema": of(
        "grpo",
        prompts=16,
        workflow=differs("role/executor/reward").by(workflow=SingleTurn(), separate={}),
        separate=above("grad_norm/executor"),
    ),
    "remix": of(
        "grpo",
        5,
        prompts=2,
        sooner={Staircase: {"begin": 2, "every": 1}, Run: {"reference_resets": (3,)}, Recent: {"until": 3}},
        store=above("replay/share"),
        objective=varies("clip_centre"),
        regularisers=above("kl/ref").by(regularisers=(), controllers={}),
        controllers=varies("control/regularisers.0.mix").exactly(),
        reference_resets=differs("kl/ref"),
    ),
    "resrl": of("grpo", shaping=ADVANTAGE),
    "retiring": of(
        "grpo",
        5,
        prompts=8,
        sooner={ReasoningGym: {"size": 32, "parameters": THREE_TERMS}, Run: {"num_generations": 2}},
        curriculum=above("curriculum/Retiring/resting"),
    ),
    "residual": of(
        "td3",
        4,
        sooner={**FEW, TD3: {"burn_in": 4}},
        start=on_a_base,
        policy=above("residual/size").by(policy=recipes.function("td3")().policy),
        base=above("residual/size").by(policy=recipes.function("residual")().policy),
        update=differs("residual/size").by(update=replace(recipes.function("residual")().update, burn_in=0)),
    ),
    "intermimic": of(
        "pendulum",
        4,
        sooner={Ready: {"bar": -math.inf, "checks": 1, "steps": 2}},
        start=by_teachers,
        reference=above("teacher/error").by(reference=recipes.function("intermimic")().reference),
        regularisers=above("teacher/error").by(
            regularisers=recipes.function("pendulum")().regularisers, controllers={"shaping.1.factor": OPENING}
        ),
        controllers=varies("control/shaping.1.factor").by(controllers={}),
        fading=varies("control/regularisers.1.coef").by(controllers={"shaping.1.factor": OPENING}),
    ),
    "korr": of(
        "residual",
        4,
        sooner={**FEW, TD3: {"burn_in": 4}},
        start=on_a_base,
        policy=above("foresight/error").by(policy=on_a_base(recipes.function("residual")()).policy),
    ),
    "revisor": of("grpo", rewards=REWARD),
    "rloo": of("grpo", prompts=4, advantage=ADVANTAGE, aggregation=GRADIENT),
    "rollout_gdro": of("grpo", 4, sooner=FEW_TASKS, budget=above("budget/ShadowPriced/largest", 8.0)),
    "routing_replay": of("cartpole", policy=GRADIENT, objective=GRADIENT, engine=above("mismatch/prob_diff")),
    "pets": of(
        "sac",
        3,
        sooner={**FEW, MPPI: {"candidates": 8, "horizon": 4}},
        policy=differs("reward/mean").by(policy=replace(recipes.function("pets")().policy, planner=MPPI(candidates=1))),
        store=differs("world/loss").by(
            store=Transitions(capacity=10, minibatch=32, update_to_data=2.0, learning_starts=0)
        ),
    ),
    "own_rollouts": of(
        "pets",
        3,
        sooner={**FEW, MPPI: {"candidates": 8, "horizon": 4}},
        store=above("world/path", 1.0).by(store=replace(recipes.function("pets")().store, **FEW[Transitions])),
    ),
    "world": of(
        "bc",
        2,
        sooner={**FEW_RECORDED, MPPI: {"candidates": 8, "horizon": 4}},
        policy__update=above("world/loss", -100.0),
    ),
    "diffusion_world": of(
        "world",
        2,
        sooner={**FEW_RECORDED, MPPI: {"candidates": 4, "horizon": 2}},
        policy__update=below("world/loss", 100.0),
    ),
    "persist_world": of(
        "diffusion_world",
        2,
        sooner={**FEW_RECORDED, MPPI: {"candidates": 4, "horizon": 2}},
        # Counts of steps are among the weights, beside which what four moves do is small.
        store__update=above("own/apart")
        .exactly()
        .by(
            store=replace(recipes.function("diffusion_world")().store, **FEW_RECORDED[Recordings]),
            update=recipes.function("diffusion_world")().update,
        ),
        spread=differs("own/loss")
        .exactly()
        .by(update=replace(recipes.function("persist_world")().update, own=OwnRollouts(spread=0.0))),
    ),
    "pde_refiner": of(
        "pets",
        3,
        sooner={**FEW, MPPI: {"candidates": 8, "horizon": 4}},
        policy=above("world/refinement").by(policy=recipes.function("pets")().policy),
    ),
    "mbpo": of(
        "sac",
        3,
        sooner={Transitions: {"minibatch": 32, "learning_starts": 0, "update_to_data": 1.0}},
        update=above("imagined/share").by(update=recipes.function("sac")().update),
    ),
    "stac": of(
        "sac",
        3,
        sooner=FEW,
        pessimism=differs("q/target").by(update=unafraid(recipes.function("stac")().update)),
        critic=above("q/deviation").by(
            update=replace(recipes.function("stac")().update, critic=ActionValues(observations=2, actions=2))
        ),
    ),
    "ppo_lagrangian": of(
        "pendulum",
        3,
        reward_shaping=above("cost/step").by(reward_shaping=(), controllers={}),
        controllers=varies("control/reward_shaping.0.multiplier").by(controllers={}),
    ),
    "sac_lagrangian": of(
        "sac",
        3,
        sooner=FEW,
        update=differs("q/target").by(
            update=replace(recipes.function("sac_lagrangian")().update, price=None, controllers={})
        ),
        controllers=varies("control/price.multiplier").by(
            update=replace(recipes.function("sac_lagrangian")().update, controllers={})
        ),
    ),
    "h_infinity": of(
        "pendulum",
        3,
        update=differs("excess/mean").by(update=replace(recipes.function("h_infinity")().update, attenuation=0.0)),
        multiplier=above("control/multiplier").by(
            update=replace(recipes.function("h_infinity")().update, controllers={})
        ),
    ),
    "ogsrl": of(
        "fisor",
        2,
        sooner=FEW_RECORDED,
        guard=above("guard/outside").by(update=replace(GUARDED, guard=None, controllers={})),
        limit=above("guard/unsafe").by(update=OUT_OF_BOUNDS),
    ),
    "her": of(
        "sac",
        2,
        sooner=FEW,
        store=above("replay/relabelled").by(
            store=replace(recipes.function("her")().store, hindsight=None, **FEW[Transitions])
        ),
        strategy=differs("replay/relabelled").by(
            store=replace(recipes.function("her")().store, hindsight=Hindsight(strategy="final"), **FEW[Transitions])
        ),
    ),
    "gcsl": of(
        "her",
        2,
        sooner=FEW,
        update=differs("loss"),
        store=above("replay/relabelled").by(
            store=replace(recipes.function("her")().store, hindsight=None, **FEW[Transitions])
        ),
        goals=differs("replay/relabelled").by(
            store=replace(recipes.function("her")().store, hindsight=Hindsight(goals=1), **FEW[Transitions])
        ),
    ),
    "rad_2": of(
        "perlad",
        4,
        policy=differs("entropy/policy").by(policy=replace(recipes.function("rad_2")().policy, proposals=2)),
        tasks=REWARD.by(tasks=Gymnasium(environment="gimbal.environments.merging_plans:MergingPlans@latch=1", seed=1)),
        advantage=ADVANTAGE.by(advantage=GroupCentered()),
        objective=above("clip_ratio/low").by(objective=UNCLIPPED),
    ),
    "rad_2_flow": of(
        "idql",
        1,
        sooner=FEW_RECORDED,
        store=above("replay/corrected").by(
            store=replace(recipes.function("rad_2_flow")().store, corrections=None, **FEW_RECORDED[Recordings])
        ),
        factors=above("replay/corrected").by(
            store=replace(
                recipes.function("rad_2_flow")().store,
                corrections=CorrectedPlans(factors=()),
                **FEW_RECORDED[Recordings],
            )
        ),
    ),
    "rlpd": of(
        "sac",
        3,
        sooner=FEW,
        store=above("replay/prior").by(store=replace(recipes.function("rlpd")().store, share=0.0)),
        update=differs("q/target").by(update=replace(recipes.function("rlpd")().update, subset=0)),
        critic=differs("q/mean").by(update=plain_critics(recipes.function("rlpd")().update)),
    ),
    "sac": of(
        "grpo",
        3,
        sooner=FEW,
        store=differs("q/mean").by(store=Once()),
        update=varies("alpha").by(update=replace(recipes.function("sac")().update, tune=False)),
    ),
    "iql": of(
        "sac",
        2,
        sooner=FEW_RECORDED,
        store=differs("q/mean").by(store=Once()),
        expectile=differs("value/loss").by(update=replace(recipes.function("iql")().update, expectile=0.5)),
        update=differs("weight/mean").by(update=replace(recipes.function("iql")().update, beta=0.0)),
    ),
    "sequoia": of(
        "sac",
        4,
        sooner={Transitions: {"minibatch": 16, "learning_starts": 0}},
        gamma=above("program/solved").by(update=replace(recipes.function("sequoia")().update, gamma=0.0)),
        explore=differs("explore").by(
            update=replace(recipes.function("sequoia")().update, explore=Explore(first=1.0, last=1.0))
        ),
    ),
    "famo2o": of(
        "iql",
        2,
        sooner=FEW_RECORDED,
        update=above("balance/spread")
        .by(policy=recipes.function("iql")().policy, update=recipes.function("iql")().update)
        .exactly(),
        policy=above("balance/spread").by(policy=replace(recipes.function("famo2o")().policy, low=1.0, high=1.0)),
    ),
    "bisimulation": of(
        "iql",
        2,
        sooner=FEW_RECORDED,
        weight=above("bisimulation/loss")
        .by(update=replace(recipes.function("bisimulation")().update, weight=0.0))
        .exactly(),
    ),
    "fisor": of(
        "sac",
        2,
        sooner=FEW_RECORDED,
        store=differs("q/mean").by(store=Recordings(moves=8, minibatch=32)),
        safe_expectile=differs("danger_value/loss").by(
            update=replace(recipes.function("fisor")().update, safe_expectile=0.5)
        ),
        update=differs("weight/mean").by(update=replace(recipes.function("fisor")().update, beta=0.0, escape=0.0)),
    ),
    "shapes": of(
        "diffusion_nft",
        tasks=REWARD.by(tasks=Conditions(labels=(8,), seed=1)),
        rewards=differs("reward/shape/mean").by(rewards=(ShapeAttributes(only=("colour",)),)),
    ),
    "simba": of(
        "sac",
        3,
        sooner=FEW,
        policy=differs("loss").by(policy=recipes.function("sac")().policy),
        update=differs("q/mean").by(update=recipes.function("sac")().update),
    ),
    "swd": of(
        "sac",
        3,
        sooner={**FEW, AgeDecay: {"span": 20.0}},
        store=differs("q/mean").by(store=replace(recipes.function("sac")().store, **FEW[Transitions])),
    ),
    "idql": of(
        "iql",
        2,
        sooner=FEW_RECORDED,
        store=differs("q/mean").by(store=Once()),
        expectile=differs("value/loss").by(update=replace(recipes.function("idql")().update, expectile=0.5)),
        # What scores the proposals acts in evaluations alone; the flow is what the policy's weights are.
        policy__update=differs("flow/loss"),
    ),
    "expo": of(
        "rlpd",
        3,
        sooner=FEW,
        proposals=differs("proposals/gain").by(policy=replace(recipes.function("expo")().policy, proposals=1)),
        edit=above("proposals/edited").by(policy=replace(recipes.function("expo")().policy, edit=0.0)),
        update=differs("q/target").by(update=replace(recipes.function("expo")().update, subset=0)),
        policy__update=differs("flow/loss"),
    ),
    "dsrl": of(
        "sac",
        3,
        sooner=FEW,
        policy=above("steer/size").by(policy=replace(recipes.function("dsrl")().policy, reach=1e-3)),
        update=above("latent/error").by(update=replace(recipes.function("dsrl")().update, gamma=0.0)),
        policy__update=above("steer/size"),
    ),
    "serl": of(
        "rlpd",
        3,
        sooner=FEW,
        update=differs("q/target").by(update=recipes.function("serl")().update.inside),
        online=differs("classifier/failure").by(update=replace(recipes.function("serl")().update, online=0.0)),
        store=above("replay/prior").by(store=replace(recipes.function("serl")().store, share=0.0, **FEW[Transitions])),
    ),
    "there_and_back": of(
        "her",
        3,
        sooner=FEW,
        tasks=differs("q/mean").by(
            tasks=Gymnasium(environment="gimbal.environments.there_and_back:docking_resets", seed=1)
        ),
        store=above("replay/relabelled").by(
            store=replace(recipes.function("her")().store, hindsight=None, **FEW[Transitions])
        ),
    ),
    "least": of(
        "sac",
        8,
        seed=1,
        sooner={**FEW, EarlyStop: {"warmup": 0, "after": 1, "fewest": 1, "spared": 0.0, "coefficient": 1.0}},
        start=lambda run: replace(run, sampling=replace(run.sampling, max_length=10)),
        early_stop=above("reward/stopped/mean").by(engine=replace(recipes.function("least")().engine, early_stop=None)),
    ),
    "bresa": of(
        "sac",
        3,
        sooner=FEW,
        start=lambda run: replace(run, policy=replace(run.policy, tolerated=0.01)),  # the first risk is .018
        tolerated=above("reflex/share").by(policy=replace(recipes.function("bresa")().policy, tolerated=1.0)),
        foresight=differs("risk/target").by(update=replace(recipes.function("bresa")().update, foresight=0.0)),
        policy__update__tasks=above("reflex/share"),
    ),
    "trajectory_diffuser": of(
        "bc",
        2,
        policy__update__store=above("plan/noise"),
        expectile=differs("plan/aim")
        .by(update=replace(recipes.function("trajectory_diffuser")().update, expectile=0.5))
        .exactly(),
        horizon=differs("plan/steps").by(policy=replace(recipes.function("trajectory_diffuser")().policy, horizon=1)),
    ),
    "gorl": of(
        "pendulum",
        2,
        start=on_a_flow,
        policy=differs("reward/mean").by(policy=recipes.function("gorl")().policy),
        regularisers=above("kl/ref"),
    ),
    "coflow": of(
        "bc",
        2,
        sooner=FEW_RECORDED,
        coupled=above("flow/coupling").by(policy=replace(recipes.function("coflow")().policy, coupled=False)),
        averaged=differs("loss").by(policy=replace(recipes.function("coflow")().policy, averaged=False)),
        straight=differs("loss").by(update=replace(recipes.function("coflow")().update, straight=0.9)),
    ),
    "cdsa": of(
        "bc",
        2,
        sooner=FEW_RECORDED,
        start=on_a_base,
        policy__update=above("score/action"),
        base=above("correction/size").by(policy=recipes.function("cdsa")().policy),
        levels=differs("score/action").by(update=replace(recipes.function("cdsa")().update, least=0.3)).exactly(),
    ),
    "fql": of(
        "sac",
        2,
        sooner=FEW_RECORDED,
        store=differs("q/mean").by(store=Once()),
        update=differs("imitation/error").by(update=replace(recipes.function("fql")().update, alpha=0.0)),
        flow=differs("imitation/error").by(update=replace(recipes.function("fql")().update, flow_steps=1)),
    ),
    "bc": of(
        "sac",
        2,
        sooner=FEW_RECORDED,
        store=differs("loss").by(store=Once()),
        update=differs("loss").by(update=recipes.function("iql")().update),
    ),
    "sol_rl": of("diffusion_nft", 2, workflow=above("drops/rollouts/unselected")),
    "tba": of("grpo", 3, objective=varies("balance/error").by(objective=Reinforce()), store=above("replay/share")),
    "td3_bc": of(
        "td3",
        2,
        sooner=FEW_RECORDED,
        store=differs("q/mean").by(store=Once()),
        # Exactly: the statistics of observations count 20,000, beside which no weight has gone far.
        update=above("imitation/scale")
        .by(update=replace(recipes.function("td3_bc")().update, imitation=None))
        .exactly(),
    ),
    "synther": of(
        "td3_bc",
        3,
        sooner={**FEW_RECORDED, SyntheticReplay: {"warmup": 2}},
        update=above("synthetic/share").by(update=recipes.function("td3_bc")().update).exactly(),
        flow_steps=differs("synthetic/spread")
        .by(update=replace(recipes.function("synther")().update, warmup=2, flow_steps=1))
        .exactly(),
    ),
    "synther_guided": of(
        "synther",
        3,
        sooner={**FEW_RECORDED, SyntheticReplay: {"warmup": 2}},
        guidance=differs("synthetic/off_policy")
        .by(update=replace(recipes.function("synther")().update, warmup=2))
        .exactly(),
    ),
    "a2pr": of(
        "td3_bc",
        2,
        sooner=FEW_RECORDED,
        update=above("better/share").by(update=recipes.function("td3_bc")().update).exactly(),
        coder=differs("imitation/error")
        .by(update=replace(recipes.function("a2pr")().update, imitation=BIASED))
        .exactly(),
    ),
    "td3": of(
        "sac",
        3,
        sooner=FEW,
        store=differs("q/mean").by(store=Once()),
        policy__update=differs("loss").by(update=replace(recipes.function("td3")().update, delay=1)),
    ),
    "safe": of(
        "ppo",
        3,
        seed=1,
        sooner={
            PhasedPID: {"window": 2, "base": 0.01, "low": 1e-3},
            EntropyGatedKL: {"decay": 0.2},
        },
        regularisers=above("kl/rein").by(regularisers=(HuberValueLoss(), EntropyBonus(coef=0.01)), controllers={}),
        controllers=varies("control/regularisers.1.threshold"),
        critic=differs("value/loss").by(critic=HiddenValue(hidden=(64,))),
    ),
    "salt": of("terminal", shaping=ADVANTAGE),
    "sar": of("next_scale_sft", regularisers=above("nll/staggered")),
    "sapo": of("grpo", 2, prompts=2, start=swarm, store=above("replay/share"), correction=differs("is_weight/max")),
    "scaling_inter": of(
        "grpo",
        3,
        prompts=4,
        sooner={Horizon: {"every": 1}},
        workflow=differs("length/mean").by(workflow=SingleTurn(), curriculum=Epochs()),
        curriculum=varies("curriculum/Horizon/turns"),
    ),
    "scope": of("grpo", 3, objective=above("guided_frac"), workflow__filters=above("guided_frac")),
    "seg_atp": of("sft", tasks=differs("length/mean").by(tasks=WHOLE_PROOFS)),
    "seeupo": of(
        "terminal",
        objective=above("clip_ratio/low"),
        order=GRADIENT.by(objective=TurnSweep(order="together")),
        advantage=ADVANTAGE,
    ),
    "sft": of("dpo", objective=GRADIENT),
    "sgpo": of("grpo", 2, prompts=8, sooner=FEW_TASKS, curriculum__filters=above("drops/profile")),
    "sgrpo": of("grpo", rewards=REWARD, advantage=ADVANTAGE),
    "skill_r1": of(
        "grpo",
        3,
        workflow=differs("reward/outcome/mean").by(workflow=BLIND),
        advantage=ADVANTAGE,
        regularisers=above("entropy/policy"),
    ),
    "smiles_grpo": of(
        "grpo",
        controllers=varies("control/reward_shaping.0.weight"),
        reward_shaping=ADVANTAGE.by(reward_shaping=(), controllers={}),
        regularisers=above("kl/ref"),
    ),
    "specs": of("grpo", rewards=REWARD),
    "specs_start": of("dpo", tasks=differs("length/wrong"), regularisers=varies("nll/right")),
    "spo": of("grpo", rewards=differs("reward/std")),
    "stratified_grpo": of("terminal", advantage=ADVANTAGE),
    "stream_r1": of(
        "dmd2",
        update=above("matching/salient", 1.0),
        workflow=differs("reward/digit/mean").by(workflow=Streamed(past=RealSamples())),
    ),
    "streams": of("diffusion_nft", workflow=differs("reward/log_p/mean").by(workflow=Streamed(past=RealSamples()))),
    "target_decoupling": of("ppo", regularisers__critic=differs("value/loss")),
    "thinkrl_edit": of("grpo", advantage=below("chain_frac")),
    "thinkrl_pictures": of(
        "unigrpo",
        rewards=differs("chain_frac").by(rewards=(DigitLikeness(name="picture"), ExactAnswer(name="words"))),
        advantage=below("chain_frac"),
    ),
    "terminal": of(
        "grpo",
        workflow=above("tool/calls", 0.5).by(workflow=SILENT),
        tasks=REWARD.by(tasks=Chores(kinds=("chain",))),
    ),
    "tiny_agent": of("sft", tasks=differs("length/mean")),
    "tiny_leduc": of("tiny_player", policy=GRADIENT, tasks=GRADIENT),
    "tiny_memory": of("sft", tasks=differs("length/mean")),
    "tiny_player": of("sft", tasks=differs("length/mean"), workflow=differs("length/mean")),
    "tiny_base": of("sft", objective=GRADIENT.by(objective=Reinforce())),
    "stable": of(
        "grpo",
        objective=above("clip_ratio/low").by(objective=UNCLIPPED),
        correction=differs("is_weight/max"),
        aggregation=GRADIENT,
        stability=below("loop/kept").by(stability=None),
    ),
    "tis": of("grpo", correction=differs("is_weight/max")),
    "trace": of(
        "terminal",
        2,
        advantage=ADVANTAGE.by(advantage=GroupNormalized()),
        workflow=differs("length/mean"),
    ),
    "treerl": of("branched", advantage=ADVANTAGE, workflow=differs("length/mean").by(workflow=SingleTurn())),
    "ttrl": of(
        "grpo",
        prompts=2,
        start=unsolved,
        rewards=differs("reward/mean"),
        filters=above("drops/rollouts/FirstOf"),
        regularisers=above("kl/ref"),
    ),
    "unigrpo": of(
        "grpo",
        separate=differs("kl/velocity/painter").by(separate=painting(learning_rate=0.0)),
        separate__objective=differs("ratio/normalized/painter").by(separate=painting(objective=ClippedStep())),
        separate__regularisers=above("kl/velocity/painter").by(separate=painting(regularisers=())),
        objective=above("clip_ratio/low").by(objective=UNCLIPPED),
    ),
    "until_mixed": of("grpo", 3, budget=below("budget/UntilMixed/size", 8.0).by(budget=Fixed())),
    "v0": of("grpo", 4, curriculum=REWARD),
    "vade": of("grpo", 4, sooner=FEW_TASKS, curriculum=varies("curriculum/VarianceSampled/score")),
    "vcpo": of(
        "grpo",
        4,
        objective=below("ess/sequence").by(objective=UNCLIPPED, step_size=None),
        step_size=differs("lr"),
        advantage=ADVANTAGE,
    ),
    "verl_rank": of("grpo", shaping=varies("effective_rank/rank").by(shaping=())),
    "vl_dac": of(
        "terminal",
        2,
        sooner={Delayed: {"steps": 1}},
        advantage__regularisers=differs("value/loss").by(
            advantage=GAE(gamma=0.9, lam=0.95), regularisers=(ValueLoss(clip=0.1), KLPenalty(coef=0.04))
        ),
        shaping=ADVANTAGE,
        controllers=varies("lr"),
    ),
    "webstar": of("grpo", filters=above("drops/decisions/RightSteps"), objective=GRADIENT, aggregation=GRADIENT),
    "w_reinforce": of("grpo", advantage=ADVANTAGE),
    "xrpo": of("grpo", 4, prompts=4, shaping=ADVANTAGE, budget=above("budget/Seeded/seeded", 0.5)),
    "xrpo_start": of("sft", tasks=differs("length/mean")),
}
