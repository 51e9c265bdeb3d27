"""Which runs may give roles weights of their own (``separate``), and what is refused, by name."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from gimbal.composition import AbstractPart, Composition, Refusal, Verdict, parts_of
from gimbal.dataflow.replay.once import Once
from gimbal.engines.denoising import Denoising
from gimbal.engines.native import Native
from gimbal.learning import preview
from gimbal.learning.kinds import OtherKind
from gimbal.learning.proximal.behavior import Behavior
from gimbal.learning.proximal.recompute import Recompute
from gimbal.learning.ranks import several
from gimbal.learning.updates.base import POLICY
from gimbal.learning.updates.policy_gradient import ANCHOR, CRITIC, REFERENCE, AbstractPolicyGradient
from gimbal.learning.weight_sync.sparse import Sparse
from gimbal.objectives.base import AbstractObjective
from gimbal.policies.denoiser import Denoiser
from gimbal.policies.token import CausalLM
from gimbal.runtime.base import Local
from gimbal.runtime.run import AbstractRun, Run

NAME = re.compile(r"\w([\w -]*\w)?")  # it names a directory, and ends names of metrics
TAKEN = {POLICY, CRITIC, REFERENCE, ANCHOR}


def fits(method: AbstractPolicyGradient, run: AbstractRun) -> Iterator[Verdict]:
    """Refusals of a run in which roles have weights of their own; nothing for any other."""
    if not method.separate:
        return
    yield from _named(method, run)
    for name, kind in method.kinds.items():
        yield from _of_kind(name, kind, run)
    first = next(iter(method.separate))
    for what, way in _unsupported(method, run):
        yield Refusal(
            f"separate gives {first} weights of its own, which does not work with {what}: {way}, or drop separate"
        )


def _named(method: AbstractPolicyGradient, run: AbstractRun) -> Iterator[Verdict]:
    """Each model has a name of its own, and roles that the workflow has and no other model takes."""
    players, driver = run.workflow.players, type(run.workflow).__name__
    known = ", ".join(sorted(players)) or "none"
    for name, one in method.separate.items():
        if not NAME.fullmatch(name) or name in TAKEN | run.workflow.roles.keys():
            yield Refusal(
                f"separate names a model {name!r}, which is reserved or not a plain name: choose another, and list its roles with "
                "roles=(...)"
            )
        if unknown := [role for role in one.roles or (name,) if role not in players]:
            yield Refusal(
                f"separate.{name} is for the role {unknown[0]!r}, but {driver} has the roles {known}: name one of them"
            )
    counted = Counter(role for name, one in method.separate.items() for role in one.roles or (name,))
    if twice := [role for role, count in counted.items() if count > 1]:
        yield Refusal(f"separate gives the role {twice[0]!r} two models: leave it with one of them")
    if players and players <= counted.keys():
        yield Refusal("separate leaves no role for the policy, which nothing would train: take one role out of it")


def _of_kind(name: str, kind: OtherKind, run: AbstractRun) -> Iterator[Verdict]:
    """A model of another kind is one that denoises, drawn in this process as the rest of the episode is."""
    place = f"separate.{name}.kind"
    for field, part, able in (("policy", kind.policy, Denoiser), ("engine", kind.engine, Denoising)):
        if not isinstance(part, able):
            yield Refusal(
                f"{place}.{field} is {type(part).__name__}; so far models of another kind are those that denoise: {able.__name__}()"
            )
    if isinstance(kind.policy, Denoiser) and kind.policy.lora is not None:
        yield Refusal(f"{place}.policy.lora trains adapters, which models of roles do not have: leave it out")
    if kind.sampling.temperature != run.sampling.temperature:
        yield Refusal(
            f"{place}.sampling.temperature is {kind.sampling.temperature:g}, but rows of a role are drawn at that of the episode: "
            f"sampling.temperature={kind.sampling.temperature:g}"
        )
    if not isinstance(run.store, Once):
        yield Refusal(
            f"{place} has rows of two kinds in one batch, which {type(run.store).__name__} does not keep: use store=Once()"
        )
    for part in kind.summed:
        if type(part).stages is not AbstractObjective.stages or part.needs & {
            "current_NS",
            "reference_NS",
            "new_value_NS",
        }:
            yield Refusal(
                f"{place} has {type(part).__name__}, which reads what is there only for the policy, or takes a batch in stages: use "
                "ClippedStep() or NormalizedStep(), with StepKL() or VelocityPenalty()"
            )
    if kind.weight == 0 and kind.regularisers:
        yield Refusal(f"{place}.weight is 0, so that its regularisers do nothing: leave them out, or raise it")


def alone(run: AbstractRun, kind: OtherKind) -> Iterator[Verdict]:
    """The parts of a model of another kind, as they are in the run of that model alone."""
    whole = Composition(run)
    assert isinstance(run, Run), type(run)
    yield from ratios_once(run)
    for part in parts_of(kind):
        if isinstance(part, AbstractPart):
            yield from part.fits(whole)


def ratios_once(method: AbstractPolicyGradient) -> Iterator[Verdict]:
    """No ratio is used twice."""
    owner: dict[str, str] = {ratio: f"the anchor {type(method.anchor).__name__}" for ratio in method.anchor.absorbs}
    for name, ratios in consumers(method):
        for ratio in sorted(ratios):
            if ratio in owner:
                yield Refusal(
                    f"{name} and {owner[ratio]} both consume the {ratio} ratio, so it would count twice: drop one of them "
                    "(with the anchor Behavior the clip already holds the discrepancy: correction=None)"
                )
            owner[ratio] = name


def consumers(method: AbstractPolicyGradient) -> list[tuple[str, frozenset[str]]]:
    """The parts that use a ratio, and which."""
    parts: list[Any] = [method.objective, *method.regularisers]
    if method.correction is not None:
        parts.append(method.correction)
    return [(type(part).__name__, part.consumes) for part in parts]


def _unsupported(method: AbstractPolicyGradient, run: AbstractRun) -> Iterator[tuple[str, str]]:
    """What trains or serves one model only, and what to type instead."""
    held_out = run.held_out
    engines = {"engine": run.engine, "held_out.engine": None if held_out is None else held_out.engine}
    for field, engine in engines.items():
        if engine is not None and not isinstance(engine, Native):
            yield f"{field}={type(engine).__name__}()", f"use {field}=Native()"
    if not isinstance(run.runtime, Local):
        yield f"runtime={type(run.runtime).__name__}()", "use runtime=Local()"
    if several():
        yield "a learner in several processes", "start it without torchrun"
    if isinstance(run.policy, CausalLM) and run.policy.lora is not None:
        yield "LoRA", "use policy.lora=none"
    if method.critic is not None:
        yield f"the critic {type(method.critic).__name__}", "use a group estimator such as GroupNormalized"
    if method.stability is not None:
        yield "Stability, which measures the policy's steps", "use stability=none"
    if not isinstance(method.anchor, Recompute | Behavior):
        yield f"the anchor {type(method.anchor).__name__}", "use anchor=Recompute()"
    for part in method.readers:
        if any(name == "reference_NS" or name.startswith("reference/") for name in part.needs):
            yield f"{type(part).__name__}, whose reference is of the policy", f"drop {type(part).__name__}"
        if part.needs & (preview.COLUMNS | {"score_norm_N"}):
            yield f"{type(part).__name__}, which reads gradients of the policy", f"drop {type(part).__name__}"
    if isinstance(run.sync, Sparse) and run.sync.directory:
        yield "sync.directory, which holds one model", "leave it empty"
    if run.devices is not None:
        yield "devices", "use devices=none"
    if run.faults is not None:
        yield "faults", "use faults=none"
