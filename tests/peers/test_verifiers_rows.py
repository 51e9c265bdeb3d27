"""The rows of a session against the branches of verifiers' message graph, on random scripts of turns (`make test-peers`).

verifiers keeps a graph of messages; each path to a leaf is a training sample. gimbal keeps the answers of a session; each token-exact
path through them is a row. Only the graph is loaded: the rest of verifiers needs clients of clouds that nothing here asks for.
"""

import random
import sys
import types
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

if find_spec("verifiers") is None or find_spec("renderers") is None:
    pytest.skip("verifiers is not here: make test-peers installs it", allow_module_level=True)


def _bare(name: str, path: str) -> None:
    """The package without what its __init__ imports."""
    module = types.ModuleType(name)
    module.__path__ = [path]
    sys.modules[name] = module


HOME = find_spec("verifiers").submodule_search_locations[0]
_bare("verifiers", HOME)
_bare("verifiers.v1", str(Path(HOME) / "v1"))
sys.path.insert(0, str(Path(__file__).parents[1]))

from made import rollout
from verifiers.v1 import graph
from verifiers.v1.types import AssistantMessage, Response, TurnTokens, UserMessage

from gimbal.policies.token import Tokens
from gimbal.serve.exchanges import Exchange, rows

USER, ASSISTANT, END = 1, 2, 3


class Script:
    """Conversations that begin anew, go on, split off, come at once, or come back with an answer written in other tokens."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.trace = types.SimpleNamespace(
            nodes=[], _head_index={}, mm_token_type_id_map={}, clear_preview=lambda key: None
        )
        self.exchanges = []
        self.turns = [[]]  # conversations so far, each a list of (role, text, tokens)
        self.count = 0

    def said(self) -> tuple[str, list[int]]:
        self.count += 1
        return f"text {self.count}", [self.draw.randint(10, 14) for _ in range(self.draw.randint(1, 3))]

    def ask(self) -> None:
        before = list(self.draw.choice(self.turns))
        if before and self.draw.random() < 0.25:  # the template writes an answer of before in other tokens
            place = self.draw.choice([n for n, turn in enumerate(before) if turn[0] == ASSISTANT])
            role, text, tokens = before[place]
            before[place] = (role, text, [role, 20 + place, *tokens[1:]])
        text, tokens = self.said()
        asked = [*before, (USER, text, [USER, *tokens, END])]
        prompt = [token for turn in asked for token in turn[2]] + [ASSISTANT]
        answer, drawn = self.said()
        drawn = [*drawn, END]
        self.to_graph(asked, prompt, answer, drawn)
        row = rollout(decisions=Tokens.row(prompt, drawn))
        self.exchanges.append(Exchange(session="s", rollout=row, text=""))
        self.turns.append([*asked, (ASSISTANT, answer, [ASSISTANT, *drawn])])

    def to_graph(self, asked, prompt, answer, drawn) -> None:
        spans, place = [], 0
        for _, _, tokens in asked:
            spans.append((place, place + len(tokens)))
            place += len(tokens)
        messages = [
            UserMessage(content=text) if role == USER else AssistantMessage(content=text) for role, text, _ in asked
        ]
        tokens = TurnTokens(
            prompt_ids=prompt, completion_ids=drawn, completion_logprobs=[0.0] * len(drawn), message_spans=spans
        )
        response = Response(
            id="r", created=0, model="m", message=AssistantMessage(content=answer), finish_reason="stop", tokens=tokens
        )
        graph.prepare_turn(self.trace, messages).commit(response)

    def branches(self) -> list[tuple[list[int], list[bool]]]:
        """(tokens, which of them count) of each path to a leaf, the first answered first; what two share counts in the first."""
        found, seen = [], set()
        for leaf in graph.leaves(self.trace):
            nodes, at = [], leaf
            while at is not None:
                nodes.append(at)
                at = self.trace.nodes[at].parent
            ids, counts = [], []
            for number in reversed(nodes):
                node = self.trace.nodes[number]
                ids += node.token_ids
                counts += [mask and number not in seen for mask in node.mask]
            seen |= set(nodes)
            found.append((ids, counts))
        return found


def ours(exchanges):
    found = []
    for row in rows(exchanges):
        first = int(row.decisions.prompt_N[0])
        found.append((row.decisions.ids_NL[0].tolist(), [False] * first + row.mask_S.tolist()))
    return found


@pytest.mark.parametrize("turns", [1, 4, 12])
def test_rows_are_branches(turns):
    """Token for token; and of the decisions each is in one row, which in verifiers are in every branch through their message."""
    split = rewritten = 0
    for seed in range(150):
        script = Script(seed)
        for _ in range(turns):
            script.ask()
        mine, theirs = ours(script.exchanges), script.branches()
        assert sorted(ids for ids, _ in mine) == sorted(ids for ids, _ in theirs), seed
        drawn = sum(exchange.rollout.length for exchange in script.exchanges)
        assert sum(map(sum, (counts for _, counts in mine))) == drawn == sum(map(sum, (counts for _, counts in theirs)))
        by_tokens = {tuple(ids): counts for ids, counts in theirs}
        for ids, counts in mine:
            everywhere = by_tokens[tuple(ids)]
            assert all(sampled for sampled, kept in zip(_sampled(script, ids), counts, strict=True) if kept)
            split += counts != everywhere
        rewritten += any(20 <= token < 100 for ids, _ in mine for token in ids)
    assert turns == 1 or (rewritten and split), "scripts in which nothing splits show little"


def _sampled(script, ids):
    """Which tokens of this path verifiers marks as drawn, in whichever branch."""
    for leaf in graph.leaves(script.trace):
        nodes, at = [], leaf
        while at is not None:
            nodes.append(script.trace.nodes[at])
            at = script.trace.nodes[at].parent
        tokens = [token for node in reversed(nodes) for token in node.token_ids]
        if tokens == ids:
            return [mask for node in reversed(nodes) for mask in node.mask]
    raise AssertionError("no such path")


def test_an_answer_that_somebody_wrote_does_not_count():
    """A conversation that comes with an answer nobody drew here: it is context, on both sides."""
    script = Script(0)
    text, tokens = script.said()
    script.turns = [[(USER, "u", [USER, 11, END]), (ASSISTANT, text, [ASSISTANT, *tokens, END])]]
    script.draw.random = lambda: 1.0
    script.ask()
    ((ids, counts),) = ours(script.exchanges)
    assert [(ids, counts)] == script.branches()
    assert sum(counts) == script.exchanges[0].rollout.length < len(ids) - 3
    assert torch.equal(rows(script.exchanges)[0].mask_S, torch.ones(sum(counts), dtype=torch.bool))
