"""gimbal export: a run's model in the layout that transformers, diffusers, vLLM and the Hub read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

HELP = """\
gimbal export RUN [--step N | --best] [--role NAME] DIRECTORY

Writes the final model of RUN in the layout of transformers: config.json, safetensors, the tokenizer, README.md (a model card) with
the recipe and the run's results, and recipe.yaml. A denoising model gets the layout of diffusers: transformer/ or unet/, and
scheduler/. A LoRA adapter is merged into its base. Card and recipe have only the last part of each absolute path; with --adapter,
adapter_config.json names the base as you gave it. Read them before you upload them.

  --step N           export this checkpoint (keep_checkpoints and keep_every decide which ones are kept)
  --best             export the model with the best evaluation (held_out.save_best)
  --role NAME        export this model of the run's `separate` instead of the policy
  --dtype TYPE       store weights as bfloat16, float16 or float32 (default: as trained)
  --adapter          export the LoRA adapter without merging it, for peft or vLLM
  --runs DIRECTORY   look up run names there instead of in runs"""


def export(argv: Sequence[str]) -> int:
    from gimbal.cli.words import parse

    arguments = parse(argv, ("help", "best", "adapter"), ("step", "role", "dtype", "runs"))
    if "help" in arguments.flags:
        print(HELP)
        return 0
    if arguments.overrides:
        raise ValueError(f"gimbal export takes no key {next(iter(arguments.overrides))} (gimbal export --help)")
    if len(arguments.words) != 2:
        raise ValueError("gimbal export takes a run and a target directory: gimbal export RUN DIRECTORY")
    if {"step", "best"} <= arguments.flags.keys():
        raise ValueError("--step and --best name different models; give one of them")
    if {"dtype", "adapter"} <= arguments.flags.keys():
        raise ValueError("--adapter copies the adapter unchanged: drop --dtype, or drop --adapter to merge it")
    from gimbal import config, durable
    from gimbal.runtime import policies
    from gimbal.runtime.directories import RUNS, find_run
    from gimbal.runtime.run import AbstractRun

    directory = find_run(arguments.words[0], Path(arguments.flags.get("runs", RUNS)))
    target = Path(arguments.words[1])
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ValueError(f"{target} already exists and is not empty; give a new directory")
    recipe, run = config.load(directory, AbstractRun)
    model, step = chosen(directory, arguments.flags.get("step"), "best" in arguments.flags)
    if role := arguments.flags.get("role"):
        model = of_role(run, model, role)
        run = policies.alone(run, role)
    with durable.named(target):
        merged = _write(run, model, target, arguments.flags.get("dtype"), "adapter" in arguments.flags)
        card = _card(directory, target, recipe, run, step, merged=merged, adapter_only="adapter" in arguments.flags)
        (target / "README.md").write_text(card, encoding="utf-8")
        config.save(config.public(directory / config.RECIPE_FILE), target / config.RECIPE_FILE)
    whose = f"{role} of " if role else ""
    print(f"{target}: the model of {whose}{directory} after step {step}{', its adapter merged in' if merged else ''}")
    if why := _only_here(target):
        print(f"{why} gimbal eval {target} --recipe {recipe}")
    return 0


def of_role(run: Any, model: Path, role: str) -> Path:
    """The path of a model that was trained beside the policy."""
    from gimbal.runtime.run import Run

    names = list(run.separate) if isinstance(run, Run) else []
    if role not in names:
        known = (
            f"it has models of its own for {', '.join(names)}"
            if names
            else "all its roles share the policy: drop --role"
        )
        raise ValueError(f"--role is {role}, but {known}")
    return model / role


def chosen(directory: Path, step: str | None, best: bool) -> tuple[Path, int]:
    """The path of the selected model, and the step it was saved after."""
    from gimbal.config import read_file
    from gimbal.report.files import BEST, LAST, SUMMARY, Summary
    from gimbal.runtime import checkpoint
    from gimbal.runtime.best import EVALUATION

    if best:
        if not (directory / BEST).is_dir():
            raise ValueError(
                f"{directory} has no best model: it was trained without held_out.save_best=score, or no evaluation was better than the "
                "first, before training"
            )
        return directory / BEST, int(read_file(directory / BEST / EVALUATION)["step"])
    if step is None and (directory / SUMMARY).is_file():
        return directory / LAST, Summary.load(directory / SUMMARY).steps
    there = {checkpoint.step_of(path): path for path in checkpoint.all_of(directory)}
    if not there:
        raise ValueError(f"{directory} holds no checkpoint yet")
    if step is not None and (not step.isdecimal() or int(step) not in there):
        raise ValueError(
            f"--step is {step}, but {directory} has checkpoints only for steps {', '.join(map(str, sorted(there)))}"
        )
    at = max(there) if step is None else int(step)
    if fault := checkpoint.spoilt(there[at], "model"):
        raise ValueError(fault)
    return there[at] / "model", at


def _write(run: Any, model: Path, target: Path, dtype: str | None, as_adapter: bool) -> bool:
    """Write the model; return whether an adapter was merged."""
    import torch

    from gimbal.policies.denoiser import Denoiser
    from gimbal.policies.token import CausalLM, Dtype

    spec = run.policy
    if not isinstance(spec, CausalLM | Denoiser):
        raise ValueError(
            f"{type(spec).__name__} is not a causal language model or a diffusers model, so it cannot be exported; use the run's own "
            f"{model}"
        )
    if as_adapter and spec.lora is None:
        raise ValueError("this run trained the whole model: leave out --adapter")
    if as_adapter:
        spec.at(model).load(run.seed).save(target)
        return False
    if dtype is not None and dtype not in get_args(Dtype):
        raise ValueError(f"--dtype is {dtype}; choose from {', '.join(get_args(Dtype))}")
    # An adapter's directory: merged, in the training precision.
    merged = Denoiser(model=str(model)) if isinstance(spec, Denoiser) else CausalLM(model=str(model), dtype=spec.dtype)
    policy = merged.load()
    if dtype is not None:
        torch.nn.Module.to(policy.model, vars(torch)[dtype])  # diffusers' own warns
    policy.save(target)
    return spec.lora is not None


def _card(directory: Path, target: Path, recipe: str, run: Any, step: int, *, merged: bool, adapter_only: bool) -> str:
    """A model card: base model, data, method, the results in the run's files, and how to load it."""
    from gimbal import __version__, config, recipes
    from gimbal.policies.denoiser import Denoiser
    from gimbal.workflows.demonstrated import Demonstrated

    base = config.without_places(run.policy.model)
    denoises, only_here = isinstance(run.policy, Denoiser), _only_here(target)
    library = "gimbal" if only_here else "diffusers" if denoises else "transformers"
    lines = ["---", *([] if Path(run.policy.path).exists() else [f"base_model: {base}"]), f"library_name: {library}"]
    learned = "supervised" if isinstance(run.workflow, Demonstrated) else "reinforcement-learning"
    lines += [f"tags: [gimbal, {learned}]", "---", "", f"# {directory.name}", ""]
    adapter = ", LoRA adapter merged in" if merged else ""
    rewards = ", ".join(reward.name for reward in run.rewards) or "none of its own"
    lines += [
        "| | |",
        "|---|---|",
        f"| base model | `{base}` |",
        f"| data | {_data(run.tasks)} |",
        f"| reward | {rewards} |",
    ]
    paper = re.match(r".*?\(arXiv:[\d.]+\)", recipes.names().get(recipe, ""))
    lines += [f"| method | recipe `{config.without_places(recipe)}`{f': {paper[0]}' if paper else ''} |"]
    lines += [f"| trained | gimbal {__version__}, seed {run.seed}, step {step} of {run.steps}{adapter} |"]
    lines += ["", "## Results", "", *_results(directory, step), "", "## Use", ""]
    if only_here:
        lines += [f"{only_here} `gimbal eval DIRECTORY --recipe {config.without_places(recipe)}`", ""]
        lines += ["DIRECTORY is this directory."]
    else:
        use = _sampling(run, target) if denoises else _loading(base if adapter_only else "")
        lines += ["```python", *use, "```", "", "DIRECTORY is this directory, or its name on the Hub."]
    lines += [
        "",
        "## Recipe",
        "",
        "Every setting; `gimbal train recipe.yaml` trains with them again, where the files and models it names are.",
        "",
        "```yaml",
    ]
    lines += [config.public(directory / config.RECIPE_FILE).rstrip(), "```", ""]
    return "\n".join(lines)


