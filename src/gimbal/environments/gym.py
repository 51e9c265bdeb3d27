"""Tasks in environments with gymnasium's interface, and a live one."""

from __future__ import annotations

import copy
import json
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float, Shaped

from gimbal.config.own import LARGEST, learnable, told
from gimbal.config.parts import label, resolve
from gimbal.environments.apart import Apart
from gimbal.environments.attributes import check_grid, split, variants
from gimbal.environments.base import AbstractEnvironment, AbstractEnvironmentSpec, AbstractGenerated, Moment
from gimbal.environments.goals import ACHIEVED, DESIRED, PLAIN, Goals
from gimbal.environments.opening import AGENTS, BEGINS, COST, LEARNED_WORLD, SUCCESS, anew, opened, spaces_of, world_of
from gimbal.environments.spaces import each, pixels, plus, uncounted
from gimbal.ops import stable_hash
from gimbal.records import Task

MOST_CHOICES = 1024  # combinations of several choices that are taken as one


@dataclass(frozen=True, kw_only=True)
class Gymnasium(AbstractGenerated):
    """Task i is one episode of an environment, reset with a seed derived from (``seed``, i).

    ``tasks.environment=...`` gives policy, critic and evaluation the sizes of another environment: a name registered in gymnasium, or
    your own class, ``file.py:Class`` or ``pkg.module:Class`` (``module:Name-v0`` is a name that a module registers).
    ``Pendulum-v1@m=1.5,l=0.8`` is the one whose attributes ``m`` and ``l`` have these values. ``runs/RUN/model:DATASET`` is a learned
    world, begun at recorded steps (``LearnedWorld``).

    ``grid``: a family of environments, ``{m: [0.5, 1, 2]}``: every combination of these values in turn. Episodes i, i + 1, ... of one
    round begin from the same seed, so that only the attributes differ. Each has figures of its own (``eval/source/NAME/score``).

    - an empty ``grid``, the default: the environment as it is.
    """

    environment: str | Callable[..., Any] = "CartPole-v1"
    grid: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    seed: int = 0
    size: int = 1_000_000

    def __post_init__(self) -> None:
        if not isinstance(self.environment, str):
            object.__setattr__(self, "environment", label(self.environment))
        if not self.environment or self.size < 1:
            raise ValueError(
                f"Gymnasium has environment {self.environment!r} and size {self.size}; it needs a name, such as CartPole-v1 or "
                "file.py:Class, and at least 1 episode"
            )
        check_grid(self.source, self.grid, self.size)

    def task(self, index: int) -> Task:
        # Those of a family begin alike, so that a difference between them is not one of luck.
        first = self.source, self.seed, index // len(self.family)
        source = self.family[index % len(self.family)]
        seed = stable_hash("gymnasium", *first) % 2**31  # the range that all environments take
        return Task(id="/".join(map(str, (source, self.seed, index))), source=source, seed=seed)

    @cached_property
    def family(self) -> tuple[str, ...]:
        """The names of all its environments."""
        return variants(self.source, self.grid)

    @property
    def sources(self) -> tuple[str, ...]:
        return self.family if len(self.family) > 1 else ()

    @property
    def source(self) -> str:
        """Where the environment is found again."""
        return str(self.environment)

    def digests(self) -> dict[str, str]:
        found = world_of(split(self.source)[0])
        return {} if found is None else resolve(f"{LEARNED_WORLD}:digests")(*found)


@dataclass(frozen=True, kw_only=True)
class Registered(AbstractEnvironmentSpec):
    """A registered environment; see ``Gymnasium.environment``."""

    source: str = "CartPole-v1"

    def open(self) -> AbstractActed:
        return resolve(f"{AGENTS}:acted_in")(self.source)


P = TypeVar("P", bound="AbstractPlayed")


