import dataclasses
import os
import pickle
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from gimbal.policies.control import Steps
from gimbal.rewards.adapters import make
from gimbal.rewards.function import Function
from gimbal.rewards.isolation import RewardError

TRL = """
import asyncio
from neighbour import BONUS

def contains(prompts, completions, answer, level, **columns):
    assert prompts == ["2+2="] * len(completions) and columns["source"][-1] == "here"
    return [BONUS * n if a in c else None for c, a, n in zip(completions, answer, level)]

async def slow_contains(completions, answer):
    await asyncio.sleep(0.01)
    return [float(a in c) for c, a in zip(completions, answer)]

def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    return {"score": float(solution_str == ground_truth) + (data_source == "here"), "note": "x"}

needs_column = lambda completions, colour: [0.0 for _ in completions]

def wrong_shape(x): return 0.0
"""


@pytest.fixture
def module(tmp_path):
    (tmp_path / "neighbour.py").write_text("BONUS = 0.5")
    path = tmp_path / "my rewards.py"
    path.write_text(TRL)
    return str(path)


def test_trl_function_of_a_file_gets_repeated_columns_and_may_answer_none(module, group_of, opened):
    reward = opened(Function(function=f"{module}:contains"))
    assert reward.name == "contains"
    assert reward(group_of("4", "5", source="here", columns={"level": 3})) == [1.5, None]


def test_async_function(module, group_of, opened):
    assert opened(Function(function=f"{module}:slow_contains"))(group_of("4", "5")) == [1.0, 0.0]


def test_verl_compute_score_reads_the_answer_or_its_own_column(module, group_of, opened):
    reward = opened(Function(function=f"{module}:compute_score"))
    assert reward(group_of("4", "5")) == [1.0, 0.0]
    parquet = group_of("4", "5", source="here", columns={"reward_model": {"ground_truth": "5"}})
    assert reward(parquet) == [1.0, 2.0]


def test_a_missing_column_is_named_with_those_there_are(module, group_of, opened):
    with pytest.raises(
        RewardError,
        match=r"needs_column takes the column `colour`, and task t1 has only answer, id, source, and its prompt as prompts;",
    ):
        opened(Function(function=f"{module}:needs_column"))(
            group_of("4", columns={"messages": [{"role": "user", "content": "2+2?"}]})
        )


def test_a_column_that_is_not_there_is_named_with_those_of_the_file(group_of, opened):
    def asks(completions, **columns):
        return [columns["prompt"] for _ in completions]

    said = r"raised KeyError: 'prompt' .*the columns are answer, id, source, and its prompt as prompts$"
    with pytest.raises(RewardError, match=said):
        opened(Function(function=asks))(group_of("4", columns={"messages": [{"role": "user", "content": "2+2?"}]}))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("wrong_shape", r"wrong_shape could not be loaded: .*its parameters are \(x\).*completions"),
        ("absent", r"absent could not be loaded: my rewards.py has no absent"),
    ],
)
def test_a_function_that_cannot_be_used_is_refused_at_loading(module, group_of, opened, source, message):
    with pytest.raises(RewardError, match=message):
        opened(Function(function=f"{module}:{source}"))(group_of("4"))


def test_a_missing_file_is_refused_at_opening():
    with pytest.raises(RewardError, match=r"nowhere.py:f: there is no file .*nowhere\.py"):
        Function(function="nowhere.py:f").open()


def test_a_reference_without_a_function_is_refused_at_once():
    with pytest.raises(ValueError, match="module:name"):
        Function(function="rewards.py")


def test_module_by_name(group_of, opened, tmp_path, monkeypatch):
    (tmp_path / "importable.py").write_text("def f(completions): return [len(c) for c in completions]")
    monkeypatch.syspath_prepend(tmp_path)
    assert opened(Function(function="importable:f"))(group_of("a", "bcd")) == [1.0, 3.0]


def test_closure_over_local_state(group_of, opened):
    right = {"4", "four"}

    def closed(completions):
        return [c in right for c in completions]

    reward = opened(Function(function=closed))
    assert reward(group_of("four", "5")) == [1.0, 0.0]


def test_numpy_scores_and_token_ids(group_of, opened):
    def last_id(completions, completion_ids):
        return np.array([ids[-1] for ids in completion_ids], dtype=np.float32)

    assert opened(Function(function=last_id))(group_of("a", "b")) == [3.0, 4.0]


