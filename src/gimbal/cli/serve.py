"""gimbal serve: serve the policy with an OpenAI-compatible API."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gimbal.cli.words import parse, port
from gimbal.waiting import LOADING, tell, waiting

if TYPE_CHECKING:
    from gimbal.engines.base import AbstractEngineSpec
    from gimbal.runtime.run import AbstractRun

HELP = """\
gimbal serve RUN|MODEL [--port 8000] [--host 127.0.0.1] [--record FILE.jsonl] [--fixed] [key=value ...]

Serves the newest checkpoint of a run, a model directory or gimbal-tiny at /v1/chat/completions and /v1/completions. Responses
include token ids, log-probabilities and weight versions, and each exchange is recorded exactly as sampled, for training
(gimbal.serve.exchanges). An agent whose base_url is http://HOST:PORT/NAME/v1 is recorded as session NAME; to reward the session
and end it, POST {"score": 1.0} to http://HOST:PORT/NAME/v1/reward.

  --record FILE.jsonl   append exchanges to this file (default: exchanges.jsonl)
  --fixed               ignore temperature and truncation in requests: agents often ask for temperature 0, which cannot be trained on
  --recipe RECIPE       use this recipe's engine and sampling for a model directory (default: demo)
  engine.slots=32  sampling.temperature=0.8     any key of the recipe"""


def serving_engine(run: AbstractRun, target: str) -> AbstractEngineSpec:
    """The engine that its evaluation samples with, or it; a run on written answers may have none that samples."""
    from gimbal.engines.base import DRAW
    from gimbal.engines.native import Native

    own = run.held_out.engine if run.held_out and run.held_out.engine else run.engine
    if DRAW in own.can:
        return own
    tell(
        f"{target} samples nothing (engine={type(own).__name__}()); engine=Native() serves it, and engine=... is another"
    )
    return Native()


def serve(argv: Sequence[str]) -> int:
    arguments = parse(argv, ("help", "fixed"), ("port", "host", "record", "recipe", "runs"))
    if "help" in arguments.flags:
        print(HELP)
        return 0
    if len(arguments.words) != 1:
        raise ValueError("gimbal serve takes one run or model directory (gimbal serve --help)")
    number = port(arguments.flags.get("port", "8000"))
    import signal
    import threading

    with waiting(LOADING):
        from gimbal import api
        from gimbal.learning.weight_sync.receipts import load
        from gimbal.policies.token import TokenPolicy, of_tokens
        from gimbal.recipes.configure import configured
        from gimbal.runtime import device
        from gimbal.runtime.directories import RUNS
        from gimbal.serve.server import CompletionServer

    target, runs = arguments.words[0], Path(arguments.flags.get("runs", RUNS))
    run = configured(api.to_evaluate(target, arguments.flags.get("recipe", "demo"), runs), arguments.overrides, tell)
    where = device.prepare(run.threads)
    with waiting(f"loading {target}"):
        policy = run.policy.load(run.seed).to(where)
    if not isinstance(policy, TokenPolicy):
        raise ValueError(f"{target} is not a language model; gimbal serve can only serve language models")
    engine = serving_engine(run, target).start(policy)
    load(engine, policy, api.version(target, runs))
    record = Path(arguments.flags.get("record", "exchanges.jsonl"))
    with CompletionServer(
        engine,
        policy,
        of_tokens(run.sampling),
        name=Path(target).name,
        seed=run.seed,
        host=arguments.flags.get("host", "127.0.0.1"),
        port=number,
        fixed="fixed" in arguments.flags,
        record=record,
        keep=10_000,
    ) as server:
        print(f"{target}: {server.url}/v1, recorded in {record}; press Ctrl-C to stop", flush=True)
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # a supervisor's Ctrl-C
        forever = threading.Event()
        while not forever.wait(1.0):  # a signal just before an endless wait would go unseen
            pass
    return 0
