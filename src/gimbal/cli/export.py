"""gimbal export: a model out of a run, as transformers, diffusers, vLLM and the hub take it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

SHOWN = ("eval/", "reward/", "length/", "mismatch/prob_diff")  # figures of the step that the card has

HELP = """\
gimbal export RUN [--step N | --best] DIRECTORY

Writes the final model of RUN in the layout of transformers: config.json, safetensors, the tokenizer, and a README.md (a model card)
with the recipe and the run's results. A denoising model is written as diffusers reads it: transformer/ or unet/, and scheduler/. A
LoRA adapter is merged into its base. Read the card before you upload it: recipes contain paths.

  --step N           export this checkpoint (keep_checkpoints and keep_every decide which ones are kept)
  --best             export the model with the best evaluation (held_out.save_best)
  --dtype TYPE       store weights as bfloat16, float16 or float32 (default: as trained)
  --adapter          export the LoRA adapter without merging it, for peft or vLLM
  --runs DIRECTORY   look up run names there instead of in runs"""


def export(argv: Sequence[str]) -> int:
    from gimbal.cli.words import parse

    arguments = parse(argv, ("help", "best", "adapter"), ("step", "dtype", "runs"))
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
    from gimbal import api, config, durable
    from gimbal.runtime.run import AbstractRun

    directory = api.find_run(arguments.words[0], Path(arguments.flags.get("runs", api.RUNS)))
    target = Path(arguments.words[1])
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ValueError(f"{target} already exists and is not empty; give a new directory")
    recipe, run = config.load(directory, AbstractRun)
    model, step = chosen(directory, arguments.flag("step"), "best" in arguments.flags)
    with durable.named(target):
        merged = _write(run, model, target, arguments.flag("dtype"), "adapter" in arguments.flags)
        (target / "README.md").write_text(_card(directory, recipe, run, step, merged), encoding="utf-8")
    print(f"{target}: the model of {directory} after step {step}{', its adapter merged in' if merged else ''}")
    return 0


def chosen(directory: Path, step: str | None, best: bool) -> tuple[Path, int]:
    """Where the model is that is meant, and after which step it was saved."""
    from gimbal.report.files import SUMMARY, Summary, read_file
    from gimbal.runtime import checkpoint
    from gimbal.runtime.best import BEST, EVALUATION, LAST

    if best:
        if not (directory / BEST).is_dir():
            raise ValueError(
                f"{directory} has no best model: it was trained without held_out.save_best=score, or no evaluation was better than the "
                "first, of the weights that it began with"
            )
        return directory / BEST, int(read_file(directory / BEST / EVALUATION)["step"])
    if step is None and (directory / SUMMARY).is_file():
        return directory / LAST, Summary.load(directory / SUMMARY).steps
    there = {checkpoint.step_of(path): path for path in checkpoint.all_of(directory)}
    if not there:
        raise ValueError(f"{directory} holds no checkpoint yet")
    if step is not None and (not step.isdecimal() or int(step) not in there):
        raise ValueError(
            f"--step is {step}; the checkpoints of {directory} are of steps {', '.join(map(str, sorted(there)))}"
        )
    at = max(there) if step is None else int(step)
    if fault := checkpoint.spoilt(there[at], "model"):
        raise ValueError(fault)
    return there[at] / "model", at


def _write(run: Any, model: Path, target: Path, dtype: str | None, as_adapter: bool) -> bool:
    """Whether an adapter was merged."""
    import torch

    from gimbal.policies.denoiser import Denoiser
    from gimbal.policies.token import CausalLM, Dtype

    spec = run.policy
    if not isinstance(spec, CausalLM | Denoiser):
        raise ValueError(
            f"{type(spec).__name__} is not a model of transformers or diffusers, so it cannot be exported; use the run's own {model}"
        )
    if as_adapter and spec.lora is None:
        raise ValueError("this run trained the whole model: leave out --adapter")
    if as_adapter:
        spec.at(model).load(run.seed).save(target)
        return False
    if dtype is not None and dtype not in get_args(Dtype):
        raise ValueError(f"--dtype is {dtype}; choose among {', '.join(get_args(Dtype))}")
    # Of an adapter's directory: merged, in the precision of training.
    merged = Denoiser(model=str(model)) if isinstance(spec, Denoiser) else CausalLM(model=str(model), dtype=spec.dtype)
    policy = merged.load()
    if dtype is not None:
        policy.model.to(vars(torch)[dtype])
    policy.save(target)
    return spec.lora is not None


def _card(directory: Path, recipe: str, run: Any, step: int, merged: bool) -> str:
    """A model card: what was trained from, on what, how, and what the run's own files say came of it."""
    from gimbal import __version__, config
    from gimbal.policies.denoiser import Denoiser
    from gimbal.report.files import METRICS, SUMMARY, JsonLines, Summary

    base = run.policy.model
    library = "diffusers" if isinstance(run.policy, Denoiser) else "transformers"
    lines = ["---", *([] if Path(run.policy.path).exists() else [f"base_model: {base}"]), f"library_name: {library}"]
    lines += ["tags: [gimbal, reinforcement-learning]", "---", "", f"# {directory.name}", ""]
    lines += [
        f"Trained from `{base}` with the recipe `{recipe}` of gimbal {__version__}, seed {run.seed}: step {step} of {run.steps}"
    ]
    lines[-1] += ", LoRA adapter merged in." if merged else "."
    lines += ["", "## Measured", ""]
    rows = {row["step"]: row for row in JsonLines(directory / METRICS).read()}
    shown = {name: value for name, value in rows.get(step, {}).items() if name.startswith(SHOWN)}
    figures: dict[str, Any] = {}
    if (directory / SUMMARY).is_file():
        summary = Summary.load(directory / SUMMARY)
        figures = {f"{name}, before training": value for name, value in summary.before.items()}
        if summary.steps == step:
            figures |= {f"{name}, after step {step}": value for name, value in summary.after.items()}
        figures |= {
            "tokens generated in the run": summary.tokens_generated,
            "seconds of training": round(summary.seconds_training, 1),
        }
    figures |= {
        f"{name}, in step {step}": value for name, value in shown.items() if f"{name}, after step {step}" not in figures
    }
    lines += ["| figure | value |", "|---|---|"]
    lines += [f"| {name} | {value:.6g} |" for name, value in figures.items()]
    lines += ["", "`eval/` is of held-out tasks, all others of the tasks trained on.", "", "## Recipe", "", "```yaml"]
    lines += [(directory / config.RECIPE_FILE).read_text(encoding="utf-8").rstrip(), "```", ""]
    return "\n".join(lines)
