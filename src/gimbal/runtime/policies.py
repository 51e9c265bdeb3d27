"""The policies that a run loads: its own, and those of roles with weights of their own."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from gimbal.composition import Advice, Refusal, Verdict
from gimbal.config import paths
from gimbal.learning.base import AbstractLearner, OfPolicy
from gimbal.learning.learner import Learner
from gimbal.learning.ranks import AbstractRanks
from gimbal.learning.separate import SeparateWeights
from gimbal.learning.updates.base import POLICY
from gimbal.learning.updates.off_policy import AbstractOnDecisions
from gimbal.learning.updates.policy_gradient import AbstractPolicyGradient
from gimbal.policies import control
from gimbal.policies.base import AbstractPolicy, AbstractPolicySpec
from gimbal.runtime import checkpoint
from gimbal.runtime.run import AbstractRun, Run, UpdateRun


def learner(
    run: AbstractRun, where: torch.device, policy: AbstractPolicy, ranks: AbstractRanks, *, resume: Path | None = None
) -> Learner:
    """The run's learner. ``resume``: the checkpoint to take the models of roles from; its state follows by ``load_state``."""
    return Learner(
        policy,
        run.learns,
        temperature=run.sampling.temperature,
        first=lambda: ranks.shard(_first(run, policy).to(where)),
        total_steps=run.steps,
        seed=run.seed,
        ranks=ranks,
        separate=separate(run if resume is None else at(run, resume / "model"), policy),
        begins=carried(run) if resume is None else None,
    )


def begins(run: AbstractRun) -> Iterator[Verdict]:
    """Whether what it takes from another run (``begin_from``) fits the rest."""
    if not (named := run.learns.begins_from):
        return
    if not _others(run):
        yield Refusal(
            f"update.begin_from is for models besides the policy, and {type(run.learns).__name__} has none that learns by itself: "
            f"policy.model={named}/model goes on from that run, without update.begin_from"
        )
    elif not vars(run.policy).get("model"):
        yield Advice(
            f"update.begin_from begins with the critics of {named} and with a policy that knows nothing: policy.model={named}/model "
            f"begins with its policy too, where that is a {type(run.policy).__name__}"
        )
    elif (
        isinstance(run.learns, AbstractOnDecisions)
        and (explore := run.learns.explores())
        and explore.at(0) > explore.last
    ):
        yield Advice(
            f"update.begin_from goes on from a run that has learned, and update.explore begins at {explore.first:g} as for one that "
            f"knows nothing: update.explore.first={explore.last:g} keeps to what it learned"
        )


def unread(run: AbstractRun) -> Iterator[Advice]:
    """Settings of a control policy that have no effect, because the saved policy it starts from decides them."""
    if saved := control.unread(run.policy):
        values = " and ".join(f"{name} {json.dumps(value)}" for name, value in sorted(saved.items()))
        fields = " and ".join(f"policy.{name}" for name in sorted(saved))
        yield Advice(
            f"policy.model={vars(run.policy)['model']} was saved with {values}, and stays so: {fields} as given here changes nothing"
        )


def carried(run: AbstractRun) -> dict[str, Mapping[str, Tensor]]:
    """The other run's weights that this one's models start from, by name (``begin_from`` of its update)."""
    if not (named := run.learns.begins_from):
        return {}
    place = Path(named)
    if not place.is_dir():
        raise ValueError(
            f"begin_from={named} is no directory: name that of a run, as runs/RUN, or one of runs/RUN/checkpoints"
        )
    found = place if (place / checkpoint.MANIFEST).is_file() else checkpoint.newest_whole(place, lambda passed: None)
    if found is None:
        raise ValueError(
            f"begin_from={named} holds no checkpoint: name the directory of a run, as runs/RUN, or one of runs/RUN/checkpoints"
        )
    held, wanted = checkpoint.of_run(found)["learner"].get("models", {}), _others(run)
    if not (both := wanted & held.keys()):
        raise ValueError(
            f"begin_from={named} has no {' or '.join(sorted(wanted))}, which {type(run.learns).__name__} could begin with: name a run "
            "of an update with critics, as sac, td3, iql or cql"
        )
    return {name: held[name] for name in sorted(both)}


def _others(run: AbstractRun) -> set[str]:
    """The models besides the policy that learn: a loss moves them, or they follow one that it moves."""
    specs = run.learns.models()
    learn = {name for name, spec in specs.items() if spec.optimizer is not None and name != POLICY}
    return learn | {name for name, spec in specs.items() if spec.follows in learn}


def _first(run: AbstractRun, policy: AbstractPolicy) -> AbstractPolicy:
    """The run's reference, by default its initial policy. ValueError for one that cannot evaluate what the policy samples."""
    if (spec := _reference(run)) is None:
        return run.policy.load(run.seed)
    with _named("reference"):
        found = spec.load(run.seed)
    if why := found.reads(policy):
        raise ValueError(f"reference cannot evaluate what the policy samples: {why}")
    return found