class AbstractPlayed(AbstractEnvironment):
    """A live environment with gymnasium's interface, found by ``source``; what it answers is checked."""

    source: str
    _env: Any

    def _begun(self, seed: int) -> Any:
        """The first observation."""
        answer = self._env.reset(seed=seed)
        if not isinstance(answer, tuple | list) or len(answer) != 2:
            raise ValueError(f"{self.source}.reset returned {told(answer)}; it must return (observation, info)")
        return answer[0]

    def _stepped(self, does: Any) -> tuple[Any, Mapping[str, Any], dict[str, Any]]:
        """The next observation, the info of the step, and the fields of a moment that every environment tells."""
        answer = self._env.step(does)
        if not isinstance(answer, tuple | list) or len(answer) != 5:
            count = f"{len(answer)} values" if isinstance(answer, tuple | list) else told(answer)
            raise ValueError(
                f"{self.source}.step returned {count}; it must return (observation, reward, terminated, truncated, info)"
            )
        seen, reward, terminated, truncated, info = answer
        ends = {
            "terminated": self._truth(terminated, "returned terminated"),
            "truncated": self._truth(truncated, "returned truncated"),
        }
        info = info if isinstance(info, Mapping) else {}
        return seen, info, {"reward": self._earned(reward), "success": self._reached(info), **ends}

    def _truth(self, said: Any, how: str, where: str = "") -> bool:
        if said is False or said is True:
            return said
        if not isinstance(said, np.bool_ | int | float | np.number) or said not in (0, 1):
            raise ValueError(f"{self.source}.step {how}={said!r:.60}{where}; it must be True or False")
        return bool(said)

    def _earned(self, reward: Any) -> float:
        """The reward as a number of usual size: learned from, any other would spoil every weight."""
        number = learnable(reward)
        if number is None:
            raise ValueError(
                f"{self.source}.step returned the reward {reward!r:.60}; it must be a finite number of size {LARGEST:g} at most"
            )
        return number

    def _reached(self, info: Mapping[str, Any]) -> bool | None:
        """Whether the goal is reached, where ``info`` says so."""
        said = info.get(SUCCESS)
        return None if said is None else self._truth(said, f"says {SUCCESS}", " in its info")

    def fork(self: P) -> P:
        """By a copy of all its state, which environments in plain Python have; one with a simulator outside of it does not."""
        other = copy.copy(self)
        try:
            other._env = copy.deepcopy(self._env)
        except Exception as error:  # whatever an environment's own objects raise where they cannot be copied
            raise NotImplementedError(f"{self.source} cannot be copied: {error}") from error
        return other

    def close(self) -> None:
        self._env.close()


class AbstractActed(AbstractPlayed):
    """One that shows and takes vectors, of one agent (``Environment``) or of each of several (``Agents``)."""

    agents = 0  # that act at once, each in a row of its own; 0: one row is all
    interface: str  # what it shows and takes, in words
    observations: int
    actions: int
    instant: bool

    @property
    @abstractmethod
    def real(self) -> bool:
        """Whether actions are vectors, not choices."""

    @property
    @abstractmethod
    def bound(self) -> float:
        """The largest action that it takes, in any direction; of choices 1."""

    def ask_reset(self, task: Task) -> None:
        """Where it is in a process of its own: begin to reset it, without waiting for that."""
        return

    def ask_step(self, action: Shaped[np.ndarray, "*agents A"]) -> None:
        """The same of a step."""
        return

    def kill(self) -> None:
        """Where it is in a process of its own: end that, in whatever call it is."""
        return