def _only_here(target: Path) -> str:
    """Why diffusers cannot sample from what was written, and what can; "" if it can, or of a language model."""
    from gimbal.policies import diffusers

    try:
        told = diffusers.told(diffusers.described(target)[1])
    except ValueError:
        return ""
    if told.read == told.channels:
        return ""
    what = " and ".join(["what came before it"] * told.history + ["how far a step goes"] * told.jumps)
    return (
        f"diffusers loads this network but cannot sample from it: {told.read - told.channels} of its {told.read} channels say {what}, "
        "which its schedulers do not give. Sample with gimbal:"
    )


def _sampling(run: Any, target: Path) -> list[str]:
    """Python that samples with diffusers alone, in as many steps as in training."""
    from gimbal.environments.conditions import Conditions
    from gimbal.policies import diffusers
    from gimbal.policies.denoiser import Denoiser
    from gimbal.policies.paths import TRAILING

    policy, (place, config) = Denoiser(model=str(target)), diffusers.described(target)
    scheduler = diffusers.scheduled(target).get("_class_name")
    shape, classes, steps = policy.sample_shape, policy.classes, run.sampling.max_length
    count, given, labels = 4, "", []
    if classes:
        asked = run.tasks.labels if isinstance(run.tasks, Conditions) else ()
        null = f"; {classes}: none in particular" * (not policy.only_by_class)
        label = asked[0] if asked else 0 if policy.only_by_class else classes
        labels, given = (
            [f"label = torch.full(({count},), {label})  # classes 0 to {classes - 1}{null}"],
            ", class_labels=label",
        )
    trailing = run.sampling.spacing == TRAILING
    times = f"sigmas=[1 - k / {steps} for k in range({steps})]" if trailing else str(steps)
    call = f"model(x, timestep=time.expand({count}){{}}).sample[:, :{shape[0]}]"
    said = [f"        said = {call.format(given)}"]
    if run.policy.guidance != 1:
        none = call.format(f", class_labels=torch.full_like(label, {classes})")
        said += [f"        said = said + {run.policy.guidance - 1:g} * (said - {none})"]
    return [
        "import torch",
        f"from diffusers import {config['_class_name']}, {scheduler}",
        "",
        f'model = {config["_class_name"]}.from_pretrained("DIRECTORY", subfolder="{place}").eval()',
        f'scheduler = {scheduler}.from_pretrained("DIRECTORY", subfolder="scheduler")',
        f"scheduler.set_timesteps({times})  # as in training",
        f"x = torch.randn({count}, {', '.join(map(str, shape))})",
        *labels,
        "with torch.no_grad():",
        "    for time in scheduler.timesteps:",
        *said,
        "        x = scheduler.step(said, time, x).prev_sample",
    ]


