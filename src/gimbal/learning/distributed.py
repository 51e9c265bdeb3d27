"""One learner in several processes, under torchrun: weights, gradients and optimiser state in shards, by torch's FSDP2.

Rank 0 does everything in the run except gradients: it generates, scores, writes files. Every rank executes its learner's calls:

    rank 0   lead         prepare, step, control, save_state, load_state: sent to all ranks, done by all, answered by its own
    others   follow       execute its calls until rank 0 has ended

Each rank has the whole batch and computes all its statistics, so denominators cover the whole minibatch and gradients add
up: they are summed by the reduce-scatter, never averaged. Rows are distributed so that every rank has about the same
number of positions; rows of a group stay together where shares remain even, and always where a part compares them.

Costs: rank 0 also holds the full weights (engine, evaluation, delivery proof and checkpoints read them) and gathers them after each
step; the other ranks hold them in full while starting. A critic is not sharded: each rank has all of it, and its gradients are summed.
"""

from __future__ import annotations

import copy
import os
import signal
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, distribute_tensor

from gimbal.dataflow.packing import micro_batches
from gimbal.learning.base import AbstractLocalLearner
from gimbal.learning.learner import Learner, NotFinite
from gimbal.learning.optimizers import stacks
from gimbal.learning.ranks import AbstractRanks
from gimbal.learning.updates.base import POLICY, AbstractUpdate, Metrics
from gimbal.learning.updates.policy_gradient import AbstractPolicyGradient, column_needs
from gimbal.policies.base import AbstractPolicy, Evaluation
from gimbal.records import Group, TrainBatch

PATIENCE = timedelta(minutes=10)  # seconds to wait for a rank that does not do its part
LULL = timedelta(days=7)  # between two calls: rank 0 may generate for as long as it likes
UNEVEN = 1.2  # largest share over the mean share from which groups are split
END = "end"


class RankLost(ValueError):
    """Another rank died or did not respond in time."""


class Sharded(AbstractRanks):
    """The ranks of a torch process group."""

    def __init__(self) -> None:
        device = torch.device("cpu")
        if torch.cuda.is_available():
            device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
            torch.cuda.set_device(device)
        if not dist.is_initialized():
            dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo", timeout=PATIENCE)
        self.rank, self.size, self.device = dist.get_rank(), dist.get_world_size(), device
        self.mesh: DeviceMesh = init_device_mesh(device.type, (self.size,))
        orders = dist.new_group(backend="gloo", timeout=LULL)
        assert isinstance(orders, dist.ProcessGroup), "every rank is in it"
        self.orders = orders

    def micro_batches(
        self, batch: TrainBatch, tokens: int, *, policy: AbstractPolicy, whole_groups: bool = False
    ) -> list[TrainBatch]:
        assert batch.decisions is not None
        rows = shares(batch, self.size, whole_groups=whole_groups)[self.rank]
        own = batch.select(torch.tensor(rows)) if rows else None
        mine = [] if own is None else micro_batches(own, tokens, whole_groups=whole_groups, extent=policy.extent)
        most = torch.tensor(len(mine))
        dist.all_reduce(most, dist.ReduceOp.MAX)
        if len(mine) < int(most):
            mine += [_idle(batch.select(batch.decisions.cost_N.argmin()[None]))] * (int(most) - len(mine))
        return mine

    def total(self, numbers: Mapping[str, float]) -> dict[str, float]:
        summed = torch.tensor([numbers[name] for name in sorted(numbers)], dtype=torch.float64)
        dist.all_reduce(summed)
        found = dict(zip(sorted(numbers), summed.tolist(), strict=True))
        return {name: found[name] for name in numbers}

    def joined(self, columns: dict[str, Tensor]) -> dict[str, Tensor]:
        for name in sorted(columns):
            dist.all_reduce(columns[name])
        return columns

    def nothing(self, logprob_NS: Float[Tensor, "N S"]) -> Float[Tensor, ""]:
        # Every rank's backward pass must go through every weight, whatever the losses on its share depend on.
        return torch.where(torch.zeros_like(logprob_NS, dtype=torch.bool), logprob_NS, 0).sum()

    def clip(self, module: nn.Module, max_norm: float) -> float:
        if not isinstance(module, FSDPModule):
            for weight in module.parameters():
                weight.grad = torch.zeros_like(weight) if weight.grad is None else weight.grad
                dist.all_reduce(weight.grad)
        norm = torch.nn.utils.clip_grad_norm_(module.parameters(), max_norm)
        return float(norm.full_tensor() if isinstance(norm, DTensor) else norm)

    def shard(self, policy: AbstractPolicy) -> AbstractPolicy:
        """The same policy with its weights replaced by shards of rank 0's: one unit for each block of a stack, one for the rest."""
        source = [tensor.detach() for tensor in policy.parameters()] if self.rank == 0 else []
        hollow = copy.deepcopy(policy, {id(w): _hollow(w) for w in policy.parameters()})
        self._cut(policy)
        with torch.no_grad():
            for number, weight in enumerate(policy.parameters()):
                assert isinstance(weight, DTensor)
                weight.copy_(self.dealt(source[number] if source else None, weight))
        _copied(policy, hollow, self)
        return policy

    def gather(self, policy: AbstractPolicy, whole: AbstractPolicy | None) -> None:
        """Copy the trained weights and all buffers into ``whole``, which is rank 0's."""
        own = dict(whole.named_parameters()) if whole is not None else {}
        with torch.no_grad():
            for name, weight in policy.named_parameters():
                if weight.requires_grad:
                    assert isinstance(weight, DTensor)
                    full = weight.full_tensor()
                    if whole is not None:
                        own[name].copy_(full)
            if whole is not None:
                for present, buffer in zip(whole.buffers(), policy.buffers(), strict=True):
                    present.copy_(buffer)

    def dealt(self, tensor: Tensor | None, like: DTensor) -> DTensor:
        """A tensor of rank 0, sharded like another tensor."""
        given = torch.empty(like.shape, dtype=like.dtype) if tensor is None else tensor
        return distribute_tensor(given.to(self.device), self.mesh, like.placements, src_data_rank=0)

    def tell(self, order: tuple[str, Any] | None = None) -> tuple[str, Any]:
        """Rank 0's value, on every rank."""
        orders = [order]
        dist.broadcast_object_list(orders, src=0, group=self.orders, device=torch.device("cpu"))
        assert orders[0] is not None
        return orders[0]

    def _cut(self, policy: AbstractPolicy) -> None:
        # Weights are gathered in the type that is computed in; gradients are summed over the ranks in that of the weights.
        mixed = MixedPrecisionPolicy(param_dtype=policy.compute, reduce_dtype=torch.float32 if policy.compute else None)
        for block in [*(block for stack in stacks(policy) for block in stack.children()), policy]:
            fully_shard(block, mesh=self.mesh, mp_policy=mixed)
            assert isinstance(block, FSDPModule)
            block.set_gradient_divide_factor(1.0)  # denominators are global, so gradients are summed
            block.set_force_sum_reduction_for_comms(True)
        _as_forward(policy)