class Environment(AbstractActed):
    """One live environment; it can be reset for any task of its source. ``interface`` says what it shows and takes. With ``drawn`` it
    can be looked at too (``image``). ``of``: one that has been made already. With ``apart`` it is in that process, and what it answers
    is checked here."""

    def __init__(self, source: str, *, drawn: bool = False, of: Any = None, apart: Apart | None = None) -> None:
        import gymnasium  # late: it is an extra, and takes a while

        self._open = partial(opened, source, **({"render_mode": "rgb_array"} if drawn else {}))
        made = apart if of is None else of
        self._env, self._apart, self._used = self._open() if made is None else made, apart, False
        self._costs: bool | None = None  # whether its steps say what they cost; None before the first
        spaces, seen, acts = gymnasium.spaces, *(spaces_of(self._env, source) if apart is None else apart.spaces)
        if (other := next(uncounted(seen), None)) is not None:
            raise ValueError(
                f"{source} shows {other}; numbers of a fixed count are wanted: Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or "
                "Tuple of them (register it with a wrapper that makes them)"
            )
        flat = spaces.flatten_space(seen)
        assert isinstance(flat, spaces.Box), "each of its parts is"
        if (shown := next(pixels(seen), None)) is not None:
            raise ValueError(
                f"{source} shows pixels, a Box of {list(shown.shape)} from 0 to 255, and gimbal has no networks for them: register it "
                "with a wrapper that makes features of them, or with gymnasium.wrappers.FlattenObservation if plain numbers are meant"
            )
        self.instant = apart is None and _instant(self._env)
        # A vector is shown as it is; anything else as one vector, choices one-hot.
        self._flatten = None if isinstance(seen, spaces.Box) and len(seen.shape) == 1 else partial(spaces.flatten, seen)
        # One that is transposed would be flattened too.
        self._shape = seen.shape if isinstance(seen, spaces.Box) and self._flatten is not None else None
        self._bounds, self._choices, self.source, self.observations = None, None, source, flat.shape[0]
        if isinstance(acts, spaces.Discrete):
            self.actions, self._choices, does = int(acts.n), plus(int(acts.start)), "choices"
        elif isinstance(acts, spaces.MultiDiscrete) and acts.nvec.prod() <= MOST_CHOICES:
            self.actions, self._choices, does = int(acts.nvec.prod()), partial(each, acts), "choices"
        elif isinstance(acts, spaces.Box):
            self.actions, self._bounds, does = int(np.prod(acts.shape)), (acts.low, acts.high), "real actions"
        else:
            words = f"; a language model acts in it by tasks=\"TextGymnasiumTasks(environment='{source}')\""
            raise ValueError(
                f"{source} takes {acts}; a vector (Box), a choice (Discrete), or several with at most {MOST_CHOICES} combinations "
                f"(MultiDiscrete) is wanted{words if isinstance(acts, spaces.Text) else ''}"
            )
        self.interface = f"{self.observations} observations, {self.actions} {does}"

    @property
    def real(self) -> bool:
        return self._bounds is not None

    @property
    def bound(self) -> float:
        return 1.0 if self._bounds is None else float(np.abs(self._bounds).max())

    @property
    def limits(self) -> tuple[list[float], list[float]]:
        """The least and the largest of each number of an action; none of choices."""
        low, high = self._bounds or (np.zeros(0), np.zeros(0))
        return low.reshape(-1).tolist(), high.reshape(-1).tolist()

    def spec(self) -> str:
        """What gymnasium makes it by, in JSON, under the name by which it is found again; of a user's own, which may wrap a registered
        one, that name alone."""
        made, (place, _, short) = self._env.spec, self.source.rpartition(":")
        if made is None or split(self.source)[1] or (place and (made.id != short or callable(made.entry_point))):
            return json.dumps({"id": self.source, "entry_point": self.source})
        return json.dumps({**json.loads(made.to_json()), "id": self.source if place else made.id})

    def reset(self, task: Task, seed: int) -> Float[np.ndarray, " O"]:
        """Its state is drawn by the task's own seed: all samples of a task begin alike, in every run."""
        if self._used and self._apart is None:
            self._env = anew(self._env, self._open)
        self._used = True
        return self._shown(self._begun(task.seed), "reset")

    def step(self, action: Shaped[np.ndarray, " A"]) -> Moment:
        seen, info, said = self._stepped(self.taken(action))
        begins = info.get(BEGINS)
        if begins is not None and not (said["terminated"] or said["truncated"]):
            raise ValueError(
                f"{self.source}.step says in its info what the next episode {BEGINS} with, and ends none: let it be terminated or "
                "truncated"
            )
        begins = None if begins is None else self._shown(begins, "step")
        return Moment(observation=self._shown(seen, "step"), cost=self._cost(info), begins=begins, **said)

    def taken(self, action: Shaped[np.ndarray, " A"]) -> Any:
        """The action as the environment takes it. Real ones are clipped to the bounds here and nowhere else: what is recorded is what
        was drawn."""
        if self._choices is not None:
            return self._choices(int(action[0]))
        assert self._bounds is not None
        low, high = self._bounds
        return np.minimum(np.maximum(action.reshape(low.shape), low), high)  # np.clip takes twice as long

    def ask_reset(self, task: Task) -> None:
        if self._apart is not None:
            self._apart.ask("reset", task.seed)

    def ask_step(self, action: Shaped[np.ndarray, " A"]) -> None:
        if self._apart is not None:
            self._apart.ask("step", self.taken(action))

    def kill(self) -> None:
        if self._apart is not None:
            self._apart.kill()

    def _cost(self, info: Mapping[str, Any]) -> float | None:
        """What the step cost, where all of its steps say so."""
        said = info.get(COST)
        if self._costs is None:
            self._costs = said is not None
        if not self._costs and said is None:
            return None
        number = None if said is None else learnable(said)
        if number is None or not self._costs:
            one = "no cost" if said is None else f"{COST}={said!r:.60}"
            before = (
                ""
                if said is not None and self._costs
                else f", after steps that told {'one' if self._costs else 'none'}"
            )
            raise ValueError(
                f"{self.source}.step tells {one} in its info{before}; either each step tells a number of size {LARGEST:g} at most, 0 "
                "where it costs nothing, or none does"
            )
        return number

    def _shown(self, seen: Any, call: str) -> Float[np.ndarray, " O"]:
        try:
            flat = seen if self._flatten is None else self._flatten(seen)
        except KeyError as error:
            raise ValueError(
                f"{self.source}.{call} returned an observation without {error}, which its observation_space has"
            ) from error
        try:
            shown = np.array(flat, np.float32)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{self.source}.{call} returned the observation {seen!r:.60}, which is no array of numbers; its observation_space is "
                f"{self._env.observation_space}"
            ) from error
        if shown.shape != (self.observations,) or (self._shape is not None and np.shape(seen) != self._shape):
            raise ValueError(
                f"{self.source}.{call} returned an observation of shape {list(np.shape(seen))}; its observation_space is "
                f"{self._env.observation_space}"
            )
        if not shown.dot(shown) <= LARGEST**2:  # nan is not; a fifth of the time of abs().max()
            wrong = shown[~(np.abs(shown) <= LARGEST)]
            if len(wrong):
                raise ValueError(
                    f"{self.source}.{call} returned an observation with {wrong[0]:g}; all its numbers must be finite, and of size "
                    f"{LARGEST:g} at most"
                )
        return shown

    def image(self) -> Shaped[np.ndarray, "H W 3"]:
        """What it looks like now."""
        image = np.asarray(self._env.render())
        if image.ndim != 3 or image.shape[-1] != 3 or image.dtype != np.uint8:
            raise ValueError(
                f"{self.source}.render returned {image.dtype} of shape {list(image.shape)}; it must return uint8 of [height, width, 3]"
            )
        return image

    @property
    def pace(self) -> float:
        """Steps a second, as it would be watched."""
        return float(self._env.metadata.get("render_fps") or 30)

    @property
    def replans(self) -> bool:
        """Whether plans can be driven at other speeds (``replanned``)."""
        return self._env.has_wrapper_attr("replanned")

    def replanned(self, plan_A: Float[np.ndarray, " A"], factor: float) -> Float[np.ndarray, " A"]:
        """The plan from here at ``factor`` times its speeds, by the environment's own ``replanned(plan, factor)``; clipped to the
        bounds, as it is played."""
        answer = self._env.get_wrapper_attr("replanned")(plan_A.copy(), factor)
        try:
            found_A = np.asarray(answer, np.float32)
        except (TypeError, ValueError):  # no numbers, or not as many in each row
            found_A = np.zeros(0, np.float32)
        if found_A.shape != plan_A.shape or not np.isfinite(found_A).all():
            what = "a plan with nan or inf" if found_A.shape == plan_A.shape and answer is not None else told(answer)
            raise ValueError(
                f"{self.source}.replanned returned {what}; it must return a plan like the one it was given, of shape "
                f"{list(plan_A.shape)}, with finite numbers"
            )
        low, high = (np.reshape(limit, -1) for limit in self._bounds or (-np.inf, np.inf))
        return np.minimum(np.maximum(found_A, low), high).astype(np.float32)


