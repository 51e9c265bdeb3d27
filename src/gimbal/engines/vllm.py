"""The vLLM engine: generation by vLLM in this process, driven step by step, so that every token has the version that sampled it.

vLLM receives and returns token ids; the policy's tokenizer decodes them only for stop strings and readers.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

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
    check_slots,
    overtaken,
)
from gimbal.engines.live import GIB, AbstractVLLM, LiveRequest
from gimbal.engines.precision import Fit, Form
from gimbal.engines.receipts import Reading, fingerprint
from gimbal.engines.sampling import Distributions, completed, processed
from gimbal.policies.base import AbstractPolicy
from gimbal.policies.lora import LoRA
from gimbal.policies.token import TokenPolicy, Tokens, of_tokens
from gimbal.records import Rollout

if TYPE_CHECKING:
    from vllm import SamplingParams

SCORED = "scored"  # the id of the one request that scores instead of drawing
ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # in this process: which weights draw which token is then known, not guessed
    "VLLM_USE_V2_MODEL_RUNNER": "0",  # the one that ``score`` reaches into
}
DEFAULTS = {
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # the trainer may share this process
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
}


@dataclass(frozen=True, kw_only=True)
class VLLM(AbstractEngineSpec):
    """vLLM with ``slots`` rollouts at a time, sampled in ``precision``; prompts of a group share their keys and values.

    ``cache``: what happens to unfinished rollouts when new weights arrive: "keep" continues from the keys and values of the old
    weights, "recompute" rebuilds them under the new ones. ``cache_gb`` GiB are set aside for keys and values. ``longest`` is the
    maximum length of prompt plus rollout in tokens; 0 is the model's own limit.

    Each request has its own seed, derived from (run seed, task, sample). The same requests to the same weights give the same rollouts
    on one machine. vLLM's numerics depend slightly on the rest of the batch, so near a tie a neighbour can change a token. A rollout in
    flight when its run stopped continues from its tokens under a new seed, so a resumed run is not bit-identical.

    One process and one device: no tensor parallelism, no LoRA. Needs the extra ``vllm``.
    """

    slots: int = 128
    precision: Literal["float32", "bfloat16"] = "bfloat16"
    cache: Literal["keep", "recompute"] = "keep"
    cache_gb: float = 4.0
    longest: int = 0

    def __post_init__(self) -> None:
        check_slots(self.slots)
        if self.precision not in ("float32", "bfloat16"):
            raise ValueError(f"engine.precision is {self.precision}; vLLM samples in float32 or bfloat16 here")
        if self.cache_gb <= 0 or self.longest < 0:
            raise ValueError(
                f"engine.cache_gb is {self.cache_gb} and engine.longest {self.longest}; memory above 0 GiB, a length of 0 or above"
            )

    @property
    def can(self) -> frozenset[str]:
        return frozenset({DRAW, CONTINUE, FORK})

    def start(self, policy: AbstractPolicy) -> VLLMEngine:
        assert isinstance(policy, TokenPolicy), "vLLM samples token policies"
        if any(".lora_" in name for name in policy.state_dict()):
            raise ValueError(
                "the vLLM engine takes whole weights, not adapters; train without policy.lora, or sample with engine=Native()"
            )
        distributed = torch.distributed
        if distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1:
            raise ValueError(
                "vLLM needs torch.distributed for itself, but the learner's processes use it here: set engine=VLLMServer(), "
                "engine=Native(), or one process"
            )
        return VLLMEngine(self, policy)

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if whole.has(LoRA):
            yield Refusal("VLLM needs whole models, but policy.lora sends only the adapter: set engine=Native()")
        yield from overtaken(self.cache, whole)


class VLLMEngine(AbstractVLLM):
    """The live engine."""

    def __init__(self, spec: VLLM, policy: TokenPolicy) -> None:
        os.environ.update(ENVIRONMENT)
        for name, value in DEFAULTS.items():
            os.environ.setdefault(name, value)
        from vllm import EngineArgs, LLMEngine

        super().__init__(policy, spec.slots, spec.precision)
        self.spec = spec
        self._home = tempfile.TemporaryDirectory(prefix="gimbal-vllm-")  # the architecture; weights come by ``load``
        policy.model.config.save_pretrained(self._home.name)
        with torch.random.fork_rng():  # vLLM seeds the whole process
            self.vllm = LLMEngine.from_engine_args(
                EngineArgs(
                    model=self._home.name,
                    load_format="dummy",
                    skip_tokenizer_init=True,
                    dtype=spec.precision,
                    max_model_len=spec.longest or None,
                    max_num_seqs=spec.slots + 1,  # one for ``score``
                    kv_cache_memory_bytes=int(spec.cache_gb * GIB),
                    gpu_memory_utilization=0.01,  # vLLM's check of free memory; what it takes is cache_gb and the weights
                    logprobs_mode="processed_logprobs",  # of the distribution sampled from, after temperature and truncation
                    # On CPUs a prompt cut in two makes vLLM wind a request's generator back, which that of a CPU cannot do.
                    enable_chunked_prefill=torch.cuda.is_available(),
                    async_scheduling=False,  # else a step returns tokens that were drawn before the newest weights came
                    enforce_eager=not torch.cuda.is_available(),
                    disable_log_stats=True,
                )
            )
        self._runner = self.vllm.collective_rpc(lambda worker: worker.model_runner)[0]
        self._fit = Fit(policy.state_dict(keep_vars=True))
        # Its CPU build gives the matrices up for packed copies, so they cannot be read back as they are used.
        self._form = Form(names=frozenset(self._fit.tensors), held=False)
        self._taken: dict[str, str] = {}  # fingerprints of what its loader took at the last load
        self._longest = self.vllm.model_config.max_model_len - 1  # ``score`` draws one more
        self._scored: list[Any] | None = None

    def load(self, version: int, state: Mapping[str, Tensor]) -> None:
        self._taken = {}
        weights = taking(self._fit(state), self._taken)
        self.vllm.collective_rpc("reload_weights", kwargs={"weights_iterator": weights})
        self._repack_head()
        self._version, self._loads = version, self._loads + 1
        if self.spec.cache == "recompute":
            self.vllm.reset_prefix_cache(reset_running_requests=True)

    @property
    def form(self) -> Form:
        return self._form

    def reading(self) -> Reading:
        return Reading(version=self._version, prints=dict(self._taken))

    def _repack_head(self) -> None:
        """vLLM's CPU kernels read a packed copy of each layer, and a reload does not update that of a tied output layer."""
        from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead

        for layer in self._runner.model.modules():
            if isinstance(layer, ParallelLMHead):
                layer.quant_method.process_weights_after_loading(layer)

    def score(self, rollout: Rollout) -> Float[Tensor, " S"]:
        """By a prefill of the whole rollout. Unfinished rollouts continue meanwhile; the next ``step`` returns those that end."""
        from vllm import SamplingParams

        tokens = rollout.decisions
        assert isinstance(tokens, Tokens), type(tokens)
        ids, first = tokens.ids_NL[0, : int(tokens.length_N[0])].tolist(), int(tokens.prompt_N[0])
        params = SamplingParams(prompt_logprobs=0, max_tokens=1, seed=0, detokenize=False)
        self._scored = None
        with self._prompts_as_sampled(rollout):
            self.vllm.add_request(SCORED, self._input(ids), params)
            while self._scored is None:
                self._advance()
        found = zip(ids[first:], self._scored[first:], strict=True)
        return torch.tensor([position[token].logprob for token, position in found])

    def _advance(self) -> None:
        """One step of vLLM: a token for each request that it holds, but those whose prompt takes it longer."""
        if not self.vllm.has_unfinished_requests():
            return
        torch.get_num_threads()  # sets them up in this thread; vLLM's attention on CPUs breaks where they change within a step
        for output in self.vllm.step():
            if output.request_id == SCORED:
                self._scored = output.prompt_logprobs
                continue
            live, drawn = self.live[output.request_id], output.outputs[0]
            for token, position in zip(drawn.token_ids, drawn.logprobs, strict=True):
                live.drawn.append(token)
                live.behavior.append(position[token].logprob)
                live.versions.append(self._version)
            stop = drawn.finish_reason
            stops = of_tokens(live.request.sampling).stop
            if stop is None and drawn.token_ids and completed(live.drawn, stops, self.policy.decode):
                self.vllm.abort_request([output.request_id])
                stop = "stop"
            if stop is not None:
                assert stop in ("stop", "length"), stop
                del self.live[output.request_id]
                self.done.append(Finished.of(live.request.key, live.rollout(self.policy, stop)))

    def _ask(self, live: LiveRequest) -> None:
        self._count += 1
        handle = str(self._count)
        self.live[handle] = live
        self.vllm.add_request(handle, self._input(live.ids), self._params(live))

    def _take_back(self, name: str) -> None:
        self.vllm.abort_request([name])
        del self.live[name]

    def _input(self, ids: list[int]) -> Any:
        """Keys and values are shared only among prompts that began under the same weights."""
        from vllm.inputs.engine import tokens_input

        return tokens_input(ids, cache_salt=str(self._loads))

    def _params(self, live: LiveRequest) -> SamplingParams:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        return SamplingParams(**live.params(self.policy.end_ids), output_kind=RequestOutputKind.DELTA)

    @contextmanager
    def _prompts_as_sampled(self, rollout: Rollout) -> Iterator[None]:
        """vLLM's log-probabilities of prompts are of temperature 1 and all tokens; within this they are of the rollout's sampling.

        Narrowly: sampling uses the same function for greedy requests, whose log-probabilities must not change meanwhile.
        """
        runner, own = self._runner, self._runner._get_prompt_logprobs_dict

        def as_sampled(logits_LV: Tensor) -> Tensor:
            return processed(logits_LV, Distributions.of([rollout.sampling] * len(logits_LV), logits_LV.device))

        def prompts(*arguments: Any) -> Any:
            runner.sampler.compute_logprobs = as_sampled
            try:
                return own(*arguments)
            finally:
                del runner.sampler.compute_logprobs

        runner._get_prompt_logprobs_dict = prompts
        try:
            yield
        finally:
            del runner._get_prompt_logprobs_dict


def taking(state: Mapping[str, Tensor], taken: dict[str, str]) -> Iterator[tuple[str, Tensor]]:
    """Weights for vLLM's loader, under its names; what it comes for is entered in ``taken``."""
    for name, tensor in state.items():
        taken[name] = fingerprint(tensor)
        yield name.removeprefix("model."), tensor