def lead(
    ranks: AbstractRanks, policy: AbstractPolicy, start: Callable[[AbstractPolicy, AbstractRanks], Learner]
) -> Leader:
    """Rank 0's learner; ``policy`` stays whole, and a copy of it is trained in shards."""
    assert isinstance(ranks, Sharded)
    return Leader(ranks, policy, _refused(start(ranks.shard(copy.deepcopy(policy)), ranks)))


def follow(
    ranks: AbstractRanks, policy: AbstractPolicy, start: Callable[[AbstractPolicy, AbstractRanks], Learner]
) -> None:
    """Run by every other rank: execute rank 0's calls until it has ended."""
    assert isinstance(ranks, Sharded)
    member = Member(ranks, _refused(start(ranks.shard(policy), ranks)), None)
    while True:
        verb = "wait for rank 0"
        try:
            verb, given = ranks.tell()
            if verb == END:
                return
            member.do(verb, given)
        except NotFinite:
            continue  # all ranks met it, and rank 0 reports it
        except RuntimeError as error:
            raise (RankLost(_lost(verb, error)) if _is_loss(error) else error) from error


def shares(batch: TrainBatch, count: int, *, whole_groups: bool) -> list[list[int]]:
    """Rows for each of ``count`` ranks: longest group first, to the rank with the least; row by row where groups make uneven shares."""
    assert batch.decisions is not None
    cost_N = batch.decisions.cost_N.tolist()
    units: dict[int, list[int]] = defaultdict(list)
    for row, label in enumerate(range(len(cost_N)) if batch.group_N is None else batch.group_N.tolist()):
        units[label].append(row)
    dealt = _dealt(list(units.values()), cost_N, count)
    largest = max(sum(cost_N[row] for row in rows) for rows in dealt)
    if whole_groups or largest * count <= UNEVEN * sum(cost_N):
        return dealt
    return _dealt([[row] for row in range(len(cost_N))], cost_N, count)


def _dealt(units: Sequence[Sequence[int]], cost_N: Sequence[int], count: int) -> list[list[int]]:
    loads, rows = [0] * count, [list[int]() for _ in range(count)]
    costs = [sum(cost_N[row] for row in unit) for unit in units]
    for number in sorted(range(len(units)), key=lambda n: -costs[n]):
        least = loads.index(min(loads))
        loads[least] += costs[number]
        rows[least] += units[number]
    return [sorted(own) for own in rows]


