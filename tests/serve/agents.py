"""Agents of the tests: programs that know an address and a task, and talk by HTTP alone."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request


def post(url, body, timeout=60):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=timeout) as answer:
        return json.load(answer)


def chat(base_url, messages, **more):
    body = {"messages": messages, "max_tokens": 6, "temperature": 0, **more}
    return post(f"{base_url}/chat/completions", body)["choices"][0]["message"]["content"]


def solve(base_url, task):
    """Two turns. How long it thinks, and how it goes wrong, stands in the task."""
    messages = [{"role": "user", "content": task["prompt"]}]
    for turn in range(2):
        said = chat(base_url, messages)
        messages += [{"role": "assistant", "content": said}, {"role": "user", "content": "Again."}]
        if turn == 0:
            go_wrong(base_url, task)
    return said.count("1") / 4


def counts_columns(base_url, task):
    """The score says how many there are."""
    chat(base_url, [{"role": "user", "content": task["prompt"]}])
    return float(len(task))


def go_wrong(base_url, task):
    how = task.get("how")
    if how == "raise":
        raise KeyError("lost")
    if how == "lacks":
        print(task["expected"])
    if how == "exit":
        sys.exit(3)
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "hang":
        time.sleep(100)
    if how == "nan":
        post(f"{base_url}/reward", {"score": "much"})
    if how == "lingers":
        post(f"{base_url}/reward", {"score": 1.0})
        time.sleep(100)


def hasty(base_url, task):
    """Thinks for as long as a clock says, which must not matter."""
    time.sleep(time.time_ns() % 7 / 100)
    score = solve(base_url, task)
    time.sleep(time.time_ns() % 5 / 100)
    return score


def of_chats(base_url, task):
    """Its row is a chat, whose messages are the prompt."""
    assert task["prompt"][0]["content"] == task["question"]
    chat(base_url, list(task["prompt"]))
    return 1.0


def silent(base_url, task):
    return 1.0


def unscored(base_url, task):
    chat(base_url, [{"role": "user", "content": "a"}])


def leaves(base_url, task):
    chat(base_url, [{"role": "user", "content": "a"}])
    print("\x1b[2J it was here", flush=True)
    os._exit(0)


class Evil(Exception):
    def __str__(self):
        return str(1 / 0)


def evil(base_url, task):
    chat(base_url, [{"role": "user", "content": "a"}])
    raise Evil


def huge(base_url, task):
    chat(base_url, [{"role": "user", "content": "a"}])
    return 1e300


def quoted(base_url, task):
    chat(base_url, [{"role": "user", "content": "a"}])
    return "1.0"


def wordy(base_url, task):
    chat(base_url, [{"role": "user", "content": "a"}])
    return "ok"


def editor(base_url, task):
    """Rewrites what was said before its third turn, and has a helper of its own beside it."""
    messages = [{"role": "user", "content": "a"}]
    messages += [{"role": "assistant", "content": chat(base_url, messages)}, {"role": "user", "content": "b"}]
    messages += [{"role": "assistant", "content": chat(base_url, messages)}, {"role": "user", "content": "c"}]
    messages[1]["content"] = "(left out)"
    chat(base_url, messages)
    return 1.0


def retrying(base_url, task):
    """Loses its connection while an answer is drawn, and asks the same again, as OpenAI's client does."""
    messages = [{"role": "user", "content": task["prompt"]}]
    for patience in (0.01, 0.01, 60):
        try:
            said = post(f"{base_url}/chat/completions", {"messages": messages, "max_tokens": 40}, timeout=patience)
        except OSError:
            continue
        return said["choices"][0]["message"]["content"].count("1") / 4 + (patience == 60)
    return None


def talkative(base_url, task):
    """Goes on until it is refused."""
    messages, count = [{"role": "user", "content": "a"}], 0
    try:
        while True:
            said = chat(base_url, messages)
            messages += [{"role": "assistant", "content": said}, {"role": "user", "content": "b"}]
            count += 1
    except urllib.error.HTTPError as error:
        assert error.code == 400 and b"context_length_exceeded" in error.read()
    return float(count)


def careless(base_url, task):
    """Counts which of its malformed requests are refused, and then behaves."""
    deep = "[" * 2000 + "]" * 2000
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": deep}}
    bad = [
        {"messages": [{"role": "assistant", "tool_calls": "none"}]},
        {"messages": [{"role": "assistant", "tool_calls": [{"function": 3}]}]},
        {"messages": [{"role": "assistant", "content": {"text": 1}}]},
        {"messages": [{"role": "user", "content": "a"}], "max_tokens": "many"},
        {"messages": "a"},
    ]
    refused = 0
    for body in bad:
        try:
            post(f"{base_url}/chat/completions", {"max_tokens": 4, **body})
        except urllib.error.HTTPError as error:
            refused += error.code == 400
    for path, body in (("completions", {"prompt": [-1, 10**9]}), ("completions", {"prompt": {"a": 1}})):
        try:
            post(f"{base_url}/{path}", {"max_tokens": 4, **body})
        except urllib.error.HTTPError as error:
            refused += error.code == 400
    # Arguments that are text, however deep, are a model's words and no fault of the request.
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": None, "tool_calls": [call]}]
    try:
        chat(base_url, messages)
    except urllib.error.HTTPError as error:
        assert error.code == 400
    solve(base_url, task)
    return float(refused)


def delegating(base_url, task):
    """Asks a helper, with a history of its own, between its two turns."""
    messages = [{"role": "user", "content": "a"}]
    messages += [{"role": "assistant", "content": chat(base_url, messages)}, {"role": "user", "content": "b"}]
    chat(base_url, [{"role": "user", "content": "a helper's own question"}])
    chat(base_url, messages)
    return 1.0


def daemon(base_url, task):
    """Leaves a process behind in a session of its own."""
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], start_new_session=True)
    time.sleep(1000)


if __name__ == "__main__":  # as a command line: the address and the task, and no function
    given = json.load(sys.stdin)
    if given.get("how") == "exit":
        sys.exit("it does not want to")
    answer = chat(os.environ["OPENAI_BASE_URL"], [{"role": "user", "content": given["prompt"]}])
    post(f"{os.environ['OPENAI_BASE_URL']}/reward", {"score": answer.count("1") / 4})