def _loading(base: str) -> list[str]:
    """Python that loads the model; with ``base`` it is an adapter of that model."""
    lines = ["from transformers import AutoModelForCausalLM, AutoTokenizer", ""]
    if not base:
        lines += ['model = AutoModelForCausalLM.from_pretrained("DIRECTORY")']
    else:
        lines = ["from peft import PeftModel", *lines]
        lines += [f'model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained("{base}"), "DIRECTORY")']
    return [*lines, 'tokenizer = AutoTokenizer.from_pretrained("DIRECTORY")']


def _data(tasks: Any) -> str:
    """The task set in a word: its source or name if it has one."""
    from dataclasses import fields

    from gimbal.config import without_places
    from gimbal.environments.mixture import Mixed
    from gimbal.environments.split import Split

    if isinstance(tasks, Split):
        return _data(tasks.tasks)
    if isinstance(tasks, Mixed):
        return ", ".join(map(_data, tasks.sets))
    named = {item.name: vars(tasks)[item.name] for item in fields(tasks)}
    word = next((str(named[key]) for key in ("source", "path", "name") if isinstance(named.get(key), str)), "")
    return f"{type(tasks).__name__}{f' `{without_places(word)}`' if word else ''}"


def _results(directory: Path, step: int) -> list[str]:
    """The held-out evaluation before training and of this model, if the run has it, with the console's names."""
    from gimbal.report.files import METRICS, SUMMARY, JsonLines, Summary
    from gimbal.report.held_out import figures

    summary = Summary.load(directory / SUMMARY) if (directory / SUMMARY).is_file() else None
    row = next((row for row in JsonLines(directory / METRICS).read() if row["step"] == step), {})
    taken = {key: value for key, value in row.items() if key.startswith("eval/")}
    after = summary.after if summary is not None and summary.steps == step else taken
    before = {} if summary is None else summary.before
    if not (named := figures(before or after, after)):
        return ["This model has no held-out evaluation."]
    lines = ["| held-out tasks | before training | this model |", "|---|---|---|"]
    for key, name in named.items():
        first = f"{before[key]:.3f}" if key in before else "-"
        lines.append(f"| {name.removeprefix('held-out ')} | {first} | {after[key]:.3f} |")
    return lines