def _instant(env: Any) -> bool:
    """Whether a step is a few lines of arithmetic in gymnasium's own code, without a loop or a wait: it needs no deadline."""
    kinds = [type(env)]
    while env is not env.unwrapped:
        env = env.env
        kinds.append(type(env))
    own = all(kind.__module__.startswith("gymnasium.wrappers.") for kind in kinds[:-1])
    return own and kinds[-1].__module__.startswith("gymnasium.envs.classic_control.") and env.render_mode is None


def goals_of(source: str) -> Goals:
    """The goals of an environment of this name; ValueError where it has none."""
    from gymnasium import spaces

    env = opened(source)
    seen = env.observation_space
    inner = seen.spaces if isinstance(seen, spaces.Dict) else {}
    try:
        reward = env.get_wrapper_attr("compute_reward")
    except AttributeError:
        reward = None
    lacking = [f"{name} in what is observed" for name in (PLAIN, ACHIEVED, DESIRED) if name not in inner]
    lacking += [] if callable(reward) else ["compute_reward(achieved_goal, desired_goal, info)"]
    if lacking:
        raise ValueError(
            f"{source} has no goals: its observations must be a Dict of {PLAIN}, {ACHIEVED} and {DESIRED}, and it must have "
            f"compute_reward(achieved_goal, desired_goal, info); it has no {' and no '.join(lacking)}; set store.hindsight=none, or "
            "give an environment that has them"
        )
    assert reward is not None, "it is lacking otherwise"
    one, other = inner[ACHIEVED], inner[DESIRED]
    if (
        not all(isinstance(space, spaces.Box) and len(space.shape) == 1 for space in (one, other))
        or one.shape != other.shape
    ):
        raise ValueError(
            f"{source} has the goals {one} and {other}; both must be vectors (Box) of the same size, so that what was reached can be "
            "wanted: give an environment with such goals, or set store.hindsight=none"
        )
    end_S = np.cumsum([spaces.flatdim(space) for space in inner.values()]).tolist()
    place = {name: slice(end - spaces.flatdim(inner[name]), end) for name, end in zip(inner, end_S, strict=True)}
    try:
        terminated = env.get_wrapper_attr("compute_terminated")
    except AttributeError:
        terminated = None
    return Goals(source, place[ACHIEVED], place[DESIRED], reward, terminated)