def _idle(micro: TrainBatch) -> TrainBatch:
    """A micro-batch that weighs nothing, for a rank with fewer than others: all must go through the layers as often."""
    weightless = {n: torch.zeros_like(x) for n, x in micro.facts.items() if n.startswith(("weight/", "share/"))}
    return replace(micro.with_columns(weightless), row_N=None)


def _hollow(weight: nn.Parameter) -> nn.Parameter:
    return nn.Parameter(torch.empty_like(weight, device="meta"), requires_grad=weight.requires_grad)


def _as_forward(policy: AbstractPolicy) -> None:
    """Let ``evaluate`` gather weights as a forward pass does, and let only the backward pass gather them again."""
    evaluate = policy.evaluate

    def columns(*args: Any, **kwargs: Any) -> dict[str, Tensor]:
        evaluation = evaluate(*args, **kwargs)
        return {"logprob_NS": evaluation.logprob_NS, **evaluation.columns}

    def spread(*args: Any, **kwargs: Any) -> Evaluation:
        found = vars(policy)["evaluated_columns"](*args, **kwargs)
        if not torch.is_grad_enabled():
            assert isinstance(policy, FSDPModule)
            policy.reshard()  # else the next pass would use these weights after the shards have changed
        # A copy: the learner asks for gradients at the log-probabilities, and that must not look like a backward pass.
        return Evaluation(logprob_NS=found.pop("logprob_NS").clone(), columns=found)

    vars(policy)["evaluated_columns"] = columns
    register_fsdp_forward_method(policy, "evaluated_columns")
    vars(policy)["evaluate"] = spread


def _copied(policy: AbstractPolicy, hollow: AbstractPolicy, ranks: Sharded) -> None:
    """Make ``copy.deepcopy`` work on a sharded policy, which FSDP refuses: anchors keep old weights with it."""

    def deepcopy(memo: dict[int, Any]) -> AbstractPolicy:
        new = copy.deepcopy(hollow)
        ranks._cut(new)
        new.to_empty(device=ranks.device)
        assert isinstance(new, FSDPModule)
        new.unshard()  # ties weights that have two names again
        new.reshard()
        with torch.no_grad():
            for copies, originals in ((new.parameters(), policy.parameters()), (new.buffers(), policy.buffers())):
                for own, other in zip(copies, originals, strict=True):
                    own.copy_(other)
        for own, other in zip(new.parameters(), policy.parameters(), strict=True):
            own.requires_grad_(other.requires_grad)
        _copied(new, hollow, ranks)
        return new

    vars(policy)["__deepcopy__"] = deepcopy


class Member:
    """One rank's part: its learner over shards and, on rank 0, the whole policy."""

    def __init__(self, ranks: Sharded, learner: Learner, whole: AbstractPolicy | None) -> None:
        self.ranks, self.learner, self.whole = ranks, learner, whole
        self.batch: TrainBatch | None = None

    def do(self, verb: str, given: Any) -> Any:
        """Execute one call; every rank does the same."""
        match verb:
            case "prepare":
                self.batch = self.learner.prepare(given)
                return self.batch
            case "step":  # without a batch, it is the prepared one
                batch = self.batch if given is None else given.to(self.ranks.device)
                assert batch is not None, "prepare comes before step"
                metrics = self.learner.step(batch)
                self.ranks.gather(self.learner.policy, self.whole)
                return metrics
            case "control":
                return self.learner.control(given)
            case "save_state":
                return _whole(self.learner.save_state(), keep=self.whole is not None)
            case "load_state":
                return self.learner.load_state(self._dealt(given))
            case _:
                raise AssertionError(verb)

    def _dealt(self, state: Any, path: tuple[Any, ...] = ()) -> Any:
        """What rank 0 loaded, for every rank, with weights and their moments in shards."""
        if isinstance(state, Mapping):
            return {name: self._dealt(value, (*path, name)) for name, value in state.items()}
        if isinstance(state, list | tuple):
            return type(state)(self._dealt(value, (*path, place)) for place, value in enumerate(state))
        if not isinstance(state, Tensor):
            return state
        tensor = None if state.is_meta else state
        like = self._like(path)
        if like is not None and like.shape == state.shape:
            return self.ranks.dealt(tensor, like)
        plain = torch.empty_like(state, device=self.ranks.device) if tensor is None else tensor.to(self.ranks.device)
        dist.broadcast(plain, src=0)
        return plain

    def _like(self, path: tuple[Any, ...]) -> DTensor | None:
        """The weight that a tensor of the state belongs to: a moment of it, or another version."""
        if path[:3] == ("optimizers", POLICY, "state"):
            weights = [w for group in self.learner.models.optimizers[POLICY].param_groups for w in group["params"]]
            found = weights[path[3]]
        else:
            found = self.learner.policy.state_dict().get(path[-1])
        return found if isinstance(found, DTensor) else None


