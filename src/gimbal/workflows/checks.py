"""Checks on what a workflow yields and returns.

A user's workflow may yield anything, so everything is checked before it reaches an engine or the learner, where it would look like a
bug in gimbal, or train on decisions that were never sampled.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from types import GeneratorType
from typing import Any

import torch
from torch import Tensor

from gimbal.composition import GUIDES, AbstractPart, parts_of
from gimbal.config.own import OwnError, told
from gimbal.engines.base import DRAW
from gimbal.environments.base import AbstractEnvironmentSpec
from gimbal.policies.base import AbstractPolicy
from gimbal.policies.denoiser import DenoiserPolicy
from gimbal.policies.paths import Paths
from gimbal.policies.token import TokenPolicy
from gimbal.records import AbstractSampling, Drop, Episode, Rollout, Task, is_chat
from gimbal.workflows.base import AbstractWorkflow, Act, Ask, Attempt, Draw, Encode, Fork, Read, Stop, Write
from gimbal.workflows.flow import Flow

MOST_IDLE = 1_000  # consecutive continuations of an attempt without a new decision, per sample
MOST_CALLS = 100_000  # of an attempt, for each of its samples
TWICE = "a row that is already being sampled; use Fork to branch off a row"


def refused(workflow: AbstractWorkflow, steps: Generator[Any, Any, Any], call: Any, wrong: str) -> OwnError:
    """The refusal of a call, with the line that yielded it."""
    return OwnError(f"{type(workflow).__name__}{_line(steps)} yielded {type(call).__name__} with {wrong}")


def endless(workflow: AbstractWorkflow, flow: Flow) -> str:
    """A message if an attempt does not end: a user's generator may loop forever."""
    samples = len(flow.attempt.samples)
    if flow.idle <= MOST_IDLE * samples and flow.count <= MOST_CALLS * samples:
        return ""
    what = (
        f"{flow.idle:,} times in a row without a new decision" if flow.idle > MOST_IDLE * samples else "without an end"
    )
    where = f"{type(workflow).__name__}{_line(flow.newest.steps)}"
    return f"{where} continued {what}, after {flow.count:,} calls: is there an endless loop?"


def _line(steps: Any) -> str:
    """The current line of the innermost generator."""
    while isinstance(steps, GeneratorType) and isinstance(steps.gi_yieldfrom, GeneratorType):
        steps = steps.gi_yieldfrom
    frame = steps.gi_frame if isinstance(steps, GeneratorType) else None
    return "" if frame is None else f" ({Path(frame.f_code.co_filename).name}, line {frame.f_lineno})"


def unusable(call: Any, workflow: AbstractWorkflow, attempt: Attempt, policy: AbstractPolicy) -> str:
    """What is wrong with a call."""
    return next(_faults(call, workflow, attempt, policy), "")


def _faults(call: Any, workflow: AbstractWorkflow, attempt: Attempt, policy: AbstractPolicy) -> Iterator[str]:
    if isinstance(call, Draw | Fork | Write | Stop):
        yield from _of_sample(call, attempt)
    if isinstance(call, Draw | Fork):
        yield from _of_drawing(call)
    if isinstance(call, Draw | Ask) and not isinstance(call.task, Task | None):
        yield f"task={told(call.task)}; it must be a Task"
    if isinstance(call, Draw):
        yield from _of_told(call, policy)
        yield from _of_role(call, workflow)
        yield from _of_after(call, policy)
        yield from _of_start(call, policy)
    elif isinstance(call, Fork):
        most = min(call.row.length, (call.sampling or call.row.sampling).max_length - 1)
        if not _counts(call.at) or not 0 <= call.at <= most:
            yield (
                f"at={told(call.at)}; it must be the number of decisions to keep from the row, here 0 to {most} (the row has "
                f"{call.row.length})"
            )
        elif not isinstance(call.forced, tuple) or not all(map(_counts, call.forced)):
            yield f"forced={told(call.forced)}; it must be a tuple of token ids"
        elif call.at + len(call.forced) > most:
            yield f"{len(call.forced)} forced tokens after {call.at}, which leave no room to draw anything"
    elif isinstance(call, Write):
        yield from _of_text(call, workflow)
    elif isinstance(call, Act):
        yield from _of_acting(call)
    elif isinstance(call, Ask):
        if call.role not in workflow.roles:
            yield f"role={told(call.role)}; the roles of this workflow are {', '.join(workflow.roles) or 'none'}"
        if not isinstance(call.task, Task):
            yield "no task; an Ask gives the other policy one"
    elif isinstance(call, Read):
        if not call.rows or not all(isinstance(row, Rollout) and 0 < call.at <= row.length for row in call.rows):
            yield f"rows that have no decision {told(call.at)}; it reads rows that earlier calls returned, where they have come to"
    elif isinstance(call, Encode) and (call.task is None) == (call.row is None):
        yield "a task and a row, or neither; it encodes the prompt of a task, or what a row is told"


