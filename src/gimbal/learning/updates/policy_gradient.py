"""The policy gradient: a surrogate on recorded decisions, in every form that its parts make of it.

prepare   anchor, reference and critic columns; reward shaping -> advantage -> shaping
survey    of each minibatch: masks, correction, the weight of every decision in each loss
losses    one: the weighted sum of the objective and the regularisers, for the policy and, where there is one, the critic
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gimbal import ops
from gimbal.advantages.base import AbstractAdvantage, AbstractRewardShaping
from gimbal.config.own import shaped, wrong
from gimbal.controllers.base import AbstractStepSize
from gimbal.critics.base import AbstractCritic, AbstractCriticSpec
from gimbal.learning import preview
from gimbal.learning.kinds import OtherKind, Segment
from gimbal.learning.proximal.base import AbstractAnchor
from gimbal.learning.proximal.recompute import Recompute
from gimbal.learning.renewal import RenewedReference
from gimbal.learning.separate import SeparateWeights, in_rows, kinds_of, owners, segments
from gimbal.learning.updates.base import BROKEN, POLICY, AbstractUpdate, Loss, Metrics, Models, ModelSpec, Stateful
from gimbal.objectives.base import AbstractCorrection, AbstractMask, AbstractObjective
from gimbal.ops import AbstractAggregation, TokenMean
from gimbal.policies.base import AbstractPolicy, AbstractPolicySpec
from gimbal.records import Group, Terms, TrainBatch

CRITIC, REFERENCE, ANCHOR = "critic", "reference", "anchor"  # two models, and a part that remembers
OF_PROXIMAL = "proximal/"  # before the name of a column of the policy as the update begins
OF_REFERENCE = "reference/"  # before the name of a column that the reference evaluates
EVALUATED_AT = "evaluated_at"  # fact: the number of updates at which the anchor evaluated the row
OF_POLICY = frozenset({"entropy_NS", "hidden_NSH"})  # columns of a batch that only a policy's evaluation fills
FILLED = frozenset(item.name for item in fields(TrainBatch)) - OF_POLICY | preview.COLUMNS  # and those that others do


@dataclass(frozen=True, kw_only=True)
class AbstractPolicyGradient(AbstractUpdate):
    """The parts of a policy gradient. Order of use: anchor, reward_shaping, advantage, shaping; then, for each minibatch, masks,
    correction, objective, aggregation, step_size.

    Parts pull towards the reference: a model of its own, such as a teacher (``reference``; loaded, never trained), or the initial
    policy, which at each version in ``reference_resets``, or on ``renewal``, becomes the current one. After each update its weights
    move by ``reference_rate`` of the way to the policy's (a moving magnet, arXiv:2206.05825; TRL's ref_model_mixup_alpha): it is their
    exponential average over about 1 / ``reference_rate`` updates, of which a step has ``epochs`` x ``minibatches``; 0 is off.
    ``separate`` gives roles of the workflow weights of their own, by the name of each model, which may be of another kind than the
    policy (``SeparateWeights.kind``).
    """

    objective: AbstractObjective
    advantage: AbstractAdvantage
    reward_shaping: tuple[AbstractRewardShaping, ...] = ()
    shaping: tuple[AbstractAdvantage, ...] = ()
    masks: tuple[AbstractMask, ...] = ()
    correction: AbstractCorrection | None = None
    regularisers: tuple[AbstractObjective, ...] = ()
    aggregation: AbstractAggregation = TokenMean()
    anchor: AbstractAnchor = Recompute()
    critic: AbstractCriticSpec | None = None
    step_size: AbstractStepSize | None = None
    reference: AbstractPolicySpec | None = None
    reference_resets: tuple[int, ...] = ()
    reference_rate: float = 0.0
    renewal: RenewedReference | None = None
    separate: Mapping[str, SeparateWeights] = field(default_factory=dict)

    @property
    def owners(self) -> Mapping[str, str]:
        return owners(self.separate)

    @property
    def kinds(self) -> Mapping[str, OtherKind]:
        return kinds_of(self.separate)

    @property
    def summed(self) -> tuple[AbstractObjective, ...]:
        """What the loss is the sum of: the objective, which is corrected and masked, and the regularisers, which are not."""
        return self.objective, *self.regularisers

    @property
    def segments(self) -> list[Segment]:
        """The same for the rows of each kind: the policy's own first."""
        return segments(self.summed, self.separate)

    @property
    def readers(self) -> tuple[Any, ...]:
        """The parts that read columns."""
        corrections = () if self.correction is None else (self.correction,)
        return *self.summed, self.advantage, *self.shaping, *self.reward_shaping, *self.masks, *corrections

    def models(self) -> dict[str, ModelSpec]:
        specs = {POLICY: ModelSpec(optimizer=self.optimization.of_policy())}
        if self.critic is not None:
            own = self.optimization.adamw(self.optimization.critic_learning_rate)
            specs[CRITIC] = ModelSpec(load=self.critic.load, optimizer=None if self.critic.fitted else own)
        if "reference_NS" in column_needs(self) or of_reference(column_needs(self)):
            rate = self.reference_rate
            specs[REFERENCE] = ModelSpec(follows=POLICY, rate=rate) if rate else ModelSpec(first=True)
        for name, own in self.separate.items():
            rate = self.optimization.learning_rate if own.learning_rate is None else own.learning_rate
            specs[name] = ModelSpec(optimizer=replace(self.optimization, learning_rate=rate).of_policy())
            if own.kind is not None and of_reference(own.kind.needs):
                specs[f"{REFERENCE}/{name}"] = ModelSpec(load=own.kind.policy.load)
        return specs

    def init(self, models: Models) -> dict[str, Stateful]:
        self._provided(models)
        return {ANCHOR: self.anchor.start(models.policy)}

    def _provided(self, models: Models) -> None:
        """Refuse a part that reads a column which its policy cannot evaluate and nothing else fills."""
        critic: AbstractCritic | None = models.get(CRITIC)
        read = [(type(part).__name__, part.needs - FILLED, models.policy) for part in self.readers]
        read += [(type(critic).__name__, critic.reads, models.policy)] if critic is not None else []
        for name, kind in self.kinds.items():
            read += [(type(part).__name__, part.needs - FILLED, models[name]) for part in kind.summed]
        for part, names, policy in read:
            bare = {name: name.removeprefix(OF_REFERENCE).removeprefix(OF_PROXIMAL) for name in names}
            for name in sorted(name for name in names if bare[name] not in policy.provides):
                has = ", ".join(sorted(policy.provides)) or "nothing besides log-probabilities"
                raise ValueError(
                    f"{part} reads {name}, which {type(policy).__name__} does not provide (it has {has}): drop the part, "
                    "or use a policy whose `provides` has it"
                )

    def prepare(self, models: Models, batch: TrainBatch) -> tuple[TrainBatch, Metrics]:
        needs, anchor = column_needs(self), models.parts[ANCHOR]
        if batch.several:
            self._refuse_rows()
        critic = models.get(CRITIC)
        asked = needs_of(*self.reward_shaping, self.advantage, *self.shaping) & models.policy.provides
        if critic is not None:
            asked |= critic.reads
        found = models.evaluated(batch, asked) if asked else {}
        batch = batch.with_columns({name: found[name] for name in asked})

        def evaluate(rows: TrainBatch, policy: AbstractPolicy | None = None) -> Tensor:
            if policy is None and found:
                return found["logprob_NS"]
            return models.evaluated(rows, policy=policy)["logprob_NS"]

        with models.timed(ANCHOR):
            columns = {"proximal_NS": anchor(batch, evaluate), **anchor.facts(batch, evaluate)}
        if isinstance(anchor, Recompute):
            columns[EVALUATED_AT] = torch.full((batch.shape[0],), models.updates, device=models.device)
        if begun := of_proximal(needs):
            held = models.evaluated(batch, begun)
            columns |= {OF_PROXIMAL + name: held[name] for name in begun}
        if REFERENCE in models:
            if self.renewal is not None and self.renewal.due:
                models.renew(REFERENCE)
            held = models.evaluated(batch, of_reference(needs), models[REFERENCE])
            columns |= {"reference_NS": held["logprob_NS"]}
            columns |= {OF_REFERENCE + name: held[name] for name in of_reference(needs)}
        for name, kind in self.kinds.items():
            columns |= self._of_its_reference(models, batch, name, of_reference(kind.needs))
        if "score_norm_N" in needs:
            columns["score_norm_N"] = score_norm_N(models, batch)
        if critic is not None:
            columns |= models.in_micro_batches(batch, critic.columns)  # of the states before the update
        return self.advantages(batch.with_columns(columns), has_critic=critic is not None)

    def _of_its_reference(
        self, models: Models, batch: TrainBatch, name: str, wanted: frozenset[str]
    ) -> dict[str, Tensor]:
        """What the reference of a model of another kind says of its rows."""
        own_N1 = next(segment for segment in self.segments if segment.kind == name).own_N1(batch)
        assert own_N1 is not None, name
        row_M = own_N1[:, 0].nonzero()[:, 0]
        if not wanted or not len(row_M):
            return {}
        held = models.evaluated(batch.select(row_M), wanted, models[f"{REFERENCE}/{name}"])
        return {OF_REFERENCE + column: in_rows(batch, [(row_M, held[column])]) for column in wanted}

    def advantages(self, batch: TrainBatch, *, has_critic: bool) -> tuple[TrainBatch, Metrics]:
        """Reward shapings, the estimator, the critic's target, shapings; and what each reports of itself."""
        reports: Metrics = {}
        for reward_shape in self.reward_shaping:
            reports |= reward_shape.report(batch)
            reward_NS = shaped(reward_shape, reward_shape(batch), batch.mask_NS)
            batch = replace(batch, reward_NS=_told(reports, reward_shape, reward_NS, batch))
        reports |= self.advantage.report(batch)
        batch = replace(batch, advantage_NS=_told(reports, self.advantage, self.advantage.of_rows(batch), batch))
        if has_critic:
            # Before any shaping: the critic predicts returns, not what the method makes of them.
            batch = replace(batch, target_NS=batch.column("advantage_NS", self) + batch.column("value_NS", self))
        for shape in self.shaping:
            reports |= shape.report(batch)
            advantage_NS = shaped(shape, shape(batch), batch.mask_NS)
            batch = replace(batch, advantage_NS=_told(reports, shape, advantage_NS, batch))
        return batch, reports

    def _refuse_rows(self) -> None:
        """A part that compares the rows of a group would count an episode of several rows several times."""
        shaped: list[AbstractAdvantage | AbstractRewardShaping] = [*self.reward_shaping, *self.shaping]
        parts = [*shaped, *self.summed, *self.masks, *([self.correction] if self.correction is not None else [])]
        parts += [] if self.advantage.per_episode else [self.advantage]
        if names := [
            type(part).__name__ for part in parts if "group_N" in part.needs and "episode_N" not in part.needs
        ]:
            raise ValueError(
                f"{', '.join(names)} compares rows, and the episodes of this batch have several each, which would count several "
                "times: use a workflow of one row an episode, or parts that compare episodes (GroupNormalized, LeaveOneOut, LeafMean)"
            )

    def stages(self, minibatch: TrainBatch) -> Iterable[Mapping[str, Tensor]]:
        return self.objective.stages(minibatch)

    def whole_groups(self) -> bool:
        return any(part.whole_groups for segment in self.segments for part in segment.parts)

    def fewest(self) -> int:
        return self.advantage.fewest

    def survey(self, models: Models, minibatch: TrainBatch) -> tuple[TrainBatch, Metrics]:
        """Surveys of the parts, masks, the correction, and ``weight/I`` and ``share/I`` of each decision in the I-th loss."""
        metrics: Metrics = defaultdict(float)
        current = self._current(models, minibatch)
        policys, *others = self.segments
        minibatch = policys.of(current)
        for part in self.summed:
            minibatch = minibatch.with_columns(part.survey(minibatch))
        keep_NS = torch.ones_like(minibatch.mask_NS)
        for mask in self.masks:
            kept_NS = shaped(mask, mask(minibatch), minibatch.mask_NS)
            metrics[f"mask/{type(mask).__name__}"] = float(ops.masked_mean(kept_NS, minibatch.mask_NS))
            if mask.renormalise:
                minibatch = replace(minibatch, mask_NS=minibatch.mask_NS & kept_NS)
            keep_NS &= kept_NS
        # Regularisers are not corrected: they hold for every decision, however it was sampled.
        correction_NS = keep_NS.float()
        if self.correction is not None:
            correction_NS = keep_NS * shaped(self.correction, self.correction(minibatch), minibatch.mask_NS)
        facts = {"correction": correction_NS}
        before_NS = weight_NS = share_NS = None
        for number, part in enumerate(self.summed):
            if (counted_NS := part.counted(minibatch)) is not before_NS:  # most parts count the same decisions
                weight_NS = self.aggregation(counted_NS, minibatch.part_NS, minibatch.episode_N)
                before_NS = counted_NS
                share_NS = weight_NS if self.aggregation == TokenMean() else TokenMean()(counted_NS)
            facts |= {f"weight/{number}": weight_NS, f"share/{number}": share_NS}
        minibatch = minibatch.with_columns(facts)
        for segment in others:
            minibatch = self._surveyed(segment, segment.of(current), minibatch)
        return minibatch, metrics

    def _surveyed(self, segment: Segment, own: TrainBatch, minibatch: TrainBatch) -> TrainBatch:
        """The minibatch with what the losses of another kind need of all of it, and with its decisions ``own`` counted again."""
        for number, part in enumerate(segment.parts, segment.first):
            told = part.survey(own)
            counted_NS = part.counted(own)
            weight_NS = segment.weight * self.aggregation(counted_NS, own.part_NS, own.episode_N)
            facts = {**told, f"weight/{number}": weight_NS, f"share/{number}": TokenMean()(counted_NS)}
            own, minibatch = own.with_columns(told), minibatch.with_columns(facts)
        return replace(minibatch, mask_NS=minibatch.mask_NS | own.mask_NS)

    def _current(self, models: Models, minibatch: TrainBatch) -> TrainBatch:
        """With the policy's outputs on the minibatch at the start of this update, where a part needs all of them."""
        late, provides = needs_of(*self.summed, *self.masks), models.policy.provides
        foreseen = not late.isdisjoint(preview.COLUMNS)
        if "current_NS" in late and late.isdisjoint(provides) and not foreseen and has_not_moved(models, minibatch):
            minibatch = replace(minibatch, current_NS=minibatch.proximal_NS)
        elif "current_NS" in late or foreseen or not provides.isdisjoint(needs_of(*self.masks)):
            found = models.evaluated(minibatch, late & provides | ({"hidden_NSH"} if foreseen else set()))
            found["current_NS"] = found.pop("logprob_NS")
            minibatch = minibatch.with_columns(found)
        if foreseen:
            hidden_NSH, temperature = minibatch.column("hidden_NSH", self), models.forward.temperature
            columns = preview.preview(models.policy, models.optimizers[POLICY], minibatch, hidden_NSH, temperature)
            minibatch = minibatch.with_columns(columns)
        return minibatch

    def losses(self, models: Models, batch: TrainBatch) -> Iterator[Loss]:
        yield self._loss(models, batch)

    def _loss(self, models: Models, micro: TrainBatch) -> Loss:
        metrics: Metrics = defaultdict(float)
        logprob_NS, micro = self._evaluate(models, micro)
        loss = models.ranks.nothing(logprob_NS)
        for segment in self.segments:
            if (own_N1 := segment.own_N1(micro)) is None:
                loss = loss + self._of_segment(segment, logprob_NS, micro, metrics)
            elif bool((own_N1 & micro.mask_NS).any()):
                # 0 in the rows of other kinds: a ratio to what they lack may be infinite, and its gradient not a number.
                loss = loss + self._of_segment(segment, logprob_NS.where(own_N1, 0), segment.of(micro), metrics)
        of = (POLICY, *([CRITIC] if CRITIC in models.optimizers else []), *self.separate)
        return Loss(of=of, value=loss, metrics=metrics)

    def _of_segment(
        self, segment: Segment, logprob_NS: Float[Tensor, "N S"], micro: TrainBatch, metrics: Metrics
    ) -> Float[Tensor, ""]:
        """The loss of the rows of one kind; ``metrics`` get theirs."""
        loss = logprob_NS.new_zeros(())
        for number, part in enumerate(segment.parts, segment.first):
            objective = number == segment.first
            read = (logprob_NS, micro)
            if objective:
                read = _watched(*read, micro.facts[f"share/{number}"], metrics, segment.named("live_frac"))
            terms = part(*read)
            if not isinstance(terms, Terms):
                raise wrong(part, "__call__", terms, "Terms(loss_NS=...)")
            shaped(part, terms.loss_NS, logprob_NS)
            weight_NS, share_NS = micro.facts[f"weight/{number}"], micro.facts[f"share/{number}"]
            if number == 0:
                weight_NS = weight_NS * micro.facts["correction"]
            loss_NS, counted_NS = weight_NS * terms.loss_NS, share_NS > 0
            term = ops.masked_sum(loss_NS, counted_NS)
            for name, value in _by_role(loss_NS.detach(), counted_NS, micro).items():
                metrics[name] += value
            if objective and logprob_NS.requires_grad and not term.requires_grad and term.item() != 0:
                wanted = (
                    "a loss of the logprob_NS that it is given, with its gradient; columns of the batch are constants"
                )
                raise wrong(part, "__call__", terms.loss_NS, wanted)
            loss = loss + term
            if objective:
                found = _of_objective(term, logprob_NS, share_NS, counted_NS, micro)
                metrics |= {segment.named(name): value for name, value in found.items()}
            for name, value in _mean_of_each(terms.metrics, share_NS, counted_NS).items():
                metrics[segment.named(name)] += value
        return loss

    def _evaluate(self, models: Models, micro: TrainBatch) -> tuple[Float[Tensor, "N S"], TrainBatch]:
        """Log-probabilities with gradient, and the micro-batch with the other columns that carry one."""
        needs, critic = needs_of(*(part for segment in self.segments for part in segment.parts)), models.get(CRITIC)
        valued = not needs.isdisjoint({"new_value_NS", "new_value_NSM"})
        assert critic is not None or not valued, "compose.check refuses a value loss without a critic"
        decisions = micro.decisions
        assert decisions is not None
        evaluation = models.evaluate(
            micro,
            needs | (critic.reads if critic is not None and valued else frozenset()),
            checkpointing=self.optimization.checkpointing,
        )
        micro = micro.evaluated(evaluation.columns)
        if critic is not None and valued:
            value_NSM = critic.present(decisions, micro.hidden_NSH)
            micro = replace(micro, new_value_NS=critic.combine(value_NSM), new_value_NSM=value_NSM)
        return evaluation.logprob_NS, micro

    def step_factor(self, metrics: Mapping[str, float]) -> float:
        return 1.0 if self.step_size is None else self.step_size(metrics)

    def moved(self, models: Models, metrics: Mapping[str, float]) -> None:
        with models.timed(ANCHOR):
            models.parts[ANCHOR].observe(models.policy, metrics)

    def stepped(self, models: Models, batch: TrainBatch) -> Metrics:
        anchor = models.parts[ANCHOR]
        if CRITIC in models:
            models[CRITIC].observe(batch)
        with models.timed(ANCHOR):
            anchor.publish(models.policy, models.version)
        if REFERENCE in models and models.version in self.reference_resets:
            models.renew(REFERENCE)
        return {"anchor/bytes": float(anchor.nbytes())}

    def arrived(self, models: Models, group: Group) -> None:
        with models.timed(ANCHOR):
            models.parts[ANCHOR].arrived(group, models.forward)

    def before_update(self, models: Models, held: Callable[[], Sequence[Group]]) -> None:
        def evaluate(rows: TrainBatch, policy: AbstractPolicy | None = None) -> Tensor:
            found = models.evaluated(rows.to(models.device), policy=policy)
            return found["logprob_NS"].to(rows.mask_NS.device)

        with models.timed(ANCHOR):
            models.parts[ANCHOR].before_update(held, evaluate)

    def close(self, models: Models) -> None:
        models.parts[ANCHOR].close()


