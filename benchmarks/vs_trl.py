"""gimbal and TRL side by side: the same model, tasks, batch and GRPO, on this CPU, until the same pass rate.

Every run is a process of its own, and the two systems take turns. A run ends when the mean pass rate of its last ``WINDOW`` steps
reaches ``--target``: no task is drawn twice and none is filtered, so that is a pass rate on unseen tasks, and it costs neither side
anything. What both learned then sits the same held-out exam, untimed. A gimbal run then also measures its floors: what the same
shapes cost without gimbal, see ``Floors``.

    pip install torch==2.13.0 && pip install -e '.[bench]'
    python benchmarks/vs_trl.py --out benchmarks/vs_trl.json
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gimbal.advantages.estimators.group_normalized import GroupNormalized
from gimbal.api import evaluate
from gimbal.engines.native import Native, NativeEngine
from gimbal.learning.proximal.behavior import Behavior
from gimbal.objectives import ClippedRatio
from gimbal.policies.layout import Layout
from gimbal.policies.token import CausalLM, TokenPolicy
from gimbal.recipes.core.demo import demo
from gimbal.report.metrics import PASS
from gimbal.rewards._reasoning import make
from gimbal.runtime import device
from gimbal.runtime.local import Trainer
from gimbal.runtime.run import Run

WINDOW = 4  # steps of 128 rollouts: a standard error of 1.3 points
MOST_STEPS = 100
SAMPLER = Native(slots=128, precision="float32")
# log-probs: what is evaluated before the update, the old ones and the reference's, and the advantages; here nothing is evaluated.
# update: forward and backward; gimbal's also holds the optimiser, which TRL's trainer keeps out of sight in "other".
# sync: weights copied into the sampler, and gimbal's proof that they arrived. TRL's sampler is the trainer.
PHASES = ("generation", "scoring", "log-probs", "update", "sync", "proof")


def watch(seconds: Counter[str], owner: Any, method: str, phase: str) -> None:
    """Add the time spent in a method of a live object to ``seconds[phase]``."""
    inner: Callable[..., Any] = getattr(owner, method)

    def timed(*args: Any, **keywords: Any) -> Any:
        start = time.perf_counter()
        result = inner(*args, **keywords)
        seconds[phase] += time.perf_counter() - start
        return result

    setattr(owner, method, timed)


class Floors:
    """What a gimbal run would cost with nothing of gimbal in it: the same shapes are recorded during the run and replayed after it.

    generation: the sampler's module on the same prompts and the same rows of its cache, nothing drawn and nothing kept.
    update: forward and backward of the same layouts through the model, the sum of the decisions' logits being the loss; no optimiser.
    sync: one copy of all weights in memory.
    """

    def __init__(self, trainer: Trainer) -> None:
        policy, engine = trainer.learner.policy, trainer.engine
        assert isinstance(policy, TokenPolicy) and isinstance(engine, NativeEngine)
        self.policy, self.engine = policy, engine
        self.drawn: list[
            tuple[int, int, int]
        ] = []  # rows, tokens of each, positions in view: 0 where a prompt is filled in
        self.learned: list[Layout] = []  # one of each micro-batch
        self.loads = 0
        self.copies = [torch.zeros_like(tensor) for tensor in policy.weights().values()]
        engine.copy.module.register_forward_pre_hook(self._draw, with_kwargs=True)
        inner, load = policy._hidden, engine.load

        def hidden(layout: Layout, checkpointing: bool) -> Tensor:
            if torch.is_grad_enabled():
                self.learned.append(layout)
            return inner(layout, checkpointing)

        def counted(version: int, state: Mapping[str, Tensor]) -> None:
            self.loads += 1
            load(version, state)

        policy._hidden, engine.load = hidden, counted

    def _draw(self, module: Any, positional: Any, inputs: dict[str, Any]) -> None:
        if "past_key_values" in inputs:  # else the engine scores
            mask = inputs.get("attention_mask")
            self.drawn.append((*inputs["input_ids"].shape, 0 if mask is None else mask.shape[-1]))

    def measure(self) -> dict[str, float]:
        """Seconds of the whole run, by phase."""
        seconds: dict[str, float] = {}
        for phase, replay in (("generation", self._generation), ("update", self._update), ("sync", self._sync)):
            start = time.perf_counter()
            replay()
            seconds[phase] = time.perf_counter() - start
        return seconds

    @torch.inference_mode()
    def _generation(self) -> None:
        module, cache, drawn = self.engine.copy.module, self.engine.slots, list(self.drawn)
        for rows, tokens, extent in drawn:
            ids = torch.zeros(rows, tokens, dtype=torch.long)
            if not extent:
                cache.collect()
                module(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
                continue
            position = torch.full((rows,), extent - 1)
            cache.decode(position, extent)
            mask = torch.zeros(rows, 1, 1, extent)
            module(
                input_ids=ids,
                position_ids=position[:, None],
                attention_mask=mask,
                past_key_values=cache,
                use_cache=True,
            )

    def _update(self) -> None:
        model = self.policy.model
        for layout in self.learned:
            hidden = model.base_model(**layout.inputs(model.dtype), use_cache=False).last_hidden_state
            model.get_output_embeddings()(hidden[layout.row_K, layout.column_K]).sum().backward()
            model.zero_grad(set_to_none=True)

    @torch.no_grad()
    def _sync(self) -> None:
        for _ in range(self.loads):
            for copy, tensor in zip(self.copies, self.policy.weights().values(), strict=True):
                copy.copy_(tensor)


def reached(passed: list[float], target: float) -> bool:
    return len(passed) >= WINDOW and statistics.fmean(passed[-WINDOW:]) >= target


def train_gimbal(seed: int, threads: int, target: float, model: Path) -> dict[str, Any]:
    """The demo less what TRL's GRPO lacks: no filter, no staleness, sampling in the trainer's own precision.

    The sampler is then the trainer, and like TRL's its log-probabilities serve as the old ones (the anchor Behavior).
    """
    run = replace(
        demo(),
        engine=SAMPLER,
        filters=(),
        correction=None,
        anchor=Behavior(),
        held_out=None,
        max_staleness=0,
        advantage=GroupNormalized(eps=1e-4),  # TRL's
        steps=MOST_STEPS,
        seed=seed,
        threads=threads,
    )
    trainer = Trainer(run)
    trainer.begin()  # the first delivery and its proof belong to no phase
    phases: Counter[str] = Counter()
    passed: list[float] = []
    watch(phases, trainer.engine, "step", "generation")
    watch(phases, trainer.learner, "prepare", "log-probs")
    watch(phases, trainer.learner, "step", "update")
    watch(phases, trainer, "_deliver", "sync")
    watch(phases, trainer, "_proved", "proof")
    floors = Floors(trainer)
    start, busy = time.perf_counter(), time.process_time()
    while not reached(passed, target) and len(passed) < MOST_STEPS:
        metrics, _, _ = trainer.advance()
        passed.append(metrics["pass_rate"])
        phases["scoring"] += metrics["time/generate"]
    seconds, busy = time.perf_counter() - start, time.process_time() - busy
    phases["scoring"] -= phases["generation"]  # what is left is scoring and the books of the groups
    trainer.learner.policy.save(model)
    trainer.close()
    outcome = {"seconds": seconds, "busy": busy, "passed": passed, "tokens": metrics["tokens"], "phases": phases}
    return outcome | {"saved": time.time(), "floors": floors.measure()}


def trl_trainer(run: Run, model: Any, directory: Path, callback: Any, told: Callable[[list[float], int], None]) -> Any:
    """TRL's GRPOTrainer on ``model``, set to the sizes, tasks and rates of ``run``; its memory savers and its file writing are off.

    ``told`` hears the rewards of every step, and how many tokens were drawn for them.
    """
    import datasets
    from transformers import AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    assert isinstance(run.policy, CausalLM) and isinstance(run.objective, ClippedRatio)
    width = run.num_generations
    score_texts, _ = make()

    def reasoning(prompts, completions, completion_ids, task, **_: Any) -> list[float]:
        scores: list[float] = []
        for first in range(0, len(task), width):
            asked = run.tasks[task[first]]
            entry = {"answer": asked.answer} | {name: asked.columns[name] for name in ("question", "metadata")}
            parameters = json.dumps(dict(asked.columns["parameters"]))
            texts = completions[first : first + width]
            scores += score_texts(asked.source, parameters, entry, texts, "<answer>", "</answer>")
        told(scores, sum(map(len, completion_ids)))
        return scores

    rows = [{"prompt": run.tasks[index].prompt, "task": index} for index in range(MOST_STEPS * run.prompts_per_step)]
    return GRPOTrainer(
        model=model,
        processing_class=AutoTokenizer.from_pretrained(run.policy.path),
        reward_funcs=reasoning,
        train_dataset=datasets.Dataset.from_list(rows),
        callbacks=[callback],
        args=GRPOConfig(  # its defaults agree on the rest: temperature 1, no KL, advantages scaled by group, clipping at 1.0
            output_dir=str(directory),
            seed=run.seed,
            max_steps=MOST_STEPS,
            per_device_train_batch_size=run.prompts_per_step * width,
            num_generations=width,
            max_completion_length=run.sampling.max_length,
            epsilon=run.objective.clip_low,
            epsilon_high=run.objective.clip_high,
            loss_type="dapo",  # the mean over the tokens of the batch
            learning_rate=run.optimization.learning_rate,
            lr_scheduler_type="constant",
            adam_beta2=run.optimization.beta2,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            save_strategy="no",
            disable_tqdm=True,
        ),
    )


def train_trl(seed: int, threads: int, target: float, model: Path) -> dict[str, Any]:
    """TRL's GRPOTrainer, set to the same method."""
    from transformers import TrainerCallback

    device.prepare(threads)  # threads, and denormals flushed: both sides alike
    phases: Counter[str] = Counter()
    passed: list[float] = []
    tokens = [0]

    def told(scores: list[float], drawn: int) -> None:
        passed.append(statistics.fmean(score >= PASS for score in scores))
        tokens[0] += drawn

    class Until(TrainerCallback):
        def on_step_end(self, args, state, control, **_: Any):
            control.should_training_stop = reached(passed, target)
            return control

    trainer = trl_trainer(replace(demo(), seed=seed), CausalLM().load().model, model / "trainer", Until(), told)
    watch(phases, trainer, "_generate_single_turn", "generation")
    watch(phases, trainer, "_calculate_rewards", "scoring")
    watch(phases, trainer, "compute_loss", "update")
    watch(phases, trainer.accelerator, "backward", "update")
    start, busy = time.perf_counter(), time.process_time()
    trainer.train()
    seconds, busy = time.perf_counter() - start, time.process_time() - busy
    trainer.save_model(str(model))
    outcome = {"seconds": seconds, "busy": busy, "passed": passed, "tokens": tokens[0], "phases": phases}
    return outcome | {"saved": time.time(), "floors": {}}