def _of_sample(call: Draw | Fork | Write | Stop, attempt: Attempt) -> Iterator[str]:
    if call.sample is not None and call.sample not in attempt.samples:
        yield f"sample={told(call.sample)}; the samples of this attempt are {', '.join(map(str, attempt.samples))}"


def _of_drawing(call: Draw | Fork) -> Iterator[str]:
    if not isinstance(call.row, Rollout) and not (call.row is None and isinstance(call, Draw)):
        yield f"row={told(call.row)}; it must be a row that an earlier call returned"
    if not isinstance(call.sampling, AbstractSampling | None):
        yield f"sampling={told(call.sampling)}; it must be an AbstractSampling, such as a replace(attempt.sampling, ...)"
    if call.most is not None and (not _counts(call.most) or call.most < 1):
        yield f"most={told(call.most)}; it must be the maximum number of decisions, 1 or above, or None"
    # A plain string would be read as one stop string per letter.
    if not isinstance(call.stop, tuple | list) or not all(isinstance(text, str) and text for text in call.stop):
        yield f'stop={told(call.stop)}; it must be a tuple of strings, such as ("=",)'


def _of_role(call: Draw, workflow: AbstractWorkflow) -> Iterator[str]:
    if call.role and call.role not in workflow.players:
        known = ", ".join(sorted(workflow.players)) or "none"
        yield f"role={told(call.role)}; the players of this workflow are {known}: name it in players"
    elif call.role and call.row is not None and call.role != call.row.role:
        yield f"role={told(call.role)} for a row of {told(call.row.role)}; the role that began a row continues it"


def _of_told(call: Draw, policy: AbstractPolicy) -> Iterator[str]:
    said = call.told
    if said is None:
        return
    if call.row is None:
        yield "told and no row; only a row that continues can be told something: Draw(row=row, told=...)"
    if isinstance(said, str):
        if not _is_text(said):
            yield "told=half of a surrogate pair, which is not text"
    elif is_chat(said):
        if not is_chat(call.row.task.columns.get("messages") if call.row else None):
            yield "messages in told, but the task is not a chat; use text"
    elif not isinstance(said, Sequence) or not all(map(_counts, said)):
        yield f"told={told(said)}; it must be text, a list of token ids, or messages with role and content"
    elif isinstance(policy, TokenPolicy):
        size = policy.model.get_input_embeddings().weight.shape[0]
        if strange := [token for token in said if isinstance(token, int) and not 0 <= token < size]:
            yield f"the token {strange[0]} in told; this model knows 0 to {size - 1}"


def _without_choice(row: Rollout) -> bool:
    """A path at temperature 0 has no decision, and only evaluations ask for one."""
    return isinstance(row.decisions, Paths) and not row.sampling.temperature


def _of_after(call: Draw, policy: AbstractPolicy) -> Iterator[str]:
    if call.after is None:
        return
    if not isinstance(policy, DenoiserPolicy) or not policy.history:
        yield "after, and the policy sees no block before: policy='Denoiser(history=true)'"
    elif not isinstance(call.after, Tensor) or call.after.shape != policy.sample_shape:
        yield f"after={told(call.after)}; it must be a finished sample of the shape {policy.sample_shape}"
    elif call.row is not None:
        yield "after and a row; a block follows another in a row of its own: leave row out"


def _of_start(call: Draw, policy: AbstractPolicy) -> Iterator[str]:
    if call.start is None:
        return
    if not isinstance(policy, DenoiserPolicy):
        yield "start, and only paths of a denoising policy begin at noise: leave it out"
    elif not isinstance(call.start, Tensor) or call.start.shape != policy.sample_shape:
        yield f"start={told(call.start)}; it must be noise of the shape {policy.sample_shape}"
    elif call.row is not None:
        yield "start and a row, which has begun: leave one of them out"


