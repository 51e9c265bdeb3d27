"""The command line: one module per family of commands, imported when called (COMMANDS)."""

from __future__ import annotations

import errno
import io
import os
import re
import signal
import sys
import threading
from collections.abc import Sequence
from importlib import import_module

HELP = """\
gimbal: reinforcement-learning post-training that stays stable when generation and training are decoupled

  gimbal train [RECIPE] [key=value ...]     train a recipe (default: demo; stable for your own model, tasks or reward)
  gimbal eval RUN|MODEL [key=value ...]     evaluate on the held-out set
  gimbal list recipes|methods|tasks         list what is available; --for staleness filters by question; --for lists the questions
  gimbal show NAME                          show a method, task or recipe: equation, limiting cases, paper, fields, source
  gimbal report RUN [RUN ...] [--serve]     write a page with findings, curves and rollouts, or follow live runs
  gimbal compare RUNS [RUNS ...]            compare runs over their seeds: intervals and a verdict
  gimbal plan [--from RUN] [key=value ...]  simulate throughput with other schedules and devices
  gimbal doctor RUN|CHECKPOINT              diagnose a run, or split the gap between sampler and trainer by cause
  gimbal serve RUN|MODEL [--port 8000]      serve an OpenAI-compatible API and record the requests for training
  gimbal export RUN DIRECTORY               write the trained model, LoRA merged, with a model card
  gimbal record RUN DIRECTORY               record episodes of a run's policy as a dataset in Minari's layout
  gimbal env                                print versions for a bug report

Run gimbal COMMAND --help for details. --debug (or GIMBAL_DEBUG=1) shows the traceback of an error."""

# Optional packages: missing module -> our extra.
EXTRAS = {
    "gymnasium": "control",
    "h5py": "offline",
    "scipy": "combinatorial",
    "ray": "ray",
    "vllm": "vllm",
    "peft": "peft",
    "tensorboard": "track",
    "starlette": "serve",
    "uvicorn": "serve",
    "wandb": "track",
    "trackio": "track",
}


# Each command's module and function, imported when called.
COMMANDS = {
    "train": "train:train",
    "eval": "train:evaluate",
    "list": "show:show_list",
    "show": "show:show",
    "report": "report:report",
    "compare": "compare:compare",
    "plan": "plan:plan",
    "doctor": "doctor:doctor",
    "serve": "serve:serve",
    "export": "export:export",
    "record": "record:record",
    "env": "env:environment",
}
LONGEST_WORD, LONGEST = 200, 2000  # characters of a word in an error's sentence, and of the sentence
MEMORY = 200  # characters of torch's out-of-memory message


def main(argv: Sequence[str] | None = None) -> int:
    """Exit codes: 0 done, 2 an error the user can fix (reported in one line), 130 interrupted. A bug of ours shows a traceback."""
    for name in ("stdin", "stdout", "stderr"):
        if vars(sys)[name] is None:  # closed by the parent: a file of the run would get its number and its output
            setattr(sys, name, open(os.devnull, "r+", encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream := vars(sys)[name], io.TextIOWrapper) and name == "stdout":
            stream.reconfigure(errors="backslashreplace")  # like stderr: a lone surrogate must not end a run
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # Shell scripts start background jobs with SIGINT ignored; a command must still stop on one.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    words = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in words or os.environ.get("GIMBAL_DEBUG", "0") not in ("", "0")
    words = [word for word in words if word != "--debug"]
    words = ["--help" if word == "-h" else word for word in words]
    if words[:1] == ["help"]:  # gimbal help train
        words = [*words[1:2], "--help"]
    if not words or words[0] == "--help":
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
        module, function = COMMANDS[words[0]].split(":")
        return vars(import_module(f"gimbal.cli.{module}"))[function](words[1:])
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # gimbal list methods | head
        return 0
    except KeyboardInterrupt:
        print("\ngimbal: stopped", file=sys.stderr)
        return 130
    except (Exception, SystemExit) as error:
        if debug or not (told := sentence(error)):
            raise
        from gimbal.config.own import visible

        print(f"gimbal: {shortened(visible(told))}", file=sys.stderr)
        return 2


def shortened(said: str) -> str:
    """Without the middle of words, and of a text, that nobody reads to the end: a value is typed or read from a file at any length."""
    said = re.sub(rf"\S{{{LONGEST_WORD + 1},}}", lambda word: f"{word[0][: LONGEST_WORD - 40]}...{word[0][-40:]}", said)
    return said if len(said) <= LONGEST else f"{said[: LONGEST - 500]} ... {said[-500:]}"


def sentence(error: BaseException) -> str:
    """One line for an error the user can fix; "" for a bug of ours, which keeps its traceback."""
    from gimbal import durable
    from gimbal.config.own import fault, message, out_of_memory

    said = message(error) or type(error).__name__
    if out_of_memory(error):
        return f"out of memory: {said[:MEMORY]}"
    if isinstance(error, OSError) and (full := durable.remedy(error)):
        return full
    if told := fault(error):
        return told
    if isinstance(error, ModuleNotFoundError):
        return (
            f"this needs {error.name}: pip install -e '.[{EXTRAS[error.name]}]' in the clone"
            if error.name in EXTRAS
            else ""
        )
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return "this port is already in use; give another --port, or --port 0 for any free one"
    if isinstance(error, OSError) and (way := durable.obstacle(error)):
        return way
    return said if isinstance(error, ValueError | OSError) else ""
