"""The policies that a run loads: its own, and those of roles with weights of their own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from gimbal.learning.learner import Learner
from gimbal.learning.ranks import AbstractRanks
from gimbal.learning.updates.policy_gradient import AbstractPolicyGradient
from gimbal.policies.base import AbstractPolicy
from gimbal.runtime.run import AbstractRun, Run


def learner(run: AbstractRun, where: torch.device, policy: AbstractPolicy, ranks: AbstractRanks) -> Learner:
    return Learner(
        policy,
        run.learns,
        temperature=run.sampling.temperature,
        first=lambda: ranks.shard(run.policy.load(run.seed).to(where)),
        total_steps=run.steps,
        seed=run.seed,
        ranks=ranks,
        **separate(run, policy),
    )


def separate(run: AbstractRun, policy: AbstractPolicy) -> dict[str, AbstractPolicy]:
    """The models of the run's ``separate``, by name, as they begin. ValueError for one of another architecture than the policy."""
    learns, where = run.learns, next(policy.parameters()).device
    found: dict[str, AbstractPolicy] = {}
    for name, one in (learns.separate if isinstance(learns, AbstractPolicyGradient) else {}).items():
        spec = run.policy.at(Path(one.model)) if one.model else run.policy
        found[name] = own(spec.load(run.seed).to(where))
        if shapes(found[name]) != shapes(policy):
            raise ValueError(
                f"separate.{name}.model is {one.model}, which has other tensors than the policy: all roles need the same architecture"
            )
    return found


def shapes(policy: AbstractPolicy) -> dict[str, torch.Size]:
    """Of its tensors, by name."""
    return {name: tensor.shape for name, tensor in policy.state_dict().items()}


def own(policy: AbstractPolicy) -> AbstractPolicy:
    """Move the weights out of the file that they may still be mapped from: there they begin where its header ends, another place in a
    checkpoint than in the model it began with, and by where a matrix begins a processor's kernels may round its products."""
    for tensor in (*policy.parameters(), *policy.buffers()):
        tensor.data = tensor.data.clone()
    return policy


def at(run: AbstractRun, model: Path) -> AbstractRun:
    """The run with the weights that a run saved in this directory, of every model."""
    run = replace(run, policy=run.policy.at(model))
    if not isinstance(run, Run) or not run.separate:
        return run
    return replace(run, separate={name: replace(one, model=str(model / name)) for name, one in run.separate.items()})
