"""For each rule by which a part refuses a run: such a run, the reason, and what it says to type."""

from dataclasses import replace

from small import Digits, described, other_words

from gimbal.advantages import GAE, Distillation, GroupNormalized, KLReward, SeatCentered, Whitened
from gimbal.advantages.estimators.inclusion_normalized import InclusionNormalized
from gimbal.advantages.estimators.median_centered import MedianCentered
from gimbal.advantages.estimators.revision_normalized import RevisionNormalized
from gimbal.advantages.estimators.reward_decoupled import RewardDecoupled
from gimbal.advantages.estimators.stratified import Stratified
from gimbal.advantages.estimators.tree_shaped import TreeShaped
from gimbal.advantages.reward_shaping.running_normalized import RunningNormalized
from gimbal.advantages.shapings.emphasised import Emphasised
from gimbal.advantages.shapings.entropy_shaped import EntropyShaped
from gimbal.advantages.shapings.rank_shaped import RankShaped
from gimbal.advantages.shapings.tempered_imitation import TemperedImitation
from gimbal.controllers.delayed import Delayed
from gimbal.controllers.effective_sample_size import EffectiveSampleSize
from gimbal.controllers.lagrangian import Lagrangian
from gimbal.controllers.linear import Linear
from gimbal.controllers.stability import Stability
from gimbal.critics.tokens import HiddenValue, TrunkValue
from gimbal.dataflow.budgets.deepened import Deepened
from gimbal.dataflow.budgets.fixed import Fixed
from gimbal.dataflow.budgets.interval_shared import IntervalShared
from gimbal.dataflow.budgets.seeded import Seeded
from gimbal.dataflow.budgets.until_mixed import UntilMixed
from gimbal.dataflow.curricula.adversarial import Adversarial
from gimbal.dataflow.curricula.frontier import Frontier
from gimbal.dataflow.curricula.hinted import Hinted
from gimbal.dataflow.curricula.horizon import Horizon
from gimbal.dataflow.curricula.profiled import Profiled
from gimbal.dataflow.filters.first_of import FirstOf
from gimbal.dataflow.filters.profile_only import ProfileOnly
from gimbal.dataflow.filters.step_repair import StepRepair
from gimbal.dataflow.filters.superseded import Superseded
from gimbal.dataflow.filters.zero_variance import ZeroVariance
from gimbal.dataflow.replay.buffer import Buffer
from gimbal.dataflow.replay.once import Once
from gimbal.dataflow.replay.recent import Recent
from gimbal.dataflow.replay.successes import Successes
from gimbal.dataflow.replay.swarm import Swarm
from gimbal.dataflow.replay.transitions import Transitions
from gimbal.dataflow.staleness import DropStale, MaskStale, Pace, Reweight
from gimbal.engines.denoising import Denoising
from gimbal.engines.drafting.draft_model import DraftModel
from gimbal.engines.drafting.prompt_lookup import PromptLookup
from gimbal.engines.drafting.self_speculation import SelfSpeculation
from gimbal.engines.native import Native
from gimbal.engines.offline import Offline
from gimbal.engines.vllm import VLLM
from gimbal.engines.vllm_server import VLLMServer
from gimbal.environments.dataset import Rows
from gimbal.environments.demonstrations import training_tasks
from gimbal.environments.digit_sums import DigitSums
from gimbal.environments.shared_sums import SumStages
from gimbal.environments.split import Split
from gimbal.learning.kinds import OtherKind
from gimbal.learning.optimization import Optimization
from gimbal.learning.proximal.behavior import Behavior
from gimbal.learning.proximal.interruption import Interruption
from gimbal.learning.proximal.recompute import Recompute
from gimbal.learning.proximal.sampling_version import SamplingVersion
from gimbal.learning.renewal import RenewedReference
from gimbal.learning.separate import SeparateWeights
from gimbal.learning.weight_sync.sparse import Sparse
from gimbal.objectives import ClippedStep, KLPenalty, NormalizedStep, TruncatedWeight, ValueLoss, VelocityPenalty
from gimbal.objectives.masks.curvature_mask import CurvatureMask
from gimbal.objectives.masks.pivot_mask import PivotMask
from gimbal.objectives.regularisers.convex_kl import ConvexKL
from gimbal.objectives.surrogates.guided_ratio import GuidedRatio
from gimbal.objectives.surrogates.sequence_weight import SequenceWeight
from gimbal.objectives.surrogates.trajectory_balance import FlowBalance, TrajectoryBalance
from gimbal.objectives.values.huber_value_loss import HuberValueLoss
from gimbal.objectives.values.member_value_loss import MultiHorizonValueLoss
from gimbal.policies.control import StepSampling
from gimbal.policies.denoiser import Denoiser
from gimbal.policies.gaussian import Gaussian
from gimbal.policies.lora import LoRA
from gimbal.policies.paths import PathSampling
from gimbal.policies.token import CausalLM, Sampling
from gimbal.rewards.answer_consistency import AnswerConsistency
from gimbal.rewards.digits import DigitClass
from gimbal.rewards.expected import Expected
from gimbal.rewards.majority import Majority
from gimbal.rewards.set_diversity import SetDiversity
from gimbal.runtime.base import Local
from gimbal.runtime.devices import Devices
from gimbal.runtime.faults import Faults
from gimbal.runtime.ray import Ray
from gimbal.runtime.run import HeldOut
from gimbal.workflows.aborting import Aborting
from gimbal.workflows.agent import Agent
from gimbal.workflows.branching import Branching
from gimbal.workflows.case_memory import CaseMemory
from gimbal.workflows.criteria_first import CriteriaFirst
from gimbal.workflows.delegation import Delegation
from gimbal.workflows.demonstrated import Demonstrated
from gimbal.workflows.dialogue import Dialogue
from gimbal.workflows.edited_context import EditedContext
from gimbal.workflows.gated_tree import GatedTree
from gimbal.workflows.guided import Guided
from gimbal.workflows.inspection import Inspection
from gimbal.workflows.lessons import Lessons
from gimbal.workflows.lookahead import Lookahead
from gimbal.workflows.plan_and_draw import PlanAndDraw
from gimbal.workflows.plan_and_execute import PlanAndExecute
from gimbal.workflows.plan_and_repair import PlanAndRepair
from gimbal.workflows.privileged_context import PrivilegedContext
from gimbal.workflows.proof_search import ProofSearch
from gimbal.workflows.pruning import Pruning
from gimbal.workflows.retrying import Retrying
from gimbal.workflows.shared_tree import SharedTree
from gimbal.workflows.single import SingleTurn
from gimbal.workflows.skill_evolution import SkillEvolution
from gimbal.workflows.tempered import Tempered
from gimbal.workflows.turn_branching import TurnBranching

