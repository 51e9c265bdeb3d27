"""All solutions of some packages, played through Dialogue in a process of its own: solving.py DIRECTORY [STEP].

It saves what it has at every 40th step and goes on from there; at STEP it kills itself. What comes out in the end is a digest of the
rows of each package, and what they earned.
"""

import hashlib
import json
import os
import pickle
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import hermes

from gimbal.engines.base import Request
from gimbal.environments.agentdojo import AgentDojo, AgentDojoTasks
from gimbal.environments.bfcl import Bfcl, BfclTasks
from gimbal.policies.token import CausalLM, Sampling
from gimbal.workflows.dialogue import Dialogue
from gimbal.workflows.runner import Driven

PACKAGES = {"agentdojo": (AgentDojoTasks(every=True), AgentDojo()), "bfcl": (BfclTasks(), Bfcl())}
AT_ONCE, EVERY = 16, 40


def solve(directory, tasks, environment, kill_at):
    """(A digest of all rows, how many earned 1)."""
    policy = CausalLM(model=str(hermes.saved(directory / "model"))).load()
    live = Driven(
        engine=hermes.Solver(solution=tasks.solution), workflow=Dialogue(tool=environment, answers=60, overlap=3)
    ).start(policy)
    begun, step, done, state = 0, 0, {}, directory / "state"
    if state.exists():
        held = pickle.loads(state.read_bytes())
        begun, step, done = held["begun"], held["step"], held["done"]
        live.load_state_dict(held["live"])
    while begun < len(tasks) or live.in_flight:
        while begun < len(tasks) and live.in_flight < AT_ONCE:
            live.submit(
                Request(group=begun, task=tasks[begun], sample=0, sampling=Sampling(max_length=200_000), seed=3)
            )
            begun += 1
        for item in live.step():
            row = item.rollout
            assert not item.outcome.error, item.outcome.error
            said = [
                row.decisions.ids_NL.tolist(),
                row.mask_S.tolist(),
                row.turn_S.tolist(),
                row.reward_S.tolist(),
                row.stop,
            ]
            done[item.key[0]] = (hashlib.sha256(json.dumps(said).encode()).hexdigest(), item.outcome.earned)
        step += 1
        if step % EVERY == 0:
            partial = state.with_suffix(".partial")
            partial.write_bytes(pickle.dumps({"live": live.state_dict(), "begun": begun, "step": step, "done": done}))
            partial.replace(state)
        if step == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
    digest = hashlib.sha256(json.dumps(sorted(done.items())).encode()).hexdigest()
    return digest, sum(earned == 1 for _, earned in done.values()), len(done), step


if __name__ == "__main__":
    place, kill_at = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else -1
    for name, (tasks, environment) in PACKAGES.items():
        (place / name).mkdir(parents=True, exist_ok=True)
        print(name, *solve(place / name, tasks, environment, kill_at), flush=True)
