"""What the vLLM engine makes of rows that go on and fork, held against a vLLM of our own that draws by each request's seed.

The real one is held against the native engine in test_vllm.py, in an environment of its own.
"""

import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

from gimbal.engines.base import Request, drained
from gimbal.engines.vllm import VLLM
from gimbal.ops import philox
from gimbal.policies.token import CausalLM, Sampling
from gimbal.records import Part, Task
from gimbal.workflows.branching import Branching
from gimbal.workflows.dialogue import Dialogue
from gimbal.workflows.runner import Driven


@pytest.fixture(scope="module")
def policy():
    return CausalLM().load()


class FakeLLM:
    """Requests by id: (its tokens, its settings, how many were drawn)."""

    def __init__(self, faces, end):
        self.faces, self.end, self.live, self.seen = faces, end, {}, []
        self.model_config = SimpleNamespace(max_model_len=512)

    def collective_rpc(self, what, kwargs=None):
        if what == "reload_weights":
            return [list(kwargs["weights_iterator"])]
        return [SimpleNamespace(model=torch.nn.Module())]

    def add_request(self, name, tokens, params):
        self.live[name] = [tokens, params, 0]
        self.seen.append((tokens["ids"], params))

    def abort_request(self, names):
        for name in names:
            del self.live[name]

    def has_unfinished_requests(self):
        return bool(self.live)

    def step(self):
        outputs = []
        for name, (_, params, count) in list(self.live.items()):
            face, chance = philox("fake", params.seed, count).random(2)
            token = self.end if chance < 0.06 else self.faces[int(face * len(self.faces))]
            self.live[name][2] += 1
            stop = "stop" if token == self.end else "length" if count + 1 == params.max_tokens else None
            if stop:
                del self.live[name]
            logprobs = [{token: SimpleNamespace(logprob=-float(chance))}]
            drawn = SimpleNamespace(token_ids=[token], logprobs=logprobs, finish_reason=stop)
            outputs.append(SimpleNamespace(request_id=name, outputs=[drawn]))
        return outputs


@pytest.fixture
def started(policy, monkeypatch):
    """Starts an engine, and the vLLM in it."""
    faces = [policy.tokenizer.encode(face, add_special_tokens=False)[0] for face in "0123456789+-=="]
    fake = FakeLLM(faces, policy.end_ids[0])
    holder = {
        "vllm": {
            "EngineArgs": dict,
            "LLMEngine": SimpleNamespace(from_engine_args=lambda arguments: fake),
            "SamplingParams": SimpleNamespace,
        },
        "vllm.inputs": {},
        "vllm.inputs.engine": {"tokens_input": lambda ids, cache_salt: {"ids": ids, "salt": cache_salt}},
        "vllm.sampling_params": {"RequestOutputKind": SimpleNamespace(DELTA="delta")},
        "vllm.model_executor": {},
        "vllm.model_executor.layers": {},
        "vllm.model_executor.layers.vocab_parallel_embedding": {"ParallelLMHead": type("ParallelLMHead", (), {})},
    }
    for name, members in holder.items():
        module = ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)

    def start(workflow):
        live = Driven(engine=VLLM(slots=6, precision="float32"), workflow=workflow).start(policy)
        live.load(2, policy.state_dict())
        return live, fake

    return start


def ask(live, samples=6, **sampling):
    task = Task(id="a", prompt="1 + 2 =\n")
    for sample in range(samples):
        how = Sampling(**{"max_length": 30, **sampling})
        live.submit(Request(group=0, task=task, sample=sample, sampling=how, seed=3))
    return {key[1]: item.rollout for key, item in drained(live).items()}


def ids(row):
    return row.decisions.ids_NL[0, int(row.decisions.prompt_N[0]) : int(row.decisions.length_N[0])].tolist()


def test_a_dialogue_goes_on_from_its_tokens(started, policy):
    live, fake = started(Dialogue(overlap=3))
    rows = ask(live)
    prompt, answers = policy.tokenizer.encode("1 + 2 =\n"), 0
    for row in rows.values():
        row.validate()
        for turn in range(int(row.turn_S.max())):
            told = ((row.turn_S == turn) & (row.part_S == Part.OBSERVATION)).nonzero()[:, 0]
            before, upto = ids(row)[: int(told[0])], int(told[-1]) + 1
            assert policy.decode(before).endswith("=")
            asked = [params for tokens, params in fake.seen if tokens == [*prompt, *ids(row)[:upto]]]
            assert asked and all(params.max_tokens == 30 - upto for params in asked)
            answers += 1
        assert (row.behavior_S[row.mask_S] < 0).all() and (row.behavior_S[~row.mask_S] == 0).all()
        assert (row.version_S == 2).all() and row.length <= 30
    assert answers > 4 and not fake.live


def test_branches_share_what_vllm_has_already(started, policy):
    live, fake = started(Branching(trunks=1, places=3))
    rows = ask(live)
    prompt, forks = policy.tokenizer.encode("1 + 2 =\n"), 0
    for sample, row in rows.items():
        row.validate()
        if row.fork is None:
            continue
        at, trunk = row.fork[1], rows[0]
        assert ids(row)[:at] == ids(trunk)[:at] and torch.equal(row.behavior_S[:at], trunk.behavior_S[:at])
        assert row.mask_S.tolist() == [False] * at + [True] * row.drawn
        assert [*prompt, *ids(trunk)[:at]] in [tokens for tokens, _ in fake.seen]
        forks += sample > 0
    assert forks > 3 and len({params.seed for _, params in fake.seen}) == len(fake.seen), "each draws its own rest"


def test_a_dialogue_that_has_no_room_left_is_cut(started):
    live, _ = started(Dialogue(overlap=0))
    for row in ask(live, max_length=6).values():
        assert row.length <= 6 and row.stop in ("length", "stop")