def test_a_function_that_takes_all_columns_gets_token_ids_where_there_are_any(group_of, opened):
    """TRL passes them to **kwargs too."""

    def last_id(completions, **kwargs):
        return [ids[-1] for ids in kwargs["completion_ids"] or [[-1]] * len(completions)]

    shape = {"observation_NSO": (1, 2, 3), "action_NSA": (1, 2, 1), "final_NO": (1, 3)}
    acted = Steps(
        **{name: torch.zeros(size) for name, size in shape.items()},
        length_N=torch.tensor([2]),
        terminated_N=torch.tensor([True]),
    )
    group = group_of("a", "b")
    assert opened(Function(function=last_id))(group) == [3.0, 4.0]
    without = tuple(dataclasses.replace(rollout, decisions=acted) for rollout in group.rollouts)
    assert opened(Function(function=last_id))(group.keep(without)) == [-1.0, -1.0]


@pytest.mark.parametrize("values", [{0: 1.0, 1: 0.0}, {1.0, 0.0}, b"ab", "10", [b"1", b"0"], ["1", "0"], 1.0])
def test_what_is_no_list_of_numbers_is_no_score(values):
    """Keys, bytes and members of a set can be gone through, and would pass for scores."""
    call = {"completions": ["a", "b"], "columns": {}, "prompt": "", "completion_ids": None}
    function, _ = make(lambda completions: values)
    with pytest.raises(ValueError, match=r"expected a list of 2 numbers|expected a number, or None"):
        function(call)


def test_chat_prompts_give_chat_completions(group_of, opened):
    def polite(prompts, completions):
        assert prompts[0][-1]["role"] == "user"
        return [float(c[0]["content"].endswith("please") and c[0]["role"] == "assistant") for c in completions]

    messages = [{"role": "user", "content": "2+2?"}]
    assert opened(Function(function=polite))(group_of("4 please", "4", columns={"messages": messages})) == [1.0, 0.0]


@pytest.mark.slow
def test_own_shapes_group_and_rollout(group_of, opened):
    def rank(group):
        order = sorted(len(r.text) for r in group.rollouts)
        return [order.index(len(r.text)) for r in group.rollouts]

    def length(rollout):
        return rollout.length + len(rollout.text)

    assert opened(Function(function=rank))(group_of("abc", "a", "ab")) == [2.0, 0.0, 1.0]
    assert opened(Function(function=length))(group_of("abc", "a")) == [5.0, 3.0]


def test_printing_corrupts_nothing(group_of, opened, capfd):
    def chatty(completions):
        import sys

        print("x" * 100_000)
        os.write(1, b"raw")
        sys.stderr.write("y\n")
        return [1.0 for _ in completions]

    reward = opened(Function(function=chatty))
    assert [reward(group_of("a")) for _ in range(3)] == [[1.0]] * 3
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ([1.0, float("nan")], "returned nan as the score of completion 1"),
        ([float("inf"), 0.0], "returned inf as the score of completion 0"),
        (
            [0.0, -1e308],
            "returned -1e\\+308 as the score of completion 1; expected a finite number of size 1e\\+15 at most",
        ),
        ([1.0], "returned 1 score for 2 completions"),
        ([1.0, 0.0, 1.0], "returned 3 scores for 2 completions"),
        (0.5, "returned 0.5; expected a list"),
        (["1.0", "0.0"], "returned '1.0' as the score of completion 0; expected a number"),
    ],
)
def test_what_is_no_score_stops_the_run_with_got_and_expected(group_of, opened, returned, message):
    def f(completions):
        return returned

    with pytest.raises(RewardError, match=f"reward f on task t1: .*{message}"):
        opened(Function(function=f))(group_of("a", "b"))


def test_a_raise_names_function_task_exception_and_line(group_of, opened):
    def broken(completions):
        return [{}["score"] for _ in completions]

    reward = opened(Function(function=broken))
    with pytest.raises(ValueError, match=r"broken on task t1: it raised KeyError: 'score' \(test_function.py, line"):
        reward(group_of("a"))


def test_a_call_that_never_returns_is_ended_and_the_next_call_works(group_of, opened):
    def stuck(completions):
        while completions[0] == "hang":
            pass
        return [1.0]

    reward = opened(Function(function=stuck, timeout=0.5))
    with pytest.raises(RewardError, match=r"stuck on task t1: it did not return within 0\.5 seconds"):
        reward(group_of("hang"))
    assert reward(group_of("fine")) == [1.0]


def test_a_process_that_ends_itself_is_reported_with_its_code(group_of, opened):
    def quits(completions):
        print("last words", flush=True)
        os._exit(3)

    with pytest.raises(RewardError, match=r"ended its process \(exit code 3\), its last output being: last words"):
        opened(Function(function=quits))(group_of("a"))


@pytest.mark.parametrize("exit_", [SystemExit, KeyboardInterrupt])
def test_an_exit_is_a_failure_of_the_function(group_of, opened, exit_):
    def leaves(completions):
        raise exit_

    with pytest.raises(RewardError, match=f"raised {exit_.__name__}"):
        opened(Function(function=leaves))(group_of("a"))


