"""What the tests of vLLM's engines ask of them."""

import torch

from gimbal.engines.base import Request
from gimbal.policies.token import CausalLM, Sampling
from gimbal.records import Task

QUESTION = "State the final answer to the following arithmetic problem: {} + {} =\n"
LONG = "".join(f"{n} + {n} = {2 * n}; " for n in range(10, 34)) + "40 + 40 ="  # more than one block of the cache
SAMPLINGS = [
    {},
    {"temperature": 0.6},
    {"temperature": 1.4},
    {"top_p": 0.7},
    {"temperature": 1.3, "top_k": 5},
    {"temperature": 1.2, "min_p": 0.1},
    {"temperature": 0.8, "top_p": 0.9, "top_k": 20},
    {"temperature": 0.0, "top_p": 0.5},
]


def moved():
    """Weights not far from the first, as a few large steps would leave them."""
    policy = CausalLM().load()
    noise = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in policy.parameters():
            weight.add_(0.1 * weight.std(correction=0) * torch.randn(weight.shape, generator=noise))
    return policy


def request(group=0, sample=0, prompt=None, seed=0, **sampling):
    task = Task(id=f"task {group}", prompt=prompt or QUESTION.format(group + 11, group + 20))
    sampling = Sampling(**({"max_length": 24} | sampling))
    return Request(group=group, task=task, sample=sample, sampling=sampling, seed=seed)


def drain(engine):
    finished = []
    while engine.in_flight:
        finished += engine.step()
    return {item.key: item.rollout for item in finished}


def drawn(engine, requests):
    for item in requests:
        engine.submit(item)
    return drain(engine)


def ids(rollout):
    tokens = rollout.decisions
    return tokens.ids_NL[0, int(tokens.prompt_N[0]) : int(tokens.length_N[0])].tolist()
