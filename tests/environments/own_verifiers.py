"""Environments as people write them for verifiers, of its three kinds."""

import verifiers as vf
from datasets import Dataset

SUMS = [
    {"question": f"{a} + {b}?", "answer": str(a + b)} for a, b in ((1, 2), (30, 12), (7, 7), (2, 9), (5, 5), (8, 1))
]


def exact(completion, answer, parser):
    return float(parser.parse_answer(completion) == answer)


def asked():
    """One turn: a system prompt, a parser, and a format that is worth a fifth."""
    parser = vf.XMLParser(["think", "answer"], answer_field="answer")
    rubric = vf.Rubric(funcs=[exact, parser.get_format_reward_func()], weights=[0.8, 0.2], parser=parser)
    return vf.SingleTurnEnv(
        dataset=Dataset.from_list(SUMS), system_prompt="Answer in XML.", parser=parser, rubric=rubric
    )


def add(a: int, b: int) -> int:
    """Adds.

    Args:
        a: one
        b: another
    """
    return a + b


async def said(completion, answer, state):
    return float(completion[-1].content.strip() == answer and len(state["trajectory"]) == 2)


def tools(max_turns=4):
    """A tool, which has to be called."""
    return vf.ToolEnv(tools=[add], max_turns=max_turns, dataset=Dataset.from_list(SUMS), rubric=vf.Rubric(funcs=[said]))


class Higher(vf.MultiTurnEnv):
    """Guess a number: an own loop with an own state."""

    async def setup_state(self, state):
        state["guesses"] = 0
        return state

    async def env_response(self, messages, state):
        state["guesses"] += 1
        guess, right = messages[-1].content, int(state["answer"])
        if guess == "fall":
            raise vf.SandboxError("it is gone")
        if guess == "raise":
            raise OSError("no disk")
        if not guess.isdigit():
            return [{"role": "user", "content": "A number."}]
        state["found"] = int(guess) == right
        return [
            {"role": "user", "content": "Yes." if state["found"] else "Higher." if int(guess) < right else "Lower."}
        ]

    @vf.stop
    async def done(self, state):
        return state.get("found", False)


def quick(state):
    return 1.0 / state["guesses"] if state["found"] else 0.0


def guessing():
    """Its reward function raises where nothing was found at all."""
    return Higher(dataset=Dataset.from_list(SUMS), rubric=vf.Rubric(funcs=[quick]), max_turns=6)


class Console(vf.MultiTurnEnv):
    """A turn that begins with "$" is answered, by a name and then by a number; any other is the last."""

    async def env_response(self, messages, state):
        told = "hg" if len(state["trajectory"]) == 1 else "12"
        return [vf.ToolMessage(tool_call_id="0", content=told)]

    @vf.stop
    async def done(self, state):
        return bool(state["trajectory"]) and not state["trajectory"][-1]["completion"][-1].content.startswith("$")


def looked(completion):
    return float(completion[-1].content == "<answer>12</answer>")


def console():
    """Asked as the model that ships was taught to be. The number is known to who looks twice."""
    rows = [
        {"question": f"What is the sum of the numbers in the file that {name} names?"} for name in ("ab", "cd", "ef")
    ]
    tool = vf.Tool(name="python", description="Run a program.", parameters={"type": "object", "properties": {}})
    return Console(dataset=Dataset.from_list(rows), rubric=vf.Rubric(funcs=[looked]), max_turns=4, tool_defs=[tool])


def grouped(completions):
    return [0.0 for _ in completions]


def together():
    return vf.SingleTurnEnv(dataset=Dataset.from_list(SUMS), rubric=vf.Rubric(funcs=[grouped]))