def _of_text(call: Write, workflow: AbstractWorkflow) -> Iterator[str]:
    if not is_chat([call.text]) and (not isinstance(call.text, str) or not _is_text(call.text)):
        yield f"text={told(call.text)}; it must be text" + (
            ", and half of a surrogate pair is none" if isinstance(call.text, str) else ""
        )
    if not call.text and not call.end:
        yield "no text and no end; a row needs at least one decision"
    # The learner would read unsampled text as decisions that the sampler was certain of.
    if DRAW in workflow.requires and not any(
        isinstance(p, AbstractPart) and GUIDES in p.effects() for p in parts_of(workflow)
    ):
        yield (
            "a row that is not sampled, but would train as if it were; a workflow that gives rows leaves DRAW out of "
            "requires, as Demonstrated does, or has GUIDES in effects(), as Guided does; for an observation use "
            "Draw(row=row, told=...)"
        )


def _of_acting(call: Act) -> Iterator[str]:
    if not isinstance(call.environment, AbstractEnvironmentSpec):
        yield f"environment={told(call.environment)}; it must be a tool or the spec of an environment"
    for name, seconds in (("deadline", call.deadline), ("setup", call.setup)):
        if seconds is None and name == "setup":
            continue
        if not isinstance(seconds, int | float) or not 0 < seconds < math.inf:
            yield f"{name}={told(seconds)}; it must be a number of seconds above 0"
    if call.overlap is not None and (not _counts(call.overlap) or call.overlap < 0):
        yield f"overlap={told(call.overlap)}; it must be a number of steps of the engine, 0 or above, or None"
    if not _counts(call.seat):
        yield f"seat={told(call.seat)}; it must be a number, different for each environment of one attempt"
    after = call.after
    if after is not None and not (isinstance(after, tuple | list) and len(after) == 2 and all(map(_counts, after))):
        yield f"after={told(after)}; it is (seat, how many actions)"


def checked(
    outcome: Episode | Drop,
    sample: int,
    workflow: AbstractWorkflow,
    owners: Mapping[str, str],
    roles: Mapping[tuple[int, int], str],
) -> Episode | Drop:
    """The result of an attempt at this sample; a Drop if it has nothing to train on. ``owners``: the model of each role with weights of
    its own; ``roles``: who drew each row, by (sample, row)."""
    if isinstance(outcome, Drop):
        return outcome
    name = type(workflow).__name__
    if fault := _of_rows(outcome, sample, workflow) or _of_owners(outcome, owners, roles):
        raise OwnError(f"{name} returned an episode with {fault}")
    if outcome.error or any(bool(row.mask_S.any()) or _without_choice(row) for row in outcome.rows):
        return outcome
    return Drop("undrawn", drawn=outcome.drawn, said=f"{name} returned an episode of which no decision counts (mask_S)")


def _of_rows(episode: Episode, sample: int, workflow: AbstractWorkflow) -> str:
    for at, row in enumerate(episode.rows):
        if row.sample != sample:
            return f"a row of sample {row.sample} for sample {sample}"
        if row.role in workflow.roles:
            return f"a row of {row.role}, which is not the policy being trained"
        if any(_same_decisions(row, other) for other in episode.rows[:at]):
            return "the same decisions in two rows, which would be trained on twice"
        try:
            row.validate()
        except AssertionError as error:
            return f"a row that differs from what was sampled: {error}"
    return ""


def _of_owners(episode: Episode, owners: Mapping[str, str], roles: Mapping[tuple[int, int], str]) -> str:
    """A row trains the model of its role, which must be the one that drew it."""
    for row in episode.rows:
        drew = roles.get((row.sample, row.row), "")
        if owners.get(row.role, "") != owners.get(drew, ""):
            return f"a row of role {told(row.role)} that {told(drew)} drew with other weights; name who acts in Draw(role=...)"
    return ""


def _same_decisions(row: Rollout, other: Rollout) -> bool:
    """Whether both rows count the same decisions: a continued row contains the row it continued."""
    if row is other:
        return True
    if (row.row, row.role) != (other.row, other.role):
        return False
    both = min(row.length, other.length)
    same = torch.equal(row.behavior_S[:both], other.behavior_S[:both])
    return same and bool((row.mask_S[:both] & other.mask_S[:both]).any())


def _counts(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_text(text: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in text) if not text.isascii() else True