DECOUPLED = RewardDecoupled(whiten="off")
TEMPERED = {"engine": Native(entropy=True), "workflow": Tempered()}
CRITIC = {"critic": HiddenValue(), "advantage": GAE()}
OLD = {"correction": TruncatedWeight()}
AEPO = {**TEMPERED, "shaping": (TemperedImitation(),)}
PUSHED = {"policy": Gaussian(observations=2, actions=1), "sampling": StepSampling()}
STEERED = {"reward_shaping": (KLReward(),), "controllers": {"reward_shaping.0.coef": Lagrangian()}}

ROWS = Rows(rows=[{"prompt": str(number)} for number in range(9)])
TRAINED, HELD = Split(tasks=ROWS, side="train", held_out=3.0), Split(tasks=ROWS, side="held_out", held_out=3.0, seed=1)
ROUTED = {"policy": CausalLM(model=described(num_experts=8)), "engine": Native(precision="bfloat16")}

SEEING = CausalLM(model=described(model_type="llava", vision_config={}, text_config={"hidden_size": 128}))

CASES = CaseMemory(reward=Digits())
TWO = {"workflow": PlanAndExecute(), "separate": {"executor": SeparateWeights()}}


def painted(**fields):
    """A flow behind the words, with these fields of its kind."""
    parts = {"policy": Denoiser(), "engine": Denoising(), "sampling": PathSampling(), "objective": ClippedStep()}
    return {"painter": SeparateWeights(kind=OtherKind(**{**parts, **fields}))}