@dataclass(frozen=True, kw_only=True)
class PolicyGradient(AbstractPolicyGradient):
    """Only the learning half of a run, for a ``Learner`` in another loop."""


def _told(
    reports: Metrics, part: AbstractAdvantage | AbstractRewardShaping, value_NS: Float[Tensor, "N S"], batch: TrainBatch
) -> Float[Tensor, "N S"]:
    """The part's numbers. The first part whose numbers are not finite, though the critic's are, is named in the reports."""
    known = any(name.startswith(BROKEN) for name in reports)
    whole = batch.value_NS is None or bool(batch.value_NS.isfinite().all())
    if not known and whole and not bool(value_NS[batch.mask_NS].isfinite().all()):
        reports[f"{BROKEN}{type(part).__name__}"] = 1.0
    return value_NS


def column_needs(method: AbstractPolicyGradient) -> frozenset[str]:
    """The optional columns that some part of the method reads."""
    # The anchor is always there: it is what the discrepancy is measured against.
    return needs_of(*method.readers) | {"proximal_NS"}


def needs_of(*parts: Any) -> frozenset[str]:
    """The union of what these parts read."""
    return frozenset().union(*(part.needs for part in parts))


def of_reference(needs: frozenset[str]) -> frozenset[str]:
    """The columns among these that the reference must evaluate, in addition to its log-probability of each decision."""
    return frozenset(name.removeprefix(OF_REFERENCE) for name in needs if name.startswith(OF_REFERENCE))