ARMS = {"trl": train_trl, "gimbal": train_gimbal}


def measure(arm: str, seed: int, threads: int, target: float) -> dict[str, Any]:
    """One run of one arm in a fresh process, then the exam of what it learned."""
    with tempfile.TemporaryDirectory() as scratch:
        words = [sys.executable, __file__, "--arm", arm, "--scratch", scratch]
        words += ["--seed", str(seed), "--threads", str(threads), "--target", str(target)]
        environment = os.environ | {"OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false"}
        start = time.time()
        subprocess.run(words, check=True, env=environment, stdout=subprocess.DEVNULL)
        outcome = json.loads((Path(scratch) / "outcome.json").read_text())
        solved = sit_exam(Path(scratch) / "model", threads)
    if not reached(outcome["passed"], target):
        raise SystemExit(f"{arm} does not reach {target} in {MOST_STEPS} steps: compare at a lower --target")
    steps, seconds, phases = len(outcome["passed"]), outcome["seconds"], outcome["phases"]
    figures = {
        "seconds": seconds,
        "to the model on disk": outcome["saved"] - start,  # imports and loading too; floors are measured afterwards
        "steps": steps,
        "seconds a step": seconds / steps,
        "processor seconds a step": outcome["busy"] / steps,  # hardly moved by what else runs on the machine
        **{phase: phases.get(phase, 0.0) / steps for phase in PHASES},
        "other": (seconds - sum(phases.values())) / steps,
        "tokens a step": outcome["tokens"] / steps,
        "exam": solved,
    }
    floors = {phase: seconds / steps for phase, seconds in outcome["floors"].items()}
    return {"arm": arm, "seed": seed, **figures, "floors": floors, "passed": outcome["passed"]}


