"""The command line: gimbal train | eval | list | show | report | env. Heavy imports happen inside the commands."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

HELP = """\
gimbal: reinforcement-learning post-training that stays level when generation and training are decoupled

  gimbal train [RECIPE] [key=value ...]     train a recipe; without one, demo
  gimbal eval RUN|MODEL [key=value ...]     sit the held-out exam
  gimbal list recipes|methods|tasks         what there is
  gimbal show NAME                          a method, task or recipe: equation, limiting cases, paper, fields, where it lives
  gimbal report RUN                         rewrite RUN/report.html
  gimbal env                                versions, for a bug report

gimbal COMMAND --help says more. --debug (or GIMBAL_DEBUG=1) shows the traceback of an error."""

TRAIN_HELP = """\
gimbal train [RECIPE] [key=value ...]

RECIPE is a name (gimbal list recipes), path/file.py:function, pkg.module:function, or a YAML or JSON file with a line
`recipe: NAME` and overrides. gimbal train RECIPE --help lists every key of it with type and value.

  objective.clip_high=0.3        a field, by its path; --objective.clip-high 0.3 is the same
  learning_rate=1e-3             a field, by its last name where only one has it
  objective='SequenceRatio()'    a whole part (gimbal list methods)
  model=DIRECTORY                any transformers causal language model
  tasks=FILE.jsonl  reward=file.py:function

  --name NAME        of the directory runs/NAME; never used twice
  --runs DIRECTORY   other than runs
  --from RUN         the recipe of an earlier run, anew; overrides allowed
  --resume RUN       go on where it stopped, to the same bits
  --dry-run          say what would be done
  --print-config     print the resolved recipe as YAML, and stop"""

EVAL_HELP = """\
gimbal eval RUN|MODEL [--recipe RECIPE] [key=value ...]

The held-out exam of a run's newest checkpoint, or of a model directory under the exam of a recipe (demo)."""

# Packages behind an extra of ours, by the module that is missed.
EXTRAS = {
    "gymnasium": "control",
    "ray": "ray",
    "vllm": "vllm",
    "peft": "peft",
    "tensorboard": "track",
    "wandb": "track",
}


@dataclass
class Arguments:
    """A command line, taken apart: ``key=value`` and ``--key value`` are overrides unless the command knows the flag."""

    words: list[str] = field(default_factory=list)
    flags: dict[str, str] = field(default_factory=dict)
    overrides: dict[str, str] = field(default_factory=dict)

    def flag(self, name: str) -> str | None:
        return self.flags.get(name)


def parse(argv: Sequence[str], switches: Sequence[str] = (), valued: Sequence[str] = ()) -> Arguments:
    from gimbal.config.parts import Text

    result, rest = Arguments(), list(argv)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            key, equals, value = word.partition("=")
            if not equals:
                result.words.append(word)
                continue
        else:
            key, equals, value = word[2:].partition("=")
            if key in switches:
                result.flags[key] = value
                continue
            if not equals:
                # A flag of ours needs its value; a lone --checkpointing is true.
                alone = not rest or rest[0].startswith("--")
                if alone and key in valued:
                    raise ValueError(f"--{key} needs a value")
                value = "true" if alone else rest.pop(0)
            if key not in valued:
                key = key.replace("-", "_")
        into = result.flags if word.startswith("--") and key in valued else result.overrides
        if key in into:
            raise ValueError(f"{key} is given twice")
        into[key] = Text(value)
    return result


def train(argv: Sequence[str]) -> int:
    arguments = parse(argv, ("help", "dry-run", "print-config"), ("name", "runs", "from", "resume"))
    if "help" in arguments.flags and not arguments.words:
        print(TRAIN_HELP)
        return 0
    if len(arguments.words) > 1:
        raise ValueError(f"{arguments.words[1]!r} is neither a second recipe nor an override (key=value)")
    chosen = [name for name in ("from", "resume") if name in arguments.flags] + ["RECIPE"] * len(arguments.words)
    if len(chosen) > 1:
        raise ValueError(f"{' and '.join(chosen)} both say what to train; give one of them")
    if "resume" in arguments.flags and (arguments.overrides or "name" in arguments.flags):
        raise ValueError("a resumed run goes on as it was; to change it use --from, which starts it anew")
    return _train(arguments)