def of_proximal(needs: frozenset[str]) -> frozenset[str]:
    """The columns among these that the policy must evaluate as the update begins."""
    return frozenset(name.removeprefix(OF_PROXIMAL) for name in needs if name.startswith(OF_PROXIMAL))


def score_norm_N(models: Models, batch: TrainBatch) -> Float[Tensor, " N"]:
    """|grad sum_t log pi| of each row, over all parameters: one backward pass a row."""
    weights = models.trained([POLICY])
    norms = []
    for row in torch.arange(batch.shape[0]).split(1):
        one = batch.select(row)
        assert one.decisions is not None
        logprob_NS = models.policy.evaluate(one.decisions, temperature=models.forward.temperature).logprob_NS
        gradient = torch.autograd.grad(ops.masked_sum(logprob_NS, one.mask_NS), weights, allow_unused=True)
        norms.append(torch.stack([g.square().sum() for g in gradient if g is not None]).sum().sqrt())
    return torch.stack(norms).float()


def _of_objective(
    term: Float[Tensor, ""],
    logprob_NS: Float[Tensor, "N S"],
    share_NS: Float[Tensor, "N S"],
    counted_NS: Bool[Tensor, "N S"],
    micro: TrainBatch,
) -> Metrics:
    """Logged metrics of the objective, in addition to its own."""
    metrics = {"loss": float(term.detach())}
    if micro.proximal_NS is not None:  # how far the policy is from its anchor as this update begins
        apart_NS = logprob_NS.detach() - micro.column("proximal_NS", _of_objective)
        metrics["cause/update"] = float(ops.masked_sum(share_NS * apart_NS, counted_NS))
    if micro.advantage_NS is not None:
        metrics["signal_frac"] = float((share_NS * (micro.advantage_NS != 0)).sum())
    return metrics