def _reference(run: AbstractRun) -> AbstractPolicySpec | None:
    return run.learns.reference if isinstance(run.learns, AbstractPolicyGradient) else None


def separate(run: AbstractRun, policy: AbstractPolicy) -> dict[str, AbstractPolicy]:
    """The models of the run's ``separate`` by name, before training. ValueError if one has another architecture than the policy."""
    where = next(policy.parameters()).device
    found: dict[str, AbstractPolicy] = {}
    for name, one in _models(run).items():
        with _named(f"separate.{name}"):
            found[name] = unmapped(_spec(run, one).load(run.seed).to(where))
        if one.kind is None and shapes(found[name]) != shapes(policy):
            raise ValueError(
                f"separate.{name}.model is {one.model}, which has other tensors than the policy: all roles need the same architecture"
            )
    return found


def acting(learner: AbstractLearner, run: AbstractRun, role: str, policy: AbstractPolicy) -> AbstractPolicy:
    """The policy that acts in a role; ``policy`` where it has no model of its own."""
    own = learner.separate.get(run.learns.owners.get(role, ""))
    return own.policy if isinstance(own, OfPolicy) else policy


def alone(run: AbstractRun, name: str) -> AbstractRun:
    """The run as this model sees it: one of another kind with its own policy, engine, sampling and losses, any other as it is."""
    kind = run.learns.kinds.get(name)
    if kind is None or not isinstance(run, Run):
        return run
    parts = {"objective": kind.objective, "regularisers": kind.regularisers, "correction": None, "masks": ()}
    return replace(run, policy=kind.policy, engine=kind.engine, sampling=kind.sampling, separate={}, **parts)


def checked(run: AbstractRun, resumed: Path | None) -> AbstractRun:
    """The run to check. A run ``resumed`` in this directory is checked with its checkpoint's policy: the model that it began with,
    perhaps another run's, need not be there any more. Not a policy gradient, whose reference that model may be."""
    if resumed is None or not isinstance(run, UpdateRun):
        return run
    # What is wrong with newer ones is told when all of their files are read; here configurations are, no weights.
    whole = checkpoint.newest_whole(resumed, lambda sentence: None, "model", most=1_000_000)
    return run if whole is None else at(run, whole / "model")


def check_files(run: AbstractRun) -> None:
    """ValueError where the policy, its reference, a teacher or a role's model has nothing to load
    (``AbstractPolicySpec.check_files``)."""
    run.policy.check_files()
    others = {f"separate.{name}": _spec(run, one) for name, one in _models(run).items()}
    if (reference := _reference(run)) is not None:
        others["reference"] = reference
    if isinstance(run, UpdateRun):
        found = paths(run.update, "update.").items()
        others |= {path: part for path, part in found if isinstance(part, AbstractPolicySpec)}
    for part, spec in others.items():
        with _named(part):
            spec.check_files()


def _models(run: AbstractRun) -> Mapping[str, SeparateWeights]:
    return run.learns.separate if isinstance(run.learns, AbstractPolicyGradient) else {}


def _spec(run: AbstractRun, one: SeparateWeights) -> AbstractPolicySpec:
    if one.kind is not None:
        return one.kind.policy
    if not one.model:
        return run.policy
    # Which drops a leading "./", without which a missing directory would be looked for on the hub.
    place = Path(one.model)
    return run.policy.at(place.absolute() if one.model.startswith(".") else place)


@contextmanager
def _named(part: str) -> Iterator[None]:
    """Add the name of the entry to a refusal of its files."""
    try:
        yield
    except ValueError as error:
        field = f"{part}.model"
        raise ValueError(f"{field}: {str(error).replace('policy.model', field)}") from error


def shapes(policy: AbstractPolicy) -> dict[str, torch.Size]:
    """The shapes of its tensors, by name."""
    return {name: tensor.shape for name, tensor in policy.state_dict().items()}


def unmapped(policy: AbstractPolicy) -> AbstractPolicy:
    """Copy the weights out of the file that they may be mapped from. There they begin where its header ends, in a checkpoint at another
    place than in the first model, and a processor's kernels may round a product by where its matrix begins."""
    for tensor in (*policy.parameters(), *policy.buffers()):
        tensor.data = tensor.data.clone()
    return policy


def at(run: AbstractRun, model: Path) -> AbstractRun:
    """The run with the weights of all its models that were saved in this directory."""
    run = replace(run, policy=run.policy.at(model))
    if not isinstance(run, Run) or not run.separate:
        return run
    return replace(run, separate={name: _at(one, model / name) for name, one in run.separate.items()})


def _at(one: SeparateWeights, model: Path) -> SeparateWeights:
    if one.kind is None:
        return replace(one, model=str(model))
    return replace(one, kind=replace(one.kind, policy=one.kind.policy.at(model)))