def sit_exam(model: Path, threads: int) -> float:
    """The share of the demo's exam, four samples a task, that this model gets right."""
    return evaluate(replace(demo(), policy=CausalLM(model=str(model)), engine=SAMPLER, threads=threads)).pass_at[1]


def table(runs: list[dict[str, Any]]) -> str:
    """Median, least and most of every figure, and TRL's median over gimbal's."""
    lines = [f"{'median (least - most)':26}{'TRL':>22}{'gimbal':>22}{'ratio':>8}"]
    for name in (figure for figure, value in runs[0].items() if isinstance(value, float) or figure == "steps"):
        columns = [[run[name] for run in runs if run["arm"] == arm] for arm in ARMS]
        cells = [f"{statistics.median(column):.3g} ({min(column):.3g}-{max(column):.3g})" for column in columns]
        ratio = statistics.median(columns[0]) / statistics.median(columns[1])
        lines.append(f"{name:26}{cells[0]:>22}{cells[1]:>22}{ratio:8.2f}")
    for run in runs:
        for phase, floor in run["floors"].items():
            lines.append(f"gimbal, seed {run['seed']}: {phase} {run[phase]:.4f} s a step, floor {floor:.4f} s")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2, help="of torch, on both sides")
    parser.add_argument("--target", type=float, default=0.85, help="pass rate")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--arm", choices=ARMS, help=argparse.SUPPRESS)  # this and the next two: one run in this process
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--scratch", type=Path, help=argparse.SUPPRESS)
    words = parser.parse_args()
    if words.arm:
        outcome = ARMS[words.arm](words.seed, words.threads, words.target, words.scratch / "model")
        (words.scratch / "outcome.json").write_text(json.dumps(outcome))
        return
    runs = []
    for seed in range(words.repetitions):
        for arm in ARMS:
            runs.append(run := measure(arm, seed, words.threads, words.target))
            print(f"{arm} {seed}: {run['steps']} steps, {run['seconds']:.1f} s, exam {run['exam']:.3f}", flush=True)
    print(table(runs))
    if words.out:
        weights = (Path(CausalLM().path) / "model.safetensors").read_bytes()
        setting = {
            "threads": words.threads,
            "cores": os.cpu_count(),
            "target": words.target,
            "model_sha256": hashlib.sha256(weights).hexdigest(),
            "versions": {name: version(name) for name in ("torch", "transformers", "trl", "gimbal-rl")},
        }
        words.out.write_text(json.dumps({"setting": setting, "runs": runs}, indent=1) + "\n")


if __name__ == "__main__":
    main()