PAINTED = {
    "workflow": PlanAndDraw(),
    "separate": painted(),
    "tasks": DigitSums(),
    "rewards": (DigitClass(),),
    "optimization": Optimization(minibatches=2),
}

REFUSALS = [
    ({"budget": UntilMixed(first=16)}, "begins with 16 rollouts", {"num_generations": 32}),
    ({"budget": IntervalShared(first=9)}, "begins with 9 rollouts", {"budget": IntervalShared(first=2)}),
    ({"filters": (FirstOf(count=1),)}, r"compares at least 2.*FirstOf\(count=2\)", {"filters": (FirstOf(count=2),)}),
    ({"filters": (ZeroVariance(), ZeroVariance())}, "ZeroVariance twice", {"filters": (ZeroVariance(),)}),
    ({"filters": (ProfileOnly(),)}, r"ProfileOnly drops nothing.*'Profiled\(\)'", {"curriculum": Profiled()}),
    ({"filters": (Superseded(),)}, r"Superseded drops nothing.*'Hinted\(\)'", {"curriculum": Hinted()}),
    (
        {"budget": Deepened(), "workflow": Branching()},
        "samples more rollouts for a scored group.*use budget=Fixed",
        {"budget": Fixed()},
    ),
    (
        {"curriculum": Adversarial()},
        "add Emphasised.. to shaping",
        {
            "shaping": (Emphasised(),),
            "rewards": (Digits(), Expected(column="emphasis", name="emphasis", weight=0.0)),
        },
    ),
    (
        {"rewards": (Majority(),), "held_out": HeldOut(tasks=training_tasks(size=4))},
        "would measure nothing.*held_out.rewards=",
        {"held_out": HeldOut(tasks=training_tasks(size=4), rewards=(Digits(),))},
    ),
    (
        {"rewards": (Digits(), Digits(weight=0.0))},
        "'digits' is the name of a second reward.*Digits.name='other'",
        {"rewards": (Digits(), Digits(name="other", weight=0.0))},
    ),
    ({"workflow": ProofSearch()}, "its proofs are no sample to train on", {"workflow": SingleTurn()}),
    ({"curriculum": Horizon()}, "workflow=Dialogue..", {"workflow": Dialogue()}),
    (
        {"reference_rate": 1.5, "regularisers": (KLPenalty(),)},
        "set it from 0",
        {"reference_rate": 0.1, "regularisers": (KLPenalty(),)},
    ),
    (
        {"reference": CausalLM()},
        "a model that no part reads: add advantage=Distillation",
        {"regularisers": (KLPenalty(),)},
    ),
    ({"advantage": Distillation()}, "reference=DIRECTORY names its model", {"reference": CausalLM()}),
    (
        {
            "advantage": Distillation(),
            "reference": CausalLM(),
            "rewards": (),
            "held_out": None,
            "curriculum": Frontier(),
        },
        "Frontier goes by how often tasks are solved, and nothing says so here",
        {"rewards": (Digits(),)},
    ),
    (
        {"reference": CausalLM(), "regularisers": (KLPenalty(),), "reference_rate": 0.1},
        "would replace it by the policy: keep one",
        {"reference_rate": 0.0},
    ),
    ({**PUSHED, "workflow": Agent(program="cat")}, "an agent talks to a language model", {"workflow": SingleTurn()}),
    ({"curriculum": Profiled()}, "put ProfileOnly.. first in filters", {"filters": (ProfileOnly(),)}),
    (
        {"policy": SEEING, "engine": Native(drafter=DraftModel())},
        "reads text only",
        {"engine": Native(drafter=PromptLookup())},
    ),
    (
        {"policy": CausalLM(), "engine": Native(drafter=DraftModel(model=other_words()))},
        "has another tokenizer.*DraftModel.layers=1",
        {"engine": Native(drafter=DraftModel(layers=1))},
    ),
    ({"workflow": EditedContext(window=64, turn=8)}, "max_length=64", {"sampling": Sampling(max_length=64)}),
    (
        {"workflow": Branching(inside=EditedContext(window=8, turn=2)), "sampling": Sampling(max_length=8)},
        "splits rows, and EditedContext",
        {"workflow": EditedContext(window=8, turn=2)},
    ),
    ({"policy": SEEING, "engine": VLLM()}, "which VLLM does not carry: engine='Native", {"engine": Native()}),
    (
        {**CRITIC, "policy": SEEING, "critic": TrunkValue(), "regularisers": (ValueLoss(),)},
        "which TrunkValue does not read",
        {"policy": CausalLM()},
    ),
    ({"policy": CausalLM(freeze_vision_tower=True)}, "has no vision tower", {"policy": CausalLM()}),
    ({"policy": CausalLM(use_liger_kernel=True)}, "need a GPU, and there is none", {"policy": CausalLM()}),
    (
        {
            "masks": (CurvatureMask(learning_rate=1e-3),),
            "optimization": Optimization(learning_rate=1e-3, optimizer="sgd"),
        },
        "predicts steps of AdamW",
        {"optimization": Optimization(learning_rate=1e-3)},
    ),
    (
        ROUTED,
        "some tokens get other experts in the trainer.*engine.precision=float32",
        {"engine": Native(precision="float32")},
    ),
    (
        {**CRITIC, "policy": CausalLM(), "critic": HiddenValue(width=64), "regularisers": (ValueLoss(),)},
        "set critic.width=128",
        {"critic": HiddenValue(width=128)},
    ),
    (
        {"shaping": (RankShaped(),), "controllers": {"shaping.0.rank": Lagrangian()}},
        "shaping.0.rank, which RankShaped updates itself",
        {"controllers": {"shaping.0.gain": Lagrangian()}},
    ),
    (
        {"controllers": {"max_staleness": Linear(initial=2.0, final=1.0, steps=4)}},
        "max_staleness, which is read once",
        {"controllers": {"oversampling": Linear(initial=2.0, final=1.0, steps=4)}},
    ),
    (
        {**PUSHED, "sampling": Sampling(stop=("=",))},
        "samples env_steps by sampling=StepSampling",
        {"sampling": StepSampling()},
    ),
    (
        {**PUSHED, **STEERED},
        "has no meaning: use signal=mismatch",
        {"controllers": {"reward_shaping.0.coef": Lagrangian(signal="mismatch/k3")}},
    ),
    ({"store": Transitions()}, "learns from whole ones", {"store": Once()}),
    ({"store": Buffer()}, "by how it was drawn", {"correction": TruncatedWeight()}),
    ({"store": Successes()}, "by how it was drawn", {"correction": TruncatedWeight()}),
    (
        {**OLD, "store": Swarm(directory="d", peers=("b",)), "rewards": (AnswerConsistency(),)},
        "asks the policy about each",
        {"rewards": (Digits(),)},
    ),
    (
        {**OLD, "store": Swarm(directory="d", peers=("b",), keep=3)},
        "may read older ones: store.keep=6",
        {"store": Swarm(directory="d", peers=("b",), keep=6)},
    ),
    (
        {**PUSHED, "store": Swarm(directory="d", peers=("b",))},
        "shares texts of language models, and Gaussian is none: store=Once",
        {"store": Once()},
    ),
    ({**OLD, "store": Recent(), "staleness": MaskStale()}, "masks what is older", {"staleness": Pace()}),
    ({**OLD, "objective": TrajectoryBalance()}, "TruncatedWeight has nothing to correct", {"correction": None}),
    ({"objective": FlowBalance(), "masks": (PivotMask(),)}, "PivotMask takes decisions out", {"masks": ()}),
    ({"objective": TrajectoryBalance(), "staleness": MaskStale()}, "sums whole ones", {"staleness": Pace()}),
    ({"store": Recent()}, "by how it was drawn", {"objective": TrajectoryBalance()}),
    ({**OLD, "store": Successes(), "staleness": DropStale()}, "would drop each group", {"staleness": Pace()}),
    (
        {**OLD, "store": Buffer(), "anchor": SamplingVersion()},
        "Buffer lets decisions be older",
        {"anchor": Recompute()},
    ),
    (
        {"workflow": Retrying(firsts=2), "held_out": HeldOut(tasks=training_tasks(size=4))},
        "Retrying takes wrong answers up again",
        {"held_out": HeldOut(tasks=training_tasks(size=4), workflow=SingleTurn())},
    ),
    (
        {
            "workflow": Lookahead(),
            "engine": Native(slots=8, rivals=True),
            "held_out": HeldOut(tasks=training_tasks(size=4)),
        },
        "Lookahead begins rollouts greedily",
        {"held_out": HeldOut(tasks=training_tasks(size=4), workflow=SingleTurn())},
    ),
    (
        {
            "workflow": GatedTree(),
            "engine": Native(slots=8, entropy=True),
            "held_out": HeldOut(tasks=training_tasks(size=4)),
        },
        "GatedTree forks and drops rollouts",
        {"held_out": HeldOut(tasks=training_tasks(size=4), workflow=SingleTurn())},
    ),
    ({**PUSHED, "budget": Seeded()}, "only tasks for text have those", {"budget": Fixed()}),
    ({"budget": Seeded(inside=Fixed())}, "Fixed draws none", {"budget": Seeded()}),
    ({"budget": Seeded(inside=Seeded())}, "the outer one writes the prompts", {"budget": Seeded()}),
    (
        {"workflow": GatedTree(roots=5), "engine": Native(slots=8, entropy=True)},
        "5 roots, and a group has 4 rollouts: workflow.roots=2",
        {"workflow": GatedTree(roots=2)},
    ),
    ({"workflow": Aborting()}, "nothing here weighs those", {"advantage": InclusionNormalized()}),
    (
        {
            "workflow": Aborting(),
            "advantage": InclusionNormalized(),
            "held_out": HeldOut(tasks=training_tasks(size=4)),
        },
        "Aborting drops rollouts at random",
        {"held_out": HeldOut(tasks=training_tasks(size=4), workflow=SingleTurn())},
    ),
    (
        {"workflow": Pruning(reward=Digits()), "held_out": HeldOut(tasks=training_tasks(size=4))},
        "Pruning drops rollouts by what it expects",
        {"held_out": HeldOut(tasks=training_tasks(size=4), workflow=SingleTurn())},
    ),
    (
        {"workflow": Pruning()},
        r"Pruning goes by ExactAnswer \('exact'\), but this run has",
        {"workflow": Pruning(reward=Digits())},
    ),
    ({"workflow": TurnBranching()}, "goes by what its environment pays", {"workflow": TurnBranching(reward=Digits())}),
    ({"workflow": CriteriaFirst()}, "use Stratified", {"advantage": Stratified(strata="score/digits")}),
    (
        {"shaping": (EntropyShaped(), Whitened())},
        "put Whitened first in shaping",
        {"shaping": (Whitened(), EntropyShaped())},
    ),
    ({"advantage": DECOUPLED, "reward_shaping": (KLReward(),)}, "would be lost", {"reward_shaping": ()}),
    (
        {"rewards": (Digits(), SetDiversity(sets=3))},
        "multiple of its sets",
        {"rewards": (Digits(), SetDiversity(sets=2))},
    ),
    ({"masks": (PivotMask(),)}, "only with advantage=MedianCentered", {"advantage": MedianCentered()}),
    ({**AEPO, "correction": TruncatedWeight()}, "would undo it", {"correction": None}),
    (
        {"workflow": Branching(), "held_out": HeldOut(tasks=training_tasks())},
        "would not measure the policy",
        {"held_out": HeldOut(tasks=training_tasks(), workflow=SingleTurn())},
    ),
    (TEMPERED, "as if on-policy", {"shaping": (TemperedImitation(),)}),
    (
        {**AEPO, "sampling": Sampling(max_length=10, temperature=0.7)},
        "recognises groups by",
        {"shaping": (TemperedImitation(temperature=0.7),)},
    ),
    (
        {"anchor": SamplingVersion(window=1), "max_staleness": 2},
        "fewer versions than",
        {"anchor": SamplingVersion(window=2)},
    ),
    ({"policy": CausalLM(lora=LoRA()), "engine": VLLM()}, "policy.lora sends only the adapter", {"engine": Native()}),
    (
        {"policy": CausalLM(lora=LoRA()), "engine": VLLMServer()},
        "VLLMServer needs whole models",
        {"engine": Native()},
    ),
    ({"devices": Devices(samplers=2)}, "need their own processes", {"runtime": Ray()}),
    (
        {"engine": Native(device="cuda", drafter=SelfSpeculation())},
        "in int8 on processors.*engine.drafter='PromptLookup",
        {"engine": Native(drafter=SelfSpeculation())},
    ),
    ({"devices": Devices(gpus=2)}, "samples on one device", {"engine": VLLMServer()}),
    ({"devices": Devices(), "engine": VLLMServer(url="http://a:1")}, "has its own GPUs", {"engine": VLLMServer()}),
    ({"devices": Devices(), "engine": VLLM()}, "cannot place VLLM", {"engine": Native()}),
    ({"devices": Devices(turns=True), "max_staleness": 1}, "they work at once", {"max_staleness": 0}),
    ({"devices": Devices(learner=2)}, "needs one process per GPU", {"devices": Devices()}),
    ({"devices": Devices()}, "lower them, or drop devices=", {"devices": None}),
    ({"anchor": SamplingVersion(window=1), "staleness": Reweight()}, "decisions of any age", {"staleness": Pace()}),
    ({"anchor": Interruption(), "runtime": Ray()}, "while generation is paused", {"runtime": Local()}),
    ({"max_staleness": 1, "staleness": Reweight()}, "this run has none", {"correction": TruncatedWeight()}),
    ({"step_size": EffectiveSampleSize()}, "which only SequenceWeight reports", {"objective": SequenceWeight()}),
    (
        {**CRITIC, "regularisers": (ValueLoss(), HuberValueLoss())},
        "keep one value loss",
        {"regularisers": (HuberValueLoss(),)},
    ),
    (
        {**CRITIC, "regularisers": (MultiHorizonValueLoss(),)},
        "set critic.heads to their number",
        {"critic": HiddenValue(heads=2), "regularisers": (MultiHorizonValueLoss(gammas=(0.5, 1.0)),)},
    ),
    (
        {"objective": GuidedRatio(), "correction": TruncatedWeight()},
        "already weights a guide's decisions",
        {"correction": None},
    ),
    (
        {"engine": Offline(), "workflow": Demonstrated(), "correction": TruncatedWeight()},
        "demonstrations were not sampled",
        {"correction": None},
    ),
    (
        {"engine": Offline(), "workflow": Demonstrated(), "stability": Stability()},
        "these rows were not sampled",
        {"stability": None},
    ),
    (
        {"stability": Stability(), "optimization": Optimization(learning_rate=0.0)},
        "0 stays 0",
        {"optimization": Optimization(learning_rate=1e-5)},
    ),
    ({"filters": (StepRepair(),)}, "use workflow=Guided", {"workflow": Guided()}),
    (
        {"reward_shaping": (KLReward(), RunningNormalized())},
        "put it first in reward_shaping",
        {"reward_shaping": (RunningNormalized(), KLReward())},
    ),
    (
        {"controllers": {"optimization.learning_rate": Delayed(after=0.5)}},
        "give both the same",
        {"controllers": {"optimization.learning_rate": Delayed(after=1e-3)}},
    ),
    (
        {"renewal": RenewedReference()},
        "regularisers=StepKL()",
        {"regularisers": (ConvexKL(),)},
    ),
    (
        {"tasks": TRAINED, "held_out": HeldOut(tasks=HELD)},
        "split in different ways",
        {"held_out": HeldOut(tasks=replace(HELD, seed=0))},
    ),
    *(
        ({**TWO, **changes}, f"separate gives executor weights of its own.*{reason}", cure)
        for changes, reason, cure in (
            ({"engine": VLLM()}, r"engine=VLLM\(\): use engine=Native", {"engine": Native()}),
            (
                {"held_out": HeldOut(tasks=ROWS, engine=VLLMServer(url="http://localhost:1"))},
                r"held_out.engine=VLLMServer\(\): use held_out.engine=Native",
                {"held_out": None},
            ),
            ({"runtime": Ray()}, r"runtime=Ray\(\): use runtime=Local", {"runtime": Local()}),
            ({"policy": CausalLM(lora=LoRA())}, "LoRA: use policy.lora=none", {"policy": CausalLM()}),
            (CRITIC, "the critic HiddenValue: use a group estimator", {"critic": None, "advantage": GroupNormalized()}),
            ({"stability": Stability()}, "Stability.*use stability=none", {"stability": None}),
            (
                {"anchor": SamplingVersion()},
                r"the anchor SamplingVersion: use anchor=Recompute",
                {"anchor": Recompute()},
            ),
            ({"regularisers": (KLPenalty(),)}, "KLPenalty, whose reference.*drop KLPenalty", {"regularisers": ()}),
            (
                {"masks": (CurvatureMask(learning_rate=1e-3),)},
                "CurvatureMask, which reads gradients.*drop CurvatureMask",
                {"masks": ()},
            ),
            ({"sync": Sparse(directory="d")}, "sync.directory.*leave it empty", {"sync": Sparse()}),
            ({"devices": Devices()}, "devices: use devices=none", {"devices": None}),
            ({"faults": Faults(dropped_samples=0.5)}, "faults: use faults=none", {"faults": None}),
        )
    ),
    *(
        ({**PAINTED, "separate": painted(**broken)}, reason, {"separate": painted()})
        for broken, reason in (
            ({"policy": CausalLM()}, r"kind.policy is CausalLM; so far .*those that denoise: Denoiser\(\)"),
            ({"engine": Native()}, r"kind.engine is Native; so far .*those that denoise: Denoising\(\)"),
            ({"policy": Denoiser(lora=LoRA())}, "kind.policy.lora trains adapters.*leave it out"),
            ({"objective": ClippedStep(), "regularisers": (KLPenalty(),)}, "has KLPenalty.*use ClippedStep"),
            ({"weight": 0.0, "regularisers": (VelocityPenalty(),)}, "weight is 0.*leave them out, or raise it"),
            ({"sampling": PathSampling(sampler="ode")}, "sampler=ode samples no step that a policy gradient"),
        )
    ),
    (
        {**PAINTED, "separate": painted(sampling=PathSampling(temperature=0.0))},
        "kind.sampling.temperature is 0, but rows of a role are drawn at that of the episode",
        {"separate": painted()},
    ),
    ({**PAINTED, "store": Buffer()}, r"which Buffer does not keep: use store=Once\(\)", {"store": Once()}),
    ({**PAINTED, "separate": {}}, "a model of another kind than the planner's", {"separate": painted()}),
    ({**PAINTED, "workflow": PlanAndDraw(classes=11)}, "may ask for class 10", {"workflow": PlanAndDraw()}),
    (
        {**PAINTED, "separate": painted(objective=NormalizedStep()), "anchor": Behavior()},
        "NormalizedStep and the anchor Behavior both consume the discrepancy ratio",
        {"anchor": Recompute()},
    ),
    (
        {**TWO, "separate": {"policy": SeparateWeights(roles=("executor",))}},
        "'policy', which is reserved or not a plain name",
        {"separate": {"second": SeparateWeights(roles=("executor",))}},
    ),
    (
        {**TWO, "separate": {"executor ": SeparateWeights(roles=("executor",))}},
        "'executor ', which is reserved or not a plain name",
        {"separate": {"executor": SeparateWeights()}},
    ),
    (
        {"workflow": Lessons(cases=CASES, guided=0.25), "advantage": SeatCentered(), "num_generations": 4},
        "guides 1 of 4 attempts",
        {"num_generations": 8},
    ),
    (
        {"workflow": PrivilegedContext(template="7{prompt}"), "held_out": HeldOut(tasks=training_tasks(size=4))},
        "would read the context that PrivilegedContext leaves out",
        {"held_out": HeldOut(tasks=training_tasks(size=4), workflow=SingleTurn())},
    ),
    (
        {"workflow": SkillEvolution(reward=Digits())},
        "SkillEvolution scores what it draws as it goes",
        {"rewards": (), "held_out": None},
    ),
    (
        {"workflow": PlanAndRepair(checks=SumStages())},
        "PlanAndRepair scores what it draws as it goes.*give what is to count as workflow.checks",
        {"rewards": (), "held_out": None},
    ),
    (
        {"workflow": Retrying(inside=Delegation()), "held_out": None},
        "Retrying splits rows, and Delegation does not know what had been delegated",
        {"workflow": Delegation()},
    ),
    (
        {"workflow": Inspection(reward=Digits()), "held_out": None},
        "Inspection scores what it draws as it goes",
        {"rewards": ()},
    ),
    (
        {"workflow": Inspection(reward=Digits()), "rewards": (), "held_out": HeldOut(tasks=training_tasks(size=4))},
        "would show what the inspector changed",
        {"held_out": None},
    ),
    (
        {"workflow": SharedTree(reward=Digits()), "held_out": None},
        "SharedTree scores what it draws as it goes",
        {"rewards": ()},
    ),
    (
        {
            "workflow": SharedTree(reward=Digits()),
            "rewards": (),
            "held_out": HeldOut(tasks=training_tasks(size=4)),
        },
        "SharedTree refines what was scored",
        {"held_out": None},
    ),
    ({"advantage": TreeShaped()}, "grows no such tree", {"advantage": GroupNormalized()}),
    ({"advantage": RevisionNormalized()}, "by outcomes of their own", {"advantage": GroupNormalized()}),
    (
        {**TWO, "separate": {"critic": SeparateWeights(roles=("judge",))}},
        "'critic', which is reserved or not a plain name",
        {"separate": {}},
    ),
    (
        {**TWO, "separate": {"judge": SeparateWeights()}},
        "for the role 'judge', but PlanAndExecute has the roles executor, planner",
        {"separate": {"executor": SeparateWeights()}},
    ),
    (
        {**TWO, "workflow": SingleTurn()},
        "'executor', but SingleTurn has the roles none",
        {"workflow": PlanAndExecute()},
    ),
    (
        {**TWO, "separate": {name: SeparateWeights(roles=("executor",)) for name in ("a", "b")}},
        "the role 'executor' two models",
        {"separate": {"a": SeparateWeights(roles=("executor",))}},
    ),
    (
        {**TWO, "separate": {name: SeparateWeights() for name in ("planner", "executor")}},
        "leaves no role for the policy",
        {"separate": {"executor": SeparateWeights()}},
    ),
]