def _train(arguments: Arguments) -> int:
    from gimbal import api, config, recipes
    from gimbal.recipes.configure import configured
    from gimbal.runtime import compose
    from gimbal.runtime.run import Run

    runs = Path(arguments.flags.get("runs", api.RUNS))
    earlier = arguments.flag("resume") or arguments.flag("from")
    if earlier:
        directory = api.find_run(earlier, runs)
        recipe, run = config.load(directory, Run)
        run = configured(run, arguments.overrides, recipes.tell)
    else:
        recipe = arguments.words[0] if arguments.words else "demo"
        run = recipes.load(recipe, arguments.overrides)
    if "help" in arguments.flags:
        print(fields_page(run, recipe))
    elif "print-config" in arguments.flags:
        print(config.dump(run, recipe), end="")
    elif "dry-run" in arguments.flags:
        print(f"{recipe}: {api.statement(run)}")
        for warning in compose.check(run):
            recipes.tell(warning)
    else:
        resumed = "resume" in arguments.flags
        if not resumed:
            directory = api.create(run, recipe, arguments.flag("name"), runs)
        print(f"{directory}: {api.statement(run)}", flush=True)
        try:
            api.launch(run, directory, recipe, resume=resumed)
        except KeyboardInterrupt:
            recipes.tell(api.way_on(directory))
            return 130
    return 0


def evaluate(argv: Sequence[str]) -> int:
    arguments = parse(argv, ("help",), ("recipe", "runs"))
    if "help" in arguments.flags:
        print(EVAL_HELP)
        return 0
    if len(arguments.words) != 1:
        raise ValueError("gimbal eval wants one run or model directory")
    from gimbal import api, recipes
    from gimbal.recipes.configure import configured

    runs = Path(arguments.flags.get("runs", api.RUNS))
    run = api.examined(arguments.words[0], arguments.flags.get("recipe", "demo"), runs)
    run = configured(run, arguments.overrides, recipes.tell)
    exam = api.evaluate(run)
    print(f"{arguments.words[0]}: {exam.tasks} held-out tasks, seed {run.seed}")
    _table({name: f"{value:.4g}" for name, value in exam.metrics().items()})
    return 0


def show_list(argv: Sequence[str]) -> int:
    kinds = {"recipes": list_recipes, "methods": list_methods, "tasks": list_tasks}
    if len(argv) != 1 or argv[0] not in kinds:
        raise ValueError(f"gimbal list wants one of {', '.join(kinds)}")
    kinds[argv[0]]()
    return 0


def list_recipes() -> None:
    from gimbal import recipes

    _table(recipes.names())


def list_methods() -> None:
    """Every part with an interface, by what it is; behind it how well the work is known, where that is not fully."""
    from gimbal import config

    for kind, entries in sorted(config.methods().items()):
        print(kind)
        _table(
            {
                e.name: e.summary + (f" [{e.confidence}]" if e.confidence not in ("", "verified") else "")
                for e in entries
            }
        )


def list_tasks() -> None:
    from gimbal import config
    from gimbal.environments.reasoning import names

    _table({e.name: e.summary for e in config.catalogue().values() if e.part and "AbstractTasks" in e.bases})
    print("\ntasks.name of ReasoningGym is one of")
    _wrapped(names())


def show(argv: Sequence[str]) -> int:
    if len(argv) != 1:
        raise ValueError("gimbal show wants the name of one method, task or recipe")
    import dataclasses
    import inspect
    import typing

    from gimbal import api, config, recipes
    from gimbal.config.parts import describe

    asked = argv[0]
    known = {name.lower(): name for name in [*config.catalogue(), *recipes.names()]}
    name = known.get(asked.lower()) or known.get(asked.lower().replace("_", ""))
    if name is None and ":" not in asked:
        raise ValueError(
            f"there is no {asked}{config.nearest(asked.lower(), known)} (gimbal list methods, gimbal list recipes)"
        )
    name = name or asked
    thing = recipes.function(name) if name in recipes.names() else config.find(name)
    file, line = inspect.getsourcefile(thing), inspect.getsourcelines(thing)[1]
    print(f"{name}\n\n{inspect.getdoc(thing) or ''}\n\n{thing.__module__}:{line}  {os.path.relpath(file or '')}")
    if not isinstance(thing, type):
        print(f"\n{api.statement(thing())}\n\n{config.dump(thing(), name)}", end="")
    elif dataclasses.is_dataclass(thing):
        hints = typing.get_type_hints(thing)
        print()
        _table({item.name: f"{describe(hints[item.name])}{_default(item)}" for item in dataclasses.fields(thing)})
    return 0


def _default(item: object) -> str:
    import dataclasses

    assert isinstance(item, dataclasses.Field)
    if item.default is not dataclasses.MISSING:
        return f" = {item.default!r}"
    return "" if item.default_factory is dataclasses.MISSING else f" = {item.default_factory()!r}"


