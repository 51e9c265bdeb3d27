"""Running agent programs: their sessions, and the processes that start them."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from gimbal.engines.base import Unserved, Witness
from gimbal.environments.base import AbstractEnvironment, Failure, Moment
from gimbal.environments.program import Program, Reply, Said, is_reference
from gimbal.policies.token import Tokens
from gimbal.records import MOST_LENGTH, VISIT, Rollout, Task
from gimbal.serve.asked import Asked
from gimbal.serve.board import Box, Question, board

WITNESS_SECONDS = 60.0


class UnderWay(AbstractEnvironment):
    """A running program."""

    def __init__(self, spec: Program) -> None:
        self.spec = spec
        self.box: Box | None = None
        self.open: list[Question] = []  # that wait for replies
        self.asked = False

    def reset(self, task: Task, seed: int) -> None:
        self.close()
        self.box = board().open()
        asked = task.columns.get("messages", task.prompt)  # of a chat row the messages: its text is empty
        # The curriculum adds VISIT from its second epoch on.
        own = {name: value for name, value in task.columns.items() if name != VISIT}
        given = {**own, "id": task.id, "prompt": asked, "answer": task.answer}
        streams = f"{seed}/{task.id}/{self.spec.sample}"
        host_of(self.spec.program).start(self.box, f"{board().url}/{self.box.name}/v1", given, streams)

    def step(self, action: Sequence[Reply]) -> Moment:
        box = self.box
        assert box is not None, "reset comes before step"
        for question, reply in zip(self.open, action, strict=True):
            if "refused" in reply:
                question.future.set_exception(ValueError(reply["refused"]))
            else:
                question.future.set_result([Said(**said) for said in reply["answers"]])
        seconds = self.spec.acting if self.asked else self.spec.setup
        questions = box.next(seconds, self.spec.finishing)
        self.asked = True
        if questions is None:
            raise Failure(self._late(box, seconds), "agent", late=True)
        if questions:
            self.open = questions
            return Moment(observation={"requests": [_request(question.asked) for question in questions]})
        ended = box.ended or {}
        if ended["error"]:
            raise Failure(f"the agent {self.spec.program} failed: {ended['error']}", "agent")
        found = {"score": ended["score"]} | ({"returned": ended["returned"]} if "returned" in ended else {})
        return Moment(observation=found if box.score is None else {"score": box.score}, terminated=True)

    def close(self) -> None:
        if self.box is not None:
            host_of(self.spec.program).stop(self.box)
            board().close(self.box)
            self.box.end({"score": None, "error": "it was stopped"})  # a step may still wait for it
        self.box, self.open, self.asked = None, [], False

    def _late(self, box: Box, seconds: float) -> str:
        name = self.spec.program
        if box.score is not None:
            return f"the agent {name} went on for {self.spec.finishing:g} s after its reward (finishing)"
        if not self.asked:
            return f"the agent {name} asked nothing within {seconds:g} s (setup)"
        return f"the agent {name} asked nothing and did not end within {seconds:g} s of its last answer (acting)"


def _request(asked: Asked) -> dict[str, Any]:
    """What a workflow must know about it, as plain values."""
    most = asked.sampling.max_length
    return {
        "prompts": [item if isinstance(item, str) else list(item) for item in asked.prompts],
        "messages": asked.messages,
        "tools": asked.tools,
        "n": asked.n,
        "most": None if most == MOST_LENGTH else most,
        "stop": list(asked.sampling.stop),
    }


class Hosted:
    """The process that starts a program's episodes (``_host``), and the listeners for their ends."""

    def __init__(self, program: str) -> None:
        self.program = program
        kind = "function" if is_reference(program) else "command"
        command = [sys.executable, "-m", "gimbal.serve._host", program, kind]
        # In a session of its own: Ctrl-C is for the trainer, which ends it by closing its input.
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        self.boxes: dict[str, Box] = {}
        self.gone = ""
        self._lock, self._writing = threading.Lock(), threading.Lock()  # of boxes; of orders, which may have to wait
        said = json.loads(self._output.readline() or b'{"failed": "its process ended as it began"}')
        if "failed" in said:
            raise ValueError(f"the agent {program} cannot be started: {said['failed']}")
        threading.Thread(target=self._listen, name="gimbal-agents", daemon=True).start()

    @property
    def _output(self) -> Any:
        return self._process.stdout

    def start(self, box: Box, url: str, task: Mapping[str, Any], seed: str) -> None:
        with self._lock:
            self.boxes[box.name] = box
        self._order({"start": box.name, "url": url, "task": task, "seed": seed}, box)

    def stop(self, box: Box) -> None:
        with self._lock:
            under_way = self.boxes.pop(box.name, None)
        if under_way is not None:
            self._order({"stop": box.name}, box)

    def _order(self, order: Mapping[str, Any], box: Box) -> None:
        assert self._process.stdin is not None
        try:
            with self._writing:
                self._process.stdin.write(json.dumps(order, default=str).encode() + b"\n")
                self._process.stdin.flush()
        except (BrokenPipeError, ValueError):  # closed: see _listen
            box.end({"score": None, "error": "the process that starts it is gone"})

    def _listen(self) -> None:
        for line in self._output:
            said = json.loads(line)
            with self._lock:
                box = self.boxes.pop(said["ended"], None)
            if box is not None:
                box.end(said)
        with self._lock:
            self.gone, boxes, self.boxes = "gone", self.boxes, {}
        for box in boxes.values():
            box.end({"score": None, "error": "the process that starts it was ended"})
        self._process.wait()


