"""Parts of a user's that are wrong: they raise, or give what their kind does not give."""

from dataclasses import dataclass

from gimbal.advantages.base import AbstractAdvantage
from gimbal.dataflow.base import AbstractCurriculum, AbstractCurriculumSpec, AbstractFilter
from gimbal.environments.base import AbstractTasks
from gimbal.environments.tools import AbstractTool
from gimbal.objectives.base import AbstractObjective
from gimbal.records import Terms
from gimbal.rewards.base import AbstractReward
from gimbal.workflows.base import AbstractWorkflow

calls = []


@dataclass(frozen=True, kw_only=True)
class Objective(AbstractObjective):
    fault: str

    def __call__(self, logprob_NS, batch):
        calls.append(self.fault)
        if self.fault == "late" and len(calls) == 1:
            return Terms(loss_NS=-logprob_NS)
        if self.fault == "shape":
            return Terms(loss_NS=logprob_NS[:, :1])
        return {}["nothing"]


@dataclass(frozen=True, kw_only=True)
class Advantage(AbstractAdvantage):
    def __call__(self, batch):
        return [1.0]


@dataclass(frozen=True, kw_only=True)
class Workflow(AbstractWorkflow):
    fault: str

    def __call__(self, attempt):
        row = yield "draw" if self.fault == "call" else attempt.begin()
        if self.fault == "exits":
            raise SystemExit(0)
        return row


@dataclass(frozen=True, kw_only=True)
class Tool(AbstractTool):
    """Its triggers, which are asked outside of a call."""

    @property
    def triggers(self):
        raise RuntimeError("no triggers")

    def __call__(self, task, text):
        return None


@dataclass(frozen=True, kw_only=True)
class Reward(AbstractReward):
    name: str = "own"

    def __call__(self, group):
        return 1 / 0


@dataclass(frozen=True, kw_only=True)
class Filter(AbstractFilter):
    def __call__(self, group):
        return None


@dataclass(frozen=True, kw_only=True)
class Tasks(AbstractTasks):
    def __len__(self):
        return 5

    def __getitem__(self, index):
        return {"prompt": "1 + 1 ="}


class Live(AbstractCurriculum):
    def next(self):
        raise KeyError("next")

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        return None


@dataclass(frozen=True, kw_only=True)
class Curriculum(AbstractCurriculumSpec):
    def start(self, tasks, seed):
        return Live()


@dataclass(frozen=True, kw_only=True)
class NotFinite(AbstractAdvantage):
    def __call__(self, batch):
        return batch.mask_NS * float("nan")
