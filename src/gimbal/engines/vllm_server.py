"""vLLM as a server: generation over HTTP, by your own server or one that gimbal starts.

Token ids go in and come out with their log-probabilities, each with the version of the weights that sampled it, as reported by the
server. New weights are loaded between two of the server's steps, also for unfinished rollouts.
"""

from __future__ import annotations

import math
import queue
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal.composition import Composition, Refusal, Verdict
from gimbal.engines.base import (
    CONTINUE,
    DRAW,
    FORK,
    AbstractEngineSpec,
    Finished,
    Unserved,
    check_slots,
    overtaken,
)
from gimbal.engines.live import GIB, AbstractVLLM, LiveRequest, distribution
from gimbal.engines.precision import Fit, Form
from gimbal.engines.receipts import Prints, Reading
from gimbal.engines.sampling import completed
from gimbal.engines.vllm_answers import checksums, drawn_of, logprob_of
from gimbal.engines.vllm_http import LIFE, Client, OwnServer, ServerGone, ServerRefusal, greet, write_weights
from gimbal.policies.base import AbstractPolicy
from gimbal.policies.lora import LoRA
from gimbal.policies.token import TokenPolicy, Tokens, of_tokens
from gimbal.records import Rollout

TICK = 0.05  # seconds of the longest wait for an answer in one step
LOSSES_IN_A_ROW = 3  # losses of the server in a row, without a finished rollout, that end the run
# Of so many versions the first two are compared with the server's own checksums, which read all its weights.
READ_EVERY = 8
MOST_AT_ONCE = 256  # tokens drawn before stop strings are looked for: the server has no tokenizer
OWN = {
    "cache_gb": 4.0,
    "longest": 0,
    "tensor_parallel": 1,
    "gpus": "",
    "offload": False,
}  # what a server has from whoever starts it


@dataclass(frozen=True, kw_only=True)
class VLLMServer(AbstractEngineSpec):
    """vLLM behind HTTP with ``slots`` rollouts at a time. Without ``url`` gimbal starts the server, on the devices that this process
    sees, and stops it with the run; with it, the server is yours to run.

    For ``url``, start the server as ``VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --enable-scale-out --logprobs-mode processed_logprobs
    --dtype bfloat16``, with ``precision`` as its dtype. Weights are sent as files in ``directory`` (by default a temporary one), which
    the server must be able to read. ``cache_gb``, ``longest`` and ``tensor_parallel`` apply to a server that gimbal starts: GiB for
    keys and values, the maximum length of prompt plus rollout in tokens (0: the model's own limit), GPUs that share the model. So do
    ``gpus`` (such as "2,3"; "" is all that this process sees) and ``offload`` (vLLM's sleep mode, for ``devices.turns``).

    ``cache``: what happens to unfinished rollouts when new weights arrive: "keep" continues from the keys and values of the old
    weights, "recompute" rebuilds them under the new ones. ``patience``: seconds after which a request counts as lost, and to wait for a
    server that is gone; a server that comes back receives the weights again, and unfinished requests are sampled again.

    The server generates while the learner trains. With max_staleness=0 the same requests to the same weights give the same rollouts on
    one machine; with more, the version of each token is exact and recorded, but depends on timing. Needs the extra ``vllm`` where
    the server runs.
    """

    url: str = ""
    slots: int = 128
    precision: Literal["float32", "bfloat16"] = "bfloat16"
    cache: Literal["keep", "recompute"] = "keep"
    cache_gb: float = 4.0
    longest: int = 0
    tensor_parallel: int = 1
    gpus: str = ""
    offload: bool = False
    directory: str = ""
    patience: float = 600.0

    def __post_init__(self) -> None:
        check_slots(self.slots)
        if self.precision not in ("float32", "bfloat16"):
            raise ValueError(f"engine.precision is {self.precision}; vLLM samples in float32 or bfloat16 here")
        if self.cache_gb <= 0 or self.longest < 0 or self.tensor_parallel < 1 or self.patience <= 0:
            raise ValueError(
                f"engine.cache_gb is {self.cache_gb}, longest {self.longest}, tensor_parallel {self.tensor_parallel} and patience "
                f"{self.patience}; memory and seconds above 0, a length of 0 or above, at least 1 GPU"
            )
        if self.url and (urlsplit(self.url).scheme not in ("http", "https") or not urlsplit(self.url).hostname):
            raise ValueError(f"engine.url is {self.url!r}; it must be http://HOST:PORT")
        if given := [name for name, value in OWN.items() if self.url and vars(self)[name] != value]:
            raise ValueError(
                f"engine.{given[0]} is set, and so is engine.url: that server has its own; start it with yours, or drop the url"
            )

    @property
    def can(self) -> frozenset[str]:
        return frozenset({DRAW, CONTINUE, FORK})

    def start(self, policy: AbstractPolicy) -> VLLMServerEngine:
        assert isinstance(policy, TokenPolicy), "vLLM samples token policies"
        if any(".lora_" in name for name in policy.state_dict()):
            raise ValueError(
                "the vLLM server takes whole weights, not adapters; train without policy.lora, or sample with engine=Native()"
            )
        seen = len(self.gpus.split(",")) if self.gpus else torch.cuda.device_count()
        if self.tensor_parallel > max(1, seen):
            raise ValueError(
                f"engine.tensor_parallel is {self.tensor_parallel} and the server would see {seen} GPUs; set it to 1, or to as many as "
                "there are"
            )
        return VLLMServerEngine(self, policy)

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if whole.has(LoRA):
            yield Refusal("VLLMServer needs whole models, but policy.lora sends only the adapter: set engine=Native()")
        yield from overtaken(self.cache, whole)