def fields_page(run: object, recipe: str) -> str:
    """Every key of a run: path, value, type; above each part its name and docstring, behind a field its comment."""
    import dataclasses
    import inspect
    import re
    import typing

    from gimbal.config import paths
    from gimbal.config.parts import describe

    lines = [f"gimbal train {recipe} [key=value ...]"]
    for prefix, part in {"": run, **paths(run)}.items():
        if not dataclasses.is_dataclass(part) or isinstance(part, type):
            continue
        lines += [
            "",
            f"{prefix or 'run'}: {type(part).__name__}",
            *("    " + x for x in (inspect.getdoc(part) or "").split("\n")),
        ]
        hints = typing.get_type_hints(type(part))
        source = "\n".join(inspect.getsource(cls) for cls in type(part).__mro__ if cls.__module__.startswith("gimbal."))
        for item in dataclasses.fields(part):
            value = vars(part)[item.name]
            shown = type(value).__name__ + "(...)" if dataclasses.is_dataclass(value) else repr(value)
            comment = re.search(rf"^ +{item.name}: .*?  (# .*)$", source, re.MULTILINE)
            key = f"{prefix}.{item.name}".lstrip(".")
            lines.append(f"  {key} = {shown}  ({describe(hints[item.name])}){'  ' + comment[1] if comment else ''}")
    return "\n".join(lines)


def report(argv: Sequence[str]) -> int:
    if len(argv) != 1:
        raise ValueError("gimbal report wants one run")
    from gimbal.api import find_run
    from gimbal.report.page import write_report

    print(write_report(find_run(argv[0])))
    return 0


def environment(argv: Sequence[str]) -> int:
    """Nothing private: no paths, names or addresses."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    import torch

    import gimbal

    facts = {
        "gimbal": gimbal.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
    }
    for package in (
        "torch",
        "transformers",
        "reasoning-gym",
        "numpy",
        "safetensors",
        "gymnasium",
        "peft",
        "vllm",
        "ray",
    ):
        try:
            facts[package] = version(package)
        except PackageNotFoundError:
            facts[package] = "not installed"
    facts["cores"] = f"{os.cpu_count()} ({len(os.sched_getaffinity(0))} usable)"
    facts["threads"] = str(torch.get_num_threads())
    found = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    facts["gpu"] = f"{', '.join(found)} (CUDA {torch.version.cuda})" if found else "none"
    _table(facts)
    return 0


def _table(rows: Mapping[str, str]) -> None:
    width = max(map(len, rows), default=0)
    for name, text in rows.items():
        print(f"  {name:<{width}}  {text}".rstrip())


def _wrapped(names: Sequence[str]) -> None:
    import textwrap

    print(textwrap.fill(" ".join(names), 100, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False))


COMMANDS = {"train": train, "eval": evaluate, "list": show_list, "show": show, "report": report, "env": environment}


def main(argv: Sequence[str] | None = None) -> int:
    """Exit codes: 0 done, 2 something the user can mend (said in one line), 130 interrupted."""
    words = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in words or os.environ.get("GIMBAL_DEBUG", "0") not in ("", "0")
    words = [word for word in words if word != "--debug"]
    words = ["--help" if word == "-h" else word for word in words]
    if not words or words[0] in ("--help", "help"):
        print(HELP)
        return 0
    try:
        if words[0] == "--version":
            import gimbal

            print(gimbal.__version__)
            return 0
        if words[0] not in COMMANDS:
            from gimbal.config import nearest

            raise ValueError(f"there is no command {words[0]}{nearest(words[0], COMMANDS)} (gimbal --help)")
        if "--help" in words and words[0] not in ("train", "eval"):
            print(HELP)
            return 0
        return COMMANDS[words[0]](words[1:])
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # gimbal list methods | head
        return 0
    except (ValueError, OSError, ModuleNotFoundError) as error:
        # Whatever a user can mend is one of these; anything else is a fault of ours and keeps its traceback.
        if debug or (isinstance(error, ModuleNotFoundError) and error.name not in EXTRAS):
            raise
        print(f"gimbal: {sentence(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\ngimbal: stopped", file=sys.stderr)
        return 130


def sentence(error: Exception) -> str:
    """One line."""
    if isinstance(error, ModuleNotFoundError):
        return f"this needs {error.name}: pip install 'gimbal-rl[{EXTRAS[error.name or '']}]'"
    return " ".join(str(error).split()) or type(error).__name__
