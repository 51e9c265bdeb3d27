"""The agents of failing.py: one request, the answer compared with the right one; and the same that fails every fifth time."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import time
import urllib.request
from typing import Any

SHARES = {"raise": 0.08, "hang": 0.06, "kill": 0.06}


def clean(base_url: str, task: dict[str, Any]) -> float:
    body = json.dumps({"prompt": task["prompt"]}).encode()
    request = urllib.request.Request(f"{base_url}/completions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as answer:
        text = json.load(answer)["choices"][0]["text"]
    found = re.search(r"<answer>\s*(.*?)\s*</answer>", text)
    return float(found is not None and found[1] == task["answer"])


def failing(base_url: str, task: dict[str, Any]) -> float:
    """What it does is drawn from the numbers of its episode, and noted before it is done."""
    drawn, score = random.random(), clean(base_url, task)
    for kind, share in SHARES.items():
        if 0 <= drawn < share:
            note(kind)
            if kind == "raise":
                raise RuntimeError("an injected error")
            if kind == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(1000)
        drawn -= share
    note("none")
    return score


def note(kind: str) -> None:
    file = os.open(os.environ["FAILING_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{kind}\n".encode())
    os.close(file)
