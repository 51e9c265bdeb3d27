"""An engine whose policy is a function: it reads the whole context as text, and says what the function returns."""

from collections.abc import Callable
from dataclasses import dataclass

from dice import DiceEngine, Thrown

from gimbal.engines.base import CONTINUE, DRAW, AbstractEngineSpec


@dataclass(frozen=True, kw_only=True)
class Speaker(AbstractEngineSpec):
    """``says``: from the context, special tokens included, to the words of a turn."""

    says: Callable[[str], str]

    @property
    def can(self):
        return frozenset({DRAW, CONTINUE})

    def start(self, policy):
        return SpeakingEngine(policy, self.says)


class SpeakingEngine(DiceEngine):
    """A token a step; its log-probability is minus a hundredth of the length of its context, so that it tells the context."""

    def __init__(self, policy, says):
        super().__init__(policy, asks=False)
        self.says, self.words = says, {}

    def throw(self, row: Thrown):
        key = row.request.key
        if key not in self.words:
            said = self.says(self.policy.tokenizer.decode([*row.prompt, *row.drawn]))
            self.words[key] = [*self.policy.tokenizer.encode(said, add_special_tokens=False), self.policy.end_ids[0]]
        row.behavior.append(-0.01 * (len(row.prompt) + len(row.drawn)))
        row.drawn.append(self.words[key].pop(0))
        row.versions.append(self.version)
        if not self.words[key] or len(row.drawn) >= row.request.sampling.max_length:
            del self.words[key]

    def state_dict(self):
        return super().state_dict() | {"words": {key: [*left] for key, left in self.words.items()}}

    def load_state_dict(self, state):
        super().load_state_dict(state)
        self.words = {key: [*left] for key, left in state["words"].items()}