class Leader(AbstractLocalLearner):
    """The learner as rank 0's run sees it; all ranks execute each call. ``policy`` is whole and of the current version."""

    def __init__(self, ranks: Sharded, policy: AbstractPolicy, learner: Learner) -> None:
        self.ranks, self.policy, self.member = ranks, policy, Member(ranks, learner, policy)
        self._gone = False
        self._main = threading.current_thread() is threading.main_thread()
        self._previous = signal.signal(signal.SIGTERM, self._stopped) if self._main else None

    @property
    def version(self) -> int:
        return self.member.learner.version

    @property
    def update(self) -> AbstractUpdate:
        return self.member.learner.update

    def prepare(self, batch: TrainBatch) -> TrainBatch:
        return self._all("prepare", batch)

    def step(self, batch: TrainBatch) -> Metrics:
        return self._all("step", None if batch is self.member.batch else batch.to(torch.device("cpu")))

    def errors(self, batch: TrainBatch) -> Float[Tensor, " N"]:
        raise AssertionError("an update that tells errors is refused with several ranks")

    def arrived(self, group: Group) -> None:
        """Nothing to do: anchors that listen to groups are refused with several ranks."""

    def before_update(self, held: Callable[[], Sequence[Group]]) -> None:
        """Nothing to do, for the same reason."""

    def control(self, metrics: Mapping[str, float]) -> Metrics:
        return self._all("control", dict(metrics))

    def save_state(self) -> dict[str, Any]:
        """In the layout of a learner in one process."""
        return self._all("save_state", None)

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._all("load_state", state, told=_outline(state))

    def close(self) -> None:
        """Let the other ranks end."""
        if not self._gone:
            self._gone = True
            self.ranks.tell((END, None))
        if self._main:
            signal.signal(signal.SIGTERM, self._previous)

    def _all(self, verb: str, given: Any, told: Any = None) -> Any:
        try:
            self.ranks.tell((verb, given if told is None else told))
            return self.member.do(verb, given)
        except RuntimeError as error:
            self._gone = _is_loss(error)
            raise (RankLost(_lost(verb, error)) if self._gone else error) from error

    def _stopped(self, number: int, frame: FrameType | None) -> None:
        """torchrun asks the remaining ranks to end; only while all ranks work together is a death noticed sooner."""
        if self._gone:
            return
        self._gone = True
        print(
            "gimbal: torchrun asks this run to stop: another rank died (its reason is above), or the job is ending. "
            "The newest checkpoint is complete: continue with --resume",
            file=sys.stderr,
            flush=True,
        )
        raise SystemExit(2)


def _refused(learner: Learner) -> Learner:
    """The learner, unless it does what cannot be done in shards."""
    update = learner.update
    if not isinstance(update, AbstractPolicyGradient):
        # It may call more of the policy than ``evaluate``, and only that gathers the shards.
        raise ValueError(
            f"a learner in several processes takes the steps of a policy gradient, but this run learns by {type(update).__name__}: "
            "start it without torchrun"
        )
    if "score_norm_N" in column_needs(update):
        raise ValueError(
            f"{type(update.advantage).__name__} reads score_norm_N, a gradient of each row apart, which a learner in several "
            "processes does not take: train in one, or use another advantage"
        )
    return learner


def _whole(state: Any, *, keep: bool) -> Any:
    """The state with every sharded tensor whole, or None in its place without ``keep``."""
    if isinstance(state, Mapping):
        return {name: _whole(value, keep=keep) for name, value in state.items()}
    if isinstance(state, list | tuple):
        return type(state)(_whole(value, keep=keep) for value in state)
    if isinstance(state, DTensor):
        full = state.full_tensor()
        return full.detach().cpu() if keep else None
    return state


def _outline(state: Any) -> Any:
    """The state with every tensor replaced by its shape and type."""
    if isinstance(state, Mapping):
        return {name: _outline(value) for name, value in state.items()}
    if isinstance(state, list | tuple):
        return type(state)(_outline(value) for value in state)
    return torch.empty_like(state, device="meta") if isinstance(state, Tensor) else state


def _is_loss(error: RuntimeError) -> bool:
    """Whether an error of torch says that another rank is gone; only some of these have a class."""
    return isinstance(error, dist.DistError) or "gloo" in str(error).lower()


def _lost(verb: str, error: RuntimeError) -> str:
    reason = str(error).splitlines()[0].rpartition("] ")[2].partition(". This is")[0]
    return (
        f"rank {dist.get_rank()} lost another rank ({verb}: {reason}): it died (its reason is above), or did nothing for "
        f"{PATIENCE}. The newest checkpoint is complete: start all ranks again with --resume"
    )