def test_a_fork_that_the_function_leaves_does_not_answer_for_the_next_call(group_of, opened):
    def forks(completions):
        if os.fork() == 0:
            __import__("time").sleep(0.05)
        return [float(len(text)) for text in completions]

    reward = opened(Function(function=forks))
    for text in ("a", "bb", "ccc"):
        assert reward(group_of(text)) == [float(len(text))]
        __import__("time").sleep(0.1)


def test_memory_beyond_the_limit_fails_in_the_worker(group_of, opened):
    def hog(completions):
        return [float(len(bytearray(4 << 30)))]

    with pytest.raises(RewardError, match="raised MemoryError"):
        opened(Function(function=hog, memory_gb=1.0))(group_of("a"))


def test_only_named_variables_are_seen(group_of, opened, monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "1")
    monkeypatch.setenv("JUDGE_URL", "1")

    def sees(completions):
        return ["SECRET_TOKEN" in os.environ, "JUDGE_URL" in os.environ]

    assert opened(Function(function=sees, variables=("JUDGE_URL",)))(group_of("a", "b")) == [0.0, 1.0]


@pytest.mark.parametrize("where", ["when it is called", "when it is loaded"])
def test_a_variable_that_is_not_seen_is_named_with_what_to_write(group_of, opened, monkeypatch, tmp_path, where):
    monkeypatch.setenv("MY_JUDGE_KEY", "1")
    looks = "os.environ['MY_JUDGE_KEY']"
    top, inner = ("", looks) if where == "when it is called" else (f"key = {looks}", "1.0")
    (tmp_path / "mine.py").write_text(
        f"import os\n{top}\ndef f(completions):\n    return [{inner} or 1 for c in completions]\n"
    )
    name, line = f"{tmp_path}/mine.py:f", 2 if top else 4
    said = rf"does not see the environment variable MY_JUDGE_KEY \(mine.py, line {line}\); name it: "
    with pytest.raises(RewardError, match=said + rf'Function\(function="{name}", variables=\["MY_JUDGE_KEY"\]\)$'):
        opened(Function(function=name))(group_of("a"))
    monkeypatch.delenv("MY_JUDGE_KEY")
    with pytest.raises(RewardError, match="MY_JUDGE_KEY is not set where the run was started either"):
        opened(Function(function=name, variables=("MY_JUDGE_KEY",)))(group_of("a"))


def test_the_line_that_is_named_is_the_users_and_not_a_librarys(group_of, opened, tmp_path):
    (tmp_path / "mine.py").write_text(
        "import json\ndef f(completions):\n    return [json.loads(c) for c in completions]\n"
    )
    with pytest.raises(RewardError, match=r"raised JSONDecodeError: .* \(mine.py, line 3\)"):
        opened(Function(function=f"{tmp_path}/mine.py:f"))(group_of("{"))


def test_the_directory_is_that_of_the_start(group_of, opened):
    here = os.getcwd()

    def where(completions):
        return [os.getcwd() == here]

    assert opened(Function(function=where))(group_of("a")) == [1.0]


def test_an_open_reward_is_still_a_value(group_of, opened):
    reward = opened(Function(function="importlib:reload", name="r"))
    again = pickle.loads(pickle.dumps(reward))
    assert again == reward == dataclasses.replace(reward) and hash(again) == hash(reward)


def test_a_call_without_open_opens(group_of):
    def one(completions):
        return [1.0]

    reward = Function(function=one)
    assert reward(group_of("a")) == [1.0]
    reward.close()
    reward.close()
    start = time.perf_counter()
    assert reward(group_of("a")) == [1.0]
    assert time.perf_counter() - start < 5
    reward.close()


def test_a_file_and_neighbours_that_only_their_owner_may_read(module, group_of, opened):
    for path in Path(module).parent.iterdir():
        path.chmod(0o600)
    reward = opened(Function(function=f"{module}:contains"))
    assert reward(group_of("4", "5", source="here", columns={"level": 3})) == [1.5, None]


def test_a_list_for_one_rollout_is_no_score(group_of, opened):
    def brightness(rollout):
        return [1.0]

    with pytest.raises(
        RewardError, match=r"returned \[1.0\] .*expected a number for the one completion that it is given"
    ):
        opened(Function(function=brightness))(group_of("a"))


def test_what_a_function_reads_is_known_before_it_scores(opened):
    def texts(completions):
        return [0.0 for _ in completions]

    def together(group):
        return [0.0 for _ in group.rollouts]

    def single(rollout):
        return 0.0

    found = [opened(Function(function=one)) for one in (texts, together, single)]
    assert [one.reads_texts for one in found] == [True, False, False]
    assert [one.of_groups for one in found] == [False, True, False]
