"""Agents that only know an address, driven by the runner: what becomes of their requests, and of their failures."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from gimbal import recipes
from gimbal.engines.base import Request, drained
from gimbal.engines.native import Native
from gimbal.learning.weight_sync.receipts import load
from gimbal.policies.token import CausalLM, Sampling, Tokens
from gimbal.records import VISIT, Drop, Episode, Part, Task
from gimbal.rewards.exact import ExactAnswer
from gimbal.runtime.run import HeldOut
from gimbal.serve._host import _descendants
from gimbal.workflows.agent import Agent
from gimbal.workflows.runner import Driven

AGENTS = Path(__file__).parent / "agents.py"


pytestmark = pytest.mark.slow  # programs are started in all of them; together they take four seconds


@pytest.fixture(scope="module")
def policy():
    return CausalLM().load()


def episodes(policy, program, tasks, *, most=48, judged=True, **fields):
    """What came of each task, by its place."""
    workflow = Agent(program=f"{AGENTS}:{program}", **fields)
    engine = Driven(engine=Native(slots=8, precision="float32"), workflow=workflow, judged=judged).start(policy)
    load(engine, policy, 0)
    sampling = Sampling(max_length=most)
    for place, columns in enumerate(tasks):
        task = Task(id=f"t{place}", prompt=f"{place} + 1 =", columns=columns)
        engine.submit(Request(group=place, task=task, sample=0, sampling=sampling, seed=1))
    found = drained(engine)
    return [found[place, 0].outcome for place in range(len(tasks))]


def ids(row):
    tokens = row.decisions
    assert isinstance(tokens, Tokens)
    return tokens.ids_NL[0, : int(tokens.length_N[0])].tolist()


def test_a_session_is_an_episode_of_one_row_with_the_tokens_that_were_drawn(policy):
    (episode,) = episodes(policy, "solve", [{}])
    assert isinstance(episode, Episode)
    (row,) = episode.rows
    assert episode.stop == "terminated" and episode.scores == {"agent": episode.score}
    assert row.turn_S.max() == 1 and not row.mask_S[row.part_S == int(Part.OBSERVATION)].any()
    # The engine computes each sampled token's log-probability from the row as it is trained on.
    engine = Native(slots=1, precision="float32").start(policy)
    load(engine, policy, 0)
    gap_S = (engine.score(row) - row.behavior_S)[row.mask_S].abs()
    assert row.mask_S.sum() >= 4 and float(gap_S.max()) < 1e-4
    first = row.turn_S.eq(0) & row.mask_S
    said = policy.decode([t for t, own in zip(ids(row)[-row.length :], first.tolist(), strict=True) if own])
    assert row.text.startswith(said)


def test_answers_do_not_depend_on_what_else_is_asked_nor_on_when(policy):
    together = episodes(policy, "hasty", [{}] * 6)
    alone = [episodes(policy, "solve", [{}] * (n + 1))[n] for n in (0, 5)]
    assert [ids(one.last) for one in (together[0], together[5])] == [ids(one.last) for one in alone]


def test_every_failure_has_a_name_and_none_is_a_reward(policy):
    kinds = ["raise", "exit", "killed", "hang", "nan", "lingers", None]
    found = episodes(policy, "solve", [{"how": how} for how in kinds], acting=0.7, finishing=0.3)
    assert [one.reason if isinstance(one, Drop) else "" for one in found] == [
        "agent_error",
        "agent_error",
        "agent_error",
        "agent_timeout",
        "agent_error",
        "agent_timeout",
        "",
    ]
    assert "KeyError: 'lost'" in found[0].said and "SystemExit" in found[1].said and "SIGKILL" in found[2].said
    assert "(acting)" in found[3].said and "(finishing)" in found[5].said and "400" in found[4].said
    assert all(one.drawn > 0 for one in found if isinstance(one, Drop))  # what it cost is counted


def test_no_answer_and_no_score_are_no_rewards_either(policy):
    (nothing,) = episodes(policy, "silent", [{}])
    assert nothing == Drop("no_answers", said=nothing.said)
    (unscored,) = episodes(policy, "unscored", [{}])
    assert isinstance(unscored, Episode) and unscored.score is None  # for the run's rewards
    (wordy,) = episodes(policy, "wordy", [{}])
    (quoted,) = episodes(policy, "quoted", [{}])
    assert quoted.reason == "no_score", "a text is no number, whatever it says"
    assert wordy.reason == "no_score" and "wordy ended with 'ok'; return a finite number" in wordy.said


def test_where_no_reward_scores_it_an_episode_without_a_score_is_no_failure_of_the_policy(policy):
    (unscored,) = episodes(policy, "unscored", [{}], judged=False)
    assert unscored.reason == "no_score" and unscored.drawn > 0 and "unscored ended with no score" in unscored.said
    run = recipes.load("grpo", {"agent": f"{AGENTS}:unscored", "held_out": None})
    assert not run.sampler.judged and replace(run, rewards=(ExactAnswer(),)).sampler.judged
    run = replace(run, held_out=HeldOut(tasks=run.tasks, rewards=(ExactAnswer(),)))
    assert run.evaluator.judged and not run.sampler.judged


def test_an_agent_that_leaves_or_raises_what_cannot_be_told_has_failed(policy):
    left, evil, huge = (episodes(policy, one, [{}])[0] for one in ("leaves", "evil", "huge"))
    assert left.reason == evil.reason == "agent_error" and "before it returned" in left.said
    assert re.search(r"raised Evil: \(its own message raised ZeroDivisionError\) \(agents.py, line \d+\)", evil.said)
    assert "its own message" in evil.said and "own.py" not in evil.said and "\x1b" not in evil.said + left.said
    assert huge.reason == "no_score" and "the score 1e+300; return a finite number of size 1e+15 at most" in huge.said


def test_the_prompt_of_a_chat_row_is_its_messages(policy):
    columns = {"messages": [{"role": "user", "content": "1+1="}], "question": "1+1="}
    (episode,) = episodes(policy, "of_chats", [columns])
    assert isinstance(episode, Episode) and episode.score == 1.0, episode


def test_a_task_that_comes_again_looks_the_same(policy):
    first, again = episodes(policy, "counts_columns", [{"level": 1}, {"level": 1, VISIT: 1}])
    assert first.score == again.score == 4  # id, prompt, answer and its own


def test_a_rewritten_history_begins_a_row(policy):
    (episode,) = episodes(policy, "editor", [{}])
    first, second = episode.rows
    assert (int(first.turn_S.max()), int(second.turn_S.max())) == (1, 0) and first.score == second.score == 1.0
    assert "(left out)" in policy.tokenizer.decode(ids(second))


def test_a_request_that_is_asked_again_has_the_answer_that_was_being_drawn(policy):
    (episode,) = episodes(policy, "retrying", [{}])
    assert len(episode.rows) == 1 and episode.score >= 1  # it did lose its connection


def test_a_full_row_and_too_many_answers_are_refused_and_the_episode_is_cut(policy):
    (full,) = episodes(policy, "talkative", [{}], most=40)
    assert full.stop == "length" and full.last.length <= 40 and full.score >= 1
    (counted,) = episodes(policy, "talkative", [{}], most=400, answers=3)
    assert counted.stop == "length" and counted.score == 3 and counted.last.turn_S.max() == 2


def test_a_malformed_request_is_refused_and_the_episode_goes_on(policy):
    (episode,) = episodes(policy, "careless", [{}], most=4000)
    assert isinstance(episode, Episode) and episode.stop == "terminated" and episode.score == 7


def test_the_last_row_is_the_one_that_was_answered_last(policy):
    (episode,) = episodes(policy, "delegating", [{}])
    assert [int(row.turn_S.max()) for row in episode.rows] == [0, 1], "the helper's row ended before the agent's own"


def test_a_command_line_has_its_address_and_task(policy):
    engine = Driven(
        engine=Native(slots=4, precision="float32"), workflow=Agent(program=f"{sys.executable} {AGENTS}", at_once=1)
    ).start(policy)
    load(engine, policy, 0)
    for place, how in enumerate([None, "exit"]):
        task = Task(id=f"t{place}", prompt="1 + 1 =", columns={"how": how})
        engine.submit(Request(group=place, task=task, sample=0, sampling=Sampling(max_length=24), seed=1))
    found = drained(engine)
    good, bad = found[0, 0].outcome, found[1, 0].outcome
    assert isinstance(good, Episode) and good.score is not None
    assert bad.reason == "agent_error" and "exit code 1; it printed: it does not want to" in bad.said


def test_what_is_no_agent_is_refused():
    with pytest.raises(ValueError, match=r"cannot be called as solve\(base_url, task\)"):
        Agent(program="json:dumps")
    with pytest.raises(ValueError, match="acting is 0"):
        Agent(program=f"{AGENTS}:solve", acting=0.0)
    with pytest.raises(ValueError, match="at_once=0"):
        Agent(program=f"{AGENTS}:solve", at_once=0)


def host(program="agents.py:daemon"):
    return subprocess.Popen(
        [sys.executable, "-m", "gimbal.serve._host", f"{AGENTS.parent}/{program}", "function"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def started(process, name, task):
    order = {"start": name, "url": "http://127.0.0.1:1/x/v1", "task": task, "seed": "1"}
    process.stdin.write(json.dumps(order) + "\n")
    process.stdin.flush()


def below(ancestor):
    """The processes that descend from one, by their command lines."""
    return {process: Path(f"/proc/{process}/cmdline").read_bytes() for process in _descendants(ancestor)}


def wait(condition):
    for _ in range(500):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it never came to be")


def gone(process):
    return not Path(f"/proc/{process}").exists() or ") Z " in Path(f"/proc/{process}/stat").read_text()


def test_whoever_is_killed_nothing_is_left(policy):
    """The trainer (its end of the pipe closes, whatever ended it), an agent, and the process that starts agents."""
    ended, killed = host(), host("agents.py:solve")
    for process in (ended, killed):
        assert json.loads(process.stdout.readline()) == {"ready": True}
    started(ended, "a", {})
    started(killed, "b", {"prompt": "x"})
    wait(
        lambda: any(b"sleep(1000)" in line for line in below(ended.pid).values())
    )  # the daemon has a session of its own
    family = below(ended.pid)
    assert len(family) == 2
    ended.stdin.close()
    assert ended.wait(10) == 0
    wait(lambda: all(map(gone, family)))
    # The agent finds nobody at its address, and says so; the host goes on, until it is killed with an agent under way.
    assert "refused" in json.loads(killed.stdout.readline())["error"]
    killed.kill()
    assert killed.wait(10) == -signal.SIGKILL


def test_an_agent_dies_with_the_process_that_started_it():
    process = host()
    assert json.loads(process.stdout.readline()) == {"ready": True}
    started(process, "a", {})
    wait(lambda: len(below(process.pid)) == 2)
    agent = next(pid for pid, line in below(process.pid).items() if b"sleep(1000)" not in line)
    daemons = set(below(process.pid)) - {agent}
    process.kill()
    wait(lambda: gone(agent))
    for daemon in daemons:  # which docs/agent.md says: it left its agent's session, and nobody is there to end it
        os.kill(daemon, signal.SIGKILL)