def heard(word: Witness, canary: Sequence[Rollout]) -> Witness:
    """An engine's answer to a canary, requested over HTTP like an agent does. Raises Unserved if the address does not answer."""
    box, rows = board().open(), [_ids(rollout) for rollout in canary]
    logprobs = word.logprob_D.split([rollout.length for rollout in canary])
    answers = [
        Said(
            text="",
            ids=tuple(ids),
            prompt_ids=tuple(prompt),
            logprobs=tuple(logprob_S.tolist()),
            versions=(word.version,) * len(ids),
            stop="length",
            pieces=tuple(f"token_id:{token}" for token in ids),
        )
        for (prompt, ids), logprob_S in zip(rows, logprobs, strict=True)
    ]
    threading.Thread(target=_answer, args=(box, answers), daemon=True).start()
    body = json.dumps({"prompt": [prompt for prompt, _ in rows], "max_tokens": 1, "logprobs": 1}).encode()
    url = f"{board().url}/{box.name}/v1/completions"
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
            request, timeout=WITNESS_SECONDS
        ) as said:
            choices = json.load(said)["choices"]
    except OSError as error:
        raise Unserved(f"the address for agents, {url}, does not answer ({error}); --resume opens a new one") from error
    finally:
        board().close(box)
    found = [x for choice in choices for x in choice["logprobs"]["token_logprobs"]]
    return replace(word, version=choices[0]["token_versions"][0], logprob_D=torch.tensor(found))


def _answer(box: Box, answers: Sequence[Said]) -> None:
    for question in box.next(WITNESS_SECONDS, WITNESS_SECONDS) or ():
        question.future.set_result(list(answers))


def _ids(rollout: Rollout) -> tuple[list[int], list[int]]:
    """Of the prompt, and of what was drawn."""
    tokens = rollout.decisions
    assert isinstance(tokens, Tokens), type(tokens)
    whole, first = tokens.ids_NL[0, : int(tokens.length_N[0])].tolist(), int(tokens.prompt_N[0])
    return whole[:first], whole[first:]


_HOSTS: dict[str, Hosted] = {}
_STARTING = threading.Lock()


def host_of(program: str) -> Hosted:
    """That of this process; a new one where it was ended."""
    with _STARTING:
        if program not in _HOSTS or _HOSTS[program].gone:
            _HOSTS[program] = Hosted(program)
        return _HOSTS[program]