def _watched(
    logprob_NS: Float[Tensor, "N S"], micro: TrainBatch, share_NS: Float[Tensor, "N S"], metrics: Metrics, name: str
) -> tuple[Float[Tensor, "N S"], TrainBatch]:
    """Both as the objective reads them. Its backward pass tells, under this name, the share of the decisions that it moves by their
    log-probability or another column that carries gradient: those that clip, mask and correction left one."""
    metrics[name], reached_NS = 0.0, torch.zeros_like(share_NS, dtype=torch.bool)

    def tell(gradient_NSX: Tensor) -> None:
        reached_NS.logical_or_(gradient_NSX.reshape(*reached_NS.shape, -1).ne(0).any(-1))
        metrics[name] = float((share_NS * reached_NS).sum())

    def watched(x_NSX: Tensor) -> Tensor:
        if x_NSX.requires_grad and x_NSX.shape[:2] == reached_NS.shape:
            x_NSX = x_NSX.view_as(x_NSX)  # the gradient of the objective's own reading, without a regulariser's
            x_NSX.register_hook(tell)
        return x_NSX

    live = {fact: watched(micro.facts[fact]) for fact in sorted(micro.live) if fact in micro.facts}
    return watched(logprob_NS), micro.with_columns(live)


def _mean_of_each(
    columns: Mapping[str, Tensor], share_NS: Float[Tensor, "N S"], counted_NS: Bool[Tensor, "N S"]
) -> Metrics:
    """sum share x of each column: in one pass and one reading, since each takes as long as a layer of a small network."""
    if not columns:
        return {}
    with torch.no_grad():
        x_MNS = torch.stack([x_NS.to(share_NS.dtype) for x_NS in columns.values()])
        return dict(zip(columns, torch.where(counted_NS, share_NS * x_MNS, 0).sum((1, 2)).tolist(), strict=True))


def _by_role(loss_NS: Float[Tensor, "N S"], counted_NS: Bool[Tensor, "N S"], micro: TrainBatch) -> Metrics:
    """What each role adds to a term of the loss, where there are several."""
    if micro.role_N is None or len(micro.roles) < 2:
        return {}
    own = {role: counted_NS & (micro.role_N == place)[:, None] for place, role in enumerate(micro.roles)}
    return {f"role/{role}/loss": float(ops.masked_sum(loss_NS, own_NS)) for role, own_NS in own.items()}


def has_not_moved(models: Models, minibatch: TrainBatch) -> bool:
    """Whether the anchor is the present policy: the first update on a batch."""
    at_N = minibatch.facts.get(EVALUATED_AT)
    return at_N is not None and bool((at_N == models.updates).all())
