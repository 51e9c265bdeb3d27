"""A context of 31 tokens that the policy edits: does it learn to keep what will be asked? And do its rows have to be cut? (MemAct)

**Setting.** Streams of four lines of facts; two of the facts are asked at the end. gimbal-tiny-memory, 8 streams x 8 episodes a step,
data up to one version old, an int8 sampler, group-normalised advantages, 15 steps. Arms: *edits*, the recipe `mem_act`: the policy
sees the lines one by one in a window of 31 tokens, where an edit drops all but what the policy writes; *window*, one answer behind the
last two lines, which is what the same window holds; *whole*, one answer behind all four lines, in a window of 49; *rebuilt*, the
episodes of *edits*, each trained as one row in which everything stands that was ever said and shown, as if nothing had been dropped.

**Figures.** The share of 256 held-out streams (*window* and *whole*: the same streams, put as they are asked there) answered right,
once each, after the last step: *success*. Of the last batch, *context*, the longest row, and *learner*, the
tokens of all rows for each episode, prompts included. *gap*: mean |proximal - behavior| of the decisions of all steps.

**Rule.** Each arm at the best of 3e-4, 1e-3 and 3e-3 by the success of one run of seed 100, then seeds 0 to 4. An arm is above another
if the interval of the difference of their successes, over all 25 pairs of seeds (exact, 96.8 %: the third from either end), lies above
0. *Edits help* if *edits* is above *window*; *a larger window is better* if *whole* is above *edits*; *rows must be cut* if *edits* is
above *rebuilt*. The gap of *rebuilt* must be at least ten times that of *edits*, or the rows were not rebuilt.

**Limits.** A model of 105,000 weights and a task made for it: what matters can be told by a single token. The start knows how to edit,
and answers rightly in about half of its episodes; its likeliest words do so nearly always, so what is learned is to do it every time.
Published: a judge's verdict on searches, models of 7 to 14 billion weights. *rebuilt* keeps all decisions of an episode, so that it
trains as many as *edits*; a row of the final context alone would lose most of them.

Written before its runs, after a pilot of *edits* at 1e-3 (seed 100), which went from .47 to .90.

**After the runs**: the gap of *rebuilt* is five times that of *edits* in the median, not ten, so by the rule the last question is void.
The rates differ too: one run chose 3e-3 for *edits*, by .9023 beside .8984, and it is the highest of the three. There two of five seeds
collapse after learning: in training they rise to .79 and .80, fall to .02 and .26 and end at .00 and .18. *rebuilt* ran at 1e-3.

***slower***: *edits* at 1e-3, the rate of *rebuilt*, seeds 0 to 4. It is above or below another arm by the interval of the rule, with
*slower* for *edits* in each question, and *rebuilt* must have ten times its gap too. Written after a reader had run these seeds and
told what came of them (.895, .871, .930, .922, .938), so it is no prediction; the answers about *edits* stay as they are.

*After its runs*: nothing collapses, and the gap of *rebuilt* is 25 times that of *slower* in the median (at least 15), so the last
question is not void there. What *edits* lacks to a window that holds all is .05 at this rate, where the table above has .19.

    python claims/memory.py --processes 1     # goes on from claims/memory.json; ten minutes of one idle core
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import campaign
import torch
import tuned_page
from offline_page import held, shown, spread

from gimbal import recipes
from gimbal.environments.recall import QUESTION, Streams
from gimbal.policies.token import Sampling, Tokens
from gimbal.records import Drop, Episode, Part, Rollout
from gimbal.rewards.exact import ExactAnswer
from gimbal.runtime.local import Trainer
from gimbal.runtime.run import HeldOut, Run
from gimbal.workflows.base import AbstractWorkflow, Attempt, Steps
from gimbal.workflows.edited_context import EditedContext
from gimbal.workflows.single import SingleTurn

RECORD = Path(__file__).with_suffix(".json")
TUNED = campaign.Tuned(("edits", "window", "whole", "rebuilt"), (3e-4, 1e-3, 3e-3), (0, 1, 2, 3, 4), "success")
SLOWER, RATE = "slower", 1e-3  # *edits* at the rate of *rebuilt*
SHOWN = {"window": 2, "whole": 4}  # the lines behind which an arm answers at once
STEPS = 15
COMPARED = {
    "edits help": ("edits", "window"),
    "a larger window is better": ("whole", "edits"),
    "rows must be cut": ("edits", "rebuilt"),
}
CUT, APART = (
    "rows must be cut",
    10,
)  # the question that is void unless the gap of *rebuilt* is so many times that of *edits*

Job = tuple[str, float, int]  # arm, learning rate, seed


@dataclass(frozen=True, kw_only=True)
class Rebuilt(AbstractWorkflow):
    """Each episode as one row of everything that was said and shown."""

    inside: EditedContext

    @property
    def requires(self) -> frozenset[str]:
        return self.inside.requires

    def __call__(self, attempt: Attempt) -> Steps:
        outcome = yield from self.inside(attempt)
        return outcome if isinstance(outcome, Drop) or outcome.error else rebuilt(outcome)


def rebuilt(episode: Episode) -> Episode:
    """Its rows joined: before what was said in each stands the newest observation of its prompt, which does not count."""
    whole = episode.rows[0]
    for row in episode.rows[1:]:
        ids, begun = _ids(row)
        before, prompt = _ids(whole)
        told = ids[begun - _newest(ids[:begun], before[-1]) : begun]
        blank = torch.zeros(len(told))
        assert (
            whole.part_S is not None and row.part_S is not None and whole.turn_S is not None and row.turn_S is not None
        )
        turn = int(whole.turn_S[-1])
        whole = replace(
            row,
            task=whole.task,
            decisions=Tokens.row(before[:prompt], [*before[prompt:], *told, *ids[begun:]]),
            behavior_S=torch.cat([whole.behavior_S, blank, row.behavior_S]),
            version_S=torch.cat([whole.version_S, blank.long() + row.version_S[0], row.version_S]),
            mask_S=torch.cat([whole.mask_S, blank.bool(), row.mask_S]),
            reward_S=torch.cat([whole.reward_S, blank, row.reward_S]),
            part_S=torch.cat([whole.part_S, blank.long() + int(Part.OBSERVATION), row.part_S]),
            turn_S=torch.cat([whole.turn_S, blank.long() + turn, row.turn_S + turn + 1]),
            entropy_S=None,
        )
    return replace(episode, rows=(whole,))


def _ids(row: Rollout) -> tuple[list[int], int]:
    """All tokens of a row, and how many of them are its prompt."""
    tokens = row.decisions
    assert isinstance(tokens, Tokens)
    return tokens.ids_NL[0, : int(tokens.length_N[0])].tolist(), int(tokens.prompt_N[0])


def _newest(prompt: Sequence[int], end: int) -> int:
    """How many tokens the newest observation of a prompt has: those after the last turn, or after the question."""
    return list(reversed(prompt)).index(end) if end in prompt else len(prompt) - len(QUESTION)


def run_of(arm: str, rate: float, seed: int) -> Run:
    run = recipes.load("mem_act")
    assert isinstance(run.workflow, EditedContext) and isinstance(run.held_out, HeldOut)
    changes: dict[str, Any] = {}
    if arm == "rebuilt":
        changes = {"workflow": Rebuilt(inside=run.workflow), "held_out": replace(run.held_out, workflow=run.workflow)}
    if arm in SHOWN:
        assert isinstance(run.held_out.tasks, Streams)
        changes = {
            "workflow": SingleTurn(),
            "tasks": Streams(shown=SHOWN[arm]),
            "held_out": replace(run.held_out, tasks=replace(run.held_out.tasks, shown=SHOWN[arm])),
            "sampling": Sampling(max_length=run.workflow.turn),
            "rewards": (ExactAnswer(opening="", closing=""),),
        }
    optimization = replace(run.optimization, learning_rate=rate)
    return replace(run, optimization=optimization, seed=seed, steps=STEPS, threads=1, **changes)


def measure(job: Job) -> dict[str, Any]:
    arm, rate, seed = job
    trainer = Trainer(run_of(*job))
    trainer.begin()
    began, gaps, scores, broken = time.process_time(), list[float](), list[float](), list[float]()
    lengths, episodes = [0], 1
    for _ in range(STEPS):
        metrics, _, batch = trainer.advance()
        gaps.append(metrics["mismatch/prob_diff"])
        scores.append(round(metrics["reward/mean"], 3))
        broken.append(metrics.get("rows/broken_frac", 0.0))
        assert isinstance(batch.decisions, Tokens) and batch.episode_N is not None
        lengths, episodes = batch.decisions.length_N.tolist(), int(batch.episode_N.max()) + 1
    spent = time.process_time() - began
    success = round(trainer.evaluate().metrics()["eval/score"], 4)
    trainer.close()
    return {
        "arm": arm,
        "rate": rate,
        "seed": seed,
        "success": success,
        "context": max(lengths),
        "learner": round(sum(lengths) / episodes, 1),
        "gap": round(statistics.mean(gaps), 5),
        "broken": round(broken[-1], 3),
        "cpu": round(spent, 1),
        "curve": scores,
    }


def fresh(runs: campaign.Runs, arm: str) -> Sequence[Mapping[str, Any]]:
    own = [run for run in runs if run["arm"] == SLOWER]
    return sorted(own, key=lambda run: run["seed"]) if arm == SLOWER else TUNED.fresh(runs, arm)


def void(runs: campaign.Runs, arm: str = "edits") -> frozenset[str]:
    """The questions that the rule takes back: rows that stand as far from their sampler as cut ones were not rebuilt."""
    gaps = [[run["gap"] for run in fresh(runs, name)] for name in (arm, "rebuilt")]
    if min(map(len, gaps)) < len(TUNED.seeds):
        return frozenset()
    cut, whole = map(statistics.median, gaps)
    return frozenset() if whole >= APART * cut else frozenset({CUT})


def beside(runs: campaign.Runs) -> str:
    """The figures of *slower*, and the questions with it for *edits*."""
    own, taken = fresh(runs, SLOWER), void(runs, SLOWER)
    figures = ("success", "context", "learner", "gap", "broken", "cpu")
    told = "; ".join(f"{name} {spread([run[name] for run in own])}" for name in figures)
    lines = [f"*{SLOWER}*, {len(own)} of {len(TUNED.seeds)} runs at {RATE:g}: {told}.", ""]
    lines += ["| question | difference | holds |", "| --- " * 3 + "|"]
    for name, arms in COMPARED.items():
        pair = [SLOWER if arm == "edits" else arm for arm in arms]
        ends = [[run["success"] for run in fresh(runs, arm)] for arm in pair]
        apart = campaign.shift(*ends) if min(map(len, ends)) == len(TUNED.seeds) else None
        said = tuned_page.VOID if name in taken else held(apart)
        lines.append(f"| at {RATE:g}: {name}: *{pair[0]}* above *{pair[1]}* | {shown(apart)} | {said} |")
    return "\n".join([*lines, ""])


def left(runs: campaign.Runs) -> Iterator[list[Job]]:
    yield from TUNED.left(runs)
    done = {run["seed"] for run in runs if run["arm"] == SLOWER}
    yield [(SLOWER, RATE, seed) for seed in TUNED.seeds if seed not in done]


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, left, measure, campaign.described)
