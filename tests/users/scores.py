"""Rewards of a user's, in a file that imports nothing of gimbal."""

import threading

LOCK = threading.Lock()  # what no pickle holds


def score(prompts, completions, **columns):
    with LOCK:
        return [float(len(set(text))) for text in completions]


def brevity(completions):
    with LOCK:
        return [-float(len(text)) for text in completions]
