"""benchmarks/token_exactness.py, with fewer episodes: what is trained on is what was drawn, whatever way it took."""

import importlib.util
from pathlib import Path

import made
import pytest

from gimbal.policies.token import Tokens
from gimbal.records import Episode, Task

HERE = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def script():
    pytest.importorskip("openai")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(HERE))
        spec = importlib.util.spec_from_file_location("benchmark_token_exactness", HERE / "token_exactness.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module


@pytest.mark.slow  # 50 episodes in all, and openai takes seconds to import
@pytest.mark.parametrize(("way", "count"), [("dialogue", 20), ("agent", 20), ("serve", 10), ("vllm", 20)])
def test_trained_tokens_are_sampled_tokens(script, way, count):
    if way == "vllm":
        pytest.importorskip("vllm")  # make test-vllm
    found = script.measured(way, count)
    assert found["wrong"] == 0 and found["broken"] == 0 and found["tokens"] > 500
    assert found["rebuilt"] > 0.4  # with the others a loop that encodes its text again would train on other tokens


def test_a_wrong_token_is_counted(script, monkeypatch):
    drawn = script.Script.__new__(script.Script)
    drawn.drawn = [5, 6, 8]
    row = made.rollout(Task(id="t"), decisions=Tokens.row([1], [5, 6, 7]))
    monkeypatch.setattr(script, "rebuilt", lambda policy, episode: False)
    assert script.compared(None, drawn, [Episode.of(row)])["wrong"] == 1