class VLLMServerEngine(AbstractVLLM):
    """The live engine. The server keeps generating between steps."""

    def __init__(self, spec: VLLMServer, policy: TokenPolicy) -> None:
        super().__init__(policy, spec.slots, spec.precision)
        self.spec = spec
        held = policy.state_dict(keep_vars=True)
        self._fit = Fit(held)
        self._names = {first: [n for n, t in held.items() if t is one] for first, one in self._fit.tensors.items()}
        self._scratch = tempfile.TemporaryDirectory(prefix="gimbal-weights-", dir=spec.directory or None)
        self._own: OwnServer | None = None
        if not spec.url:
            self._own = OwnServer.lease(f"{spec} {policy.model.config.to_json_string()}", spec.gpus, self._made)
        self.client = Client(url=self._own.url if self._own else spec.url, patience=spec.patience)
        self._longest = greet(self.client, spec.precision)
        # What it holds can be read only in part, so the canary is asked at every version. No fingerprint of ours is among its
        # readings: from another process (a worker of a pool) its version is checked, and the canary.
        self._form = Form(names=frozenset(), held=False)
        self._epoch, self._lost = 0, 0
        self._asleep = False
        self._files: Path | None = None  # of the newest version
        # Of the server's own names: those whose checksums can be told from here.
        self._readable: frozenset[str] | None = None
        self._dropped: set[str] = set()  # names in ``live`` that were cancelled
        self._answers: queue.SimpleQueue[tuple[int, str, Any]] = queue.SimpleQueue()

    def _made(self) -> tuple[tempfile.TemporaryDirectory[str], list[str]]:
        """A directory with the model, and a server's options for it."""
        spec, home = self.spec, tempfile.TemporaryDirectory(prefix="gimbal-vllm-")
        self.policy.model.config.save_pretrained(home.name)
        write_weights(self._fit(self.policy.state_dict()), self._names, Path(home.name))
        options = [
            "--served-model-name",
            "policy",
            "--skip-tokenizer-init",
            "--dtype",
            spec.precision,
            "--max-num-seqs",
            str(spec.slots),
        ]
        options += ["--logprobs-mode", "processed_logprobs", "--enable-scale-out", "--disable-log-stats"]
        options += ["--uvicorn-log-level", "warning", "--kv-cache-memory-bytes", str(int(spec.cache_gb * GIB))]
        options += ["--gpu-memory-utilization", "0.01", "--tensor-parallel-size", str(spec.tensor_parallel)]
        if spec.offload:
            options += ["--enable-sleep-mode"]
        if spec.longest:
            options += ["--max-model-len", str(spec.longest)]
        if not torch.cuda.is_available():
            # On CPUs a prompt cut in two makes vLLM wind a request's generator back, which that of a CPU cannot do, and a reload
            # leaves the packed copy of a tied output layer as it was, so the layer is one of its own there.
            options += [
                "--no-enable-chunked-prefill",
                "--enforce-eager",
                "--hf-overrides",
                '{"tie_word_embeddings": false}',
            ]
        return home, options

    @property
    def form(self) -> Form | None:
        return self._form

    def load(self, version: int, state: Mapping[str, Tensor]) -> None:
        weights = self._fit(state)
        before, self._loads = self._files, self._loads + 1
        self._files = Path(self._scratch.name) / f"{self._loads}"
        write_weights(weights, self._names, self._files)  # the server keeps generating in the meantime
        self._version = version
        try:
            self._bring()
        except ServerGone as error:
            self._recover(str(error))
        if before is not None:
            shutil.rmtree(before)

    def rest(self) -> None:
        assert not self.in_flight, "an engine rests when nothing is in flight"
        self._recovered(lambda: self.client.post("/sleep?level=1"))
        self._asleep = True

    def reading(self) -> Reading:
        """The version the server reports, and at some versions the checksums of its weights."""

        def label() -> str:
            return str(self._recovered(lambda: self.client.get("/weight_info"))["weight_version"])

        if (said := label()) == "default":
            self._recover("it was restarted")
            said = label()
        version = int(said.rpartition("/")[2]) if said.rpartition("/")[0] == LIFE else -1
        if not self._read or self._readable is None:
            return Reading(version=version, prints={})
        held = self._checksums()
        return Reading(version=version, prints={name: held.get(name, "") for name in sorted(self._readable)})

    def manifest(self, tensors: Mapping[str, Tensor]) -> Prints | None:
        """The checksums that the server should have. The first load shows which tensors it holds as sent; it packs, splits or joins
        others."""
        if not self._read:
            return {}
        expected = checksums(tensors, self.spec.precision)
        if self._readable is None:
            held = self._checksums()
            self._readable = frozenset(name for name, digest in expected.items() if held.get(name) == digest)
        return {name: expected[name] for name in sorted(self._readable)}

    @property
    def _read(self) -> bool:
        return self._version % READ_EVERY <= 1

    def _checksums(self) -> dict[str, str]:
        """By the server's tensor names, whose first part is the rank."""
        held = self.client.post("/weight_checker", {"action": "checksum"})["checksums"]
        return {name.rpartition(":")[2]: digest for name, digest in held.items()}

    def score(self, rollout: Rollout) -> Float[Tensor, " S"]:
        """By the sampling path itself: it samples a token at each decision and requests the recorded decision's log-probability."""
        tokens = rollout.decisions
        assert isinstance(tokens, Tokens), type(tokens)
        ids, first = tokens.ids_NL[0, : int(tokens.length_N[0])].tolist(), int(tokens.prompt_N[0])
        found: list[float | Exception] = [math.nan] * (len(ids) - first)

        def ask(place: int) -> None:
            token = ids[place]
            params = {
                **distribution(rollout.sampling),
                "max_tokens": 1,
                "seed": 0,
                "logprobs": 2,  # the second after the sampled token, unless they are the same
                "logprob_token_ids": [token, token],
                "detokenize": False,
            }
            try:
                choice = self._generate(f"score-{place}", ids[:place], params)
                found[place - first] = logprob_of(choice, token)
            except (ServerGone, ServerRefusal, ValueError) as error:
                found[place - first] = error

        for start in range(first, len(ids), self.spec.slots):
            places = range(start, min(start + self.spec.slots, len(ids)))
            threads = [threading.Thread(target=ask, args=(place,), daemon=True) for place in places]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        for one in found:
            if isinstance(one, ServerGone):
                self._recover(str(one))
                return self.score(rollout)
            if isinstance(one, Exception):
                raise one
        return torch.tensor(found)

    def close(self) -> None:
        if self._own is not None:
            self._own.release()
        elif self.live and self.client.up():
            self._abort(list(self.live))
        self._scratch.cleanup()

    # Requests -------------------------------------------------------------------------------------------------------------------

    def _ask(self, live: LiveRequest) -> None:
        self._count += 1
        name, epoch = f"{LIFE}-{id(self)}-{self._count}", self._epoch
        ids, params = live.ids, live.params(self.policy.end_ids)
        if of_tokens(live.request.sampling).stop:
            params["max_tokens"] = min(params["max_tokens"], MOST_AT_ONCE)
        self.live[name] = live

        def wait() -> None:
            try:
                answer: Any = self._generate(name, ids, params)
            except Exception as error:  # raised or handled in the run's thread
                answer = error
            self._answers.put((epoch, name, answer))

        threading.Thread(target=wait, daemon=True).start()

    def _generate(self, name: str, ids: Sequence[int], params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Keys and values are shared only among prompts that began under the same weights."""
        body = {
            "request_id": name,
            "token_ids": list(ids),
            "sampling_params": dict(params),
            "cache_salt": f"{LIFE}-{self._loads}",
        }
        return self.client.post("/inference/v1/generate", body)["choices"][0]

    def _take_back(self, name: str) -> None:
        self._dropped.add(name)
        self._abort([name])
        while name in self.live:
            self._advance()

    def _advance(self) -> None:
        """Process the answers that have arrived; wait a moment if there are none."""
        if not self.live:
            return
        try:
            answers = [self._answers.get(timeout=TICK)]
        except queue.Empty:
            return
        while not self._answers.empty():
            answers.append(self._answers.get())
        gone: ServerGone | None = None
        for epoch, name, answer in sorted(answers, key=lambda one: (len(one[1]), one[1])):
            if epoch != self._epoch:
                continue  # from a server that is lost; the request was sent again
            if isinstance(answer, ServerGone):
                gone = answer  # after the others, whose results are kept
            elif isinstance(answer, Exception):
                raise answer
            else:
                self._answered(name, answer)
        if gone is not None:
            self._recover(str(gone))

    def _answered(self, name: str, choice: Mapping[str, Any]) -> None:
        live, stop = self.live.pop(name), choice["finish_reason"]
        stops = of_tokens(live.request.sampling).stop
        for token, logprob, version in drawn_of(choice):
            live.drawn.append(token)
            live.behavior.append(logprob)
            live.versions.append(version)
            if completed(live.drawn, stops, self.policy.decode):
                stop = "stop"
                break  # what was sampled after it is dropped
        if name in self._dropped:
            self._dropped.remove(name)
            return
        longest = of_tokens(live.request.sampling).max_length
        if stop == "abort" or (stop == "length" and len(live.drawn) < longest):
            self.queue.appendleft(live)
            return
        assert stop in ("stop", "length"), stop
        self._lost = 0
        self.done.append(Finished.of(live.request.key, live.rollout(self.policy, stop)))

    def _abort(self, names: Sequence[str]) -> None:
        self._recovered(
            lambda: self.client.post("/abort_requests", {"request_ids": [f"generate-tokens-{name}" for name in names]})
        )

    # Weights, and a server that is lost ---------------------------------------------------------------------------------------------

    def _bring(self) -> None:
        """Have the server load the newest files between two steps, while unfinished rollouts wait. Raises ServerGone."""
        assert self._files is not None
        if self._asleep:
            self.client.post("/wake_up")
            self._asleep = False
        self.client.post("/pause?mode=keep&clear_cache=false")
        self.client.post("/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": str(self._files)}})
        self.client.post("/update_weight_version", {"new_version": f"{LIFE}/{self._version}"})
        if self.spec.cache == "recompute":
            self.client.post("/reset_prefix_cache?reset_running_requests=true")
        self.client.post("/resume")

    def _recovered(self, call: Any) -> Any:
        """The server's answer to a call; a lost server is started again first."""
        try:
            return call()
        except ServerGone as error:
            self._recover(str(error))
            return call()

    def _recover(self, why: str) -> None:
        """Replace a lost server by a new one with the newest weights, and send it the lost requests again."""
        self._lost += 1
        if self._lost > LOSSES_IN_A_ROW:
            raise Unserved(
                f"vLLM's server at {self.client.url} was lost {self._lost} times with no rollout finished in between; the last time: "
                f"{why}. Fix the cause and continue with --resume"
            )
        print(
            f"gimbal: the vLLM server at {self.client.url} is lost ({why}); waiting for it", file=sys.stderr, flush=True
        )
        self._epoch += 1
        self.queue.extendleft(live for name, live in reversed(self.live.items()) if name not in self._dropped)
        self.live.clear()
        self._dropped.clear()
        if self._own is not None:
            if self._own.url == self.client.url and not self.client.up():  # else another engine has started it again
                self._own.stop()
                self._own.start()
            self.client = replace(self.client, url=self._own.url)
        if not self.client.comes_back():
            raise Unserved(
                f"the vLLM server at {self.client.url} has not answered for {self.spec.patience:.0f} s ({why}): start it again and "
                "continue with --resume"
            )
        if self._files is not None:
            try:
                self._bring()
            except ServerGone as error:
                self._recover(str(error))
