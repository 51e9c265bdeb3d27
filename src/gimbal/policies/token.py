"""Token policies: any transformers causal language model, with its tokenizer."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gimbal import durable
from gimbal.composition import LARGE, Advice, Composition, Refusal, Verdict
from gimbal.policies import exact, prompts
from gimbal.policies.base import AbstractPolicy, AbstractPolicySpec, Evaluation, Family, place_of
from gimbal.policies.decisions import Tokens
from gimbal.policies.images import Images, Undrawn
from gimbal.policies.layout import Layout, Sharing, laid, planned
from gimbal.policies.liger import fuse
from gimbal.policies.loading import SHIPPED, TINY, check_files, description, read, sees
from gimbal.policies.logits import STATISTICS, picked
from gimbal.policies.lora import LoRA
from gimbal.records import AbstractDecisions, AbstractSampling, Rollout, Task

Dtype = Literal["float64", "float32", "bfloat16", "float16"]  # of trained weights
MixedPrecision = Literal["no", "bf16"]  # as accelerate and transformers call them
LARGE_BYTES = 100_000_000
TEMPLATE = 256  # bytes that a chat template may add to a prompt
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")  # names of their number in configs
# Kinds of position scales that change for a whole batch once one of its rows is long.
STRETCHED = ("dynamic", "longrope")


@dataclass(frozen=True, kw_only=True)
class Sampling(AbstractSampling):
    """The distribution to sample tokens from: softmax(logits / temperature), then top-k, top-p and min-p, renormalised.

    ``top_k`` 0, ``top_p`` 1 and ``min_p`` 0 are off. Truncated (and greedy) sampling cannot be used with importance ratios; see
    ``trainable``.
    """

    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    stop: tuple[str, ...] = ()  # strings that end a rollout, besides the end-of-text token

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p is {self.top_p}; it must be in (0, 1], 1 being off")
        if not 0 <= self.min_p <= 1:
            raise ValueError(f"min_p is {self.min_p}; it must be in [0, 1], 0 being off")
        if self.top_k < 0:
            raise ValueError(f"top_k is {self.top_k}; it must be 0 (off) or above")

    @property
    def full(self) -> bool:
        return self.top_k == 0 and self.top_p == 1 and self.min_p == 0


TEXT = Family(unit="tokens", judged=True, sampling=Sampling, earns="reward")


def of_tokens(sampling: AbstractSampling) -> Sampling:
    """The same, checked to be token sampling."""
    if not isinstance(sampling, Sampling):
        raise ValueError(f"{sampling} does not specify token sampling: a language model needs sampling=Sampling(...)")
    return sampling


class TokenPolicy(AbstractPolicy):
    """A transformers causal LM that evaluates recorded tokens without ever materialising logits of the whole batch."""

    provides: ClassVar[frozenset[str]] = frozenset({*STATISTICS, "hidden_NSH"})

    def __init__(
        self, model: Any, tokenizer: Any, compute: torch.dtype | None = None, images: Images | None = None
    ) -> None:
        super().__init__()
        self.model = model
        self.tokenizer = tokenizer
        self.compute = compute
        self.images = images  # of a model that takes them
        self._checkpointing = False
        self._laid: tuple[Tokens, Layout] | None = None  # of the rows evaluated last
        self._extent: tuple[Tokens, tuple[int, int]] | None = None
        self._spoken: set[tuple[tuple[str, ...], bool]] = {
            ((), False)
        }  # orders of roles, and whether with tools, that the chat template has taken

    @cached_property
    def shares(self) -> Sharing | None:
        """How rows may share their prefixes, if at all."""
        return exact.shares(self.model)

    @property
    def end_ids(self) -> tuple[int, ...]:
        """Tokens that end a rollout: those of the generation config, or the tokenizer's end-of-text."""
        configured = self.model.generation_config.eos_token_id
        if configured is None:
            configured = self.tokenizer.eos_token_id
        if configured is None:
            return ()
        return (configured,) if isinstance(configured, int) else tuple(configured)

    def encode_task(self, task: Task) -> list[int]:
        """The prompt's tokens: those of ``columns["prompt_ids"]``, or chat messages (``columns["messages"]``) by the tokenizer's own
        template, or the prompt's text. ValueError where there are none, or more than the model's context has."""
        most = self.context
        # Checked first, because encoding some megabytes takes half a minute.
        if len(task.prompt) > most * self.longest_token:
            raise ValueError(
                f"the prompt of task {task.id} has {len(task.prompt):,} characters; this model holds at most {most:,} tokens: shorten "
                "such rows, or what a workflow puts before them, or leave them out"
            )
        ids = prompts.encoded(task, self.tokenizer, self.images, exact.name_of(self.model))
        if not 0 < len(ids) <= most:
            what = (
                f"this model holds at most {most:,}: shorten such rows, or what a workflow puts before them, or leave them out"
                if ids
                else "its text is empty, or the model has no tokenizer files"
            )
            raise ValueError(f"the prompt of task {task.id} has {len(ids):,} tokens; {what}")
        return self.known(ids, f"the prompt of task {task.id}")

    def encode_said(self, task: Task, said: str | Mapping[str, Any]) -> tuple[list[int], tuple[int, ...]]:
        """A written answer's tokens, and the one that ends it: of a text, or of an assistant's message by the chat template."""
        if isinstance(said, str):
            return self.tokenizer.encode(said, add_special_tokens=False), self.end_ids[:1]
        model = exact.name_of(self.model)
        ids, end = prompts.answered(task, said, self.tokenizer, self.images, model, self.end_ids)
        return ids, self.end_ids[:1] if end is None else (end,)

    def known(self, ids: list[int], what: str) -> list[int]:
        """A tokenizer of another model, or one to which tokens were added, may write what the model has no embedding for."""
        size = self.model.get_input_embeddings().weight.shape[0]
        if strange := [x for x in ids if not 0 <= x < size]:
            raise ValueError(f"{what} has the token {strange[0]}; this model knows 0 to {size - 1}")
        return ids

    def encode_told(self, row: Rollout | None, told: str | Sequence[int] | Sequence[Mapping[str, Any]]) -> list[int]:
        """The tokens of a row's new input: text, ids, or messages, which the chat template puts after its turn."""
        return self.known(self._encoded(row, told), f"what a row is told, {str(told)[:60]!r},")

    def _encoded(self, row: Rollout | None, told: str | Sequence[int] | Sequence[Mapping[str, Any]]) -> list[int]:
        if isinstance(told, str):
            return self.tokenizer.encode(told, add_special_tokens=False) if told else []
        messages = [one for one in told if isinstance(one, Mapping)]
        if row is None or not messages:
            return [one for one in told if isinstance(one, int)]
        text = prompts.continued(self.tokenizer if self.images is None else self.images.processor, row.task, messages)
        decisions = row.decisions
        assert isinstance(decisions, Tokens), type(decisions)
        last = int(decisions.ids_NL[0, int(decisions.length_N[0]) - 1])
        if last in self.end_ids:  # the policy has ended its turn
            text = text.removeprefix(self.tokenizer.decode([last]))
        return self.tokenizer.encode(text, add_special_tokens=False)

    @cached_property
    def context(self) -> int:
        """The model's maximum length in tokens; where its config does not state it, the tokenizer's."""
        config = self.model.config.get_text_config()
        # GPT-2 has n_positions.
        said = config.max_position_embeddings if hasattr(config, "max_position_embeddings") else None
        return said or self.tokenizer.model_max_length

    @cached_property
    def longest_token(self) -> int:
        """Length of the longest token, in characters."""
        return max(map(len, self.tokenizer.get_vocab()))

    @cached_property
    def steady(self) -> int | None:
        """How many tokens a row may have before positions are scaled differently, for all rows of the batch; None: any."""
        config = vars(self.model.config.get_text_config())
        rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
        if rope.get("rope_type") not in STRETCHED:
            return None
        return (
            rope.get("original_max_position_embeddings")
            or config.get("original_max_position_embeddings")
            or self.context
        )

    def accepts(self, task: Task, length: int) -> str:
        most = min(self.context, self.steady or self.context)
        told = (prompts.roles(task.columns.get("messages")), task.columns.get("tools") is not None)
        if (
            not {"prompt_ids", "images"} & task.columns.keys()
            and prompts.size(task) + length + TEMPLATE <= most
            and told in self._spoken
        ):
            return ""  # a token is at least a byte, so most tasks fit without being encoded
        asked = len(self.encode_task(task))
        self._spoken.add(told)  # its chat template takes turns in this order
        if self.steady is not None and asked + length > self.steady:
            raise ValueError(
                f"the prompt of task {task.id} has {asked:,} tokens, and with sampling.max_length={length} decisions it passes the "
                f"{self.steady:,} from which on {exact.name_of(self.model)} scales positions in another way, for all rows at "
                f"once: log-probabilities would depend on neighbours. sampling.max_length={max(1, self.steady - asked)} does not pass "
                'it; neither does rope_type="default" in config.json'
            )
        if asked + length <= self.context:
            return prompts.unshown(task)
        return (
            f"the prompt of task {task.id} has {asked:,} tokens, and with sampling.max_length={length} decisions it passes the "
            f"{self.context:,} that this model was made for: sampling.max_length={max(1, self.context - asked)} does not"
        )

    def reads(self, other: AbstractPolicy) -> str:
        """Both must have the same vocabulary."""
        if not isinstance(other, TokenPolicy) or self.tokenizer.get_vocab() == other.tokenizer.get_vocab():
            return super().reads(other)
        return "its tokenizer has other tokens than the policy's: take a model of the same family"

    def decode(self, ids: Sequence[int]) -> str:
        return self.tokenizer.decode(ids, skip_special_tokens=True)

    def evaluate(
        self,
        decisions: AbstractDecisions,
        *,
        temperature: float = 1.0,
        columns: Collection[str] = (),
        checkpointing: bool = False,
    ) -> Evaluation:
        assert isinstance(decisions, Tokens), type(decisions)
        # Each weight is used once a pass; with torch's cache all casts would stay until its end, whatever is recomputed.
        mixed = torch.autocast(decisions.ids_NL.device.type, self.compute, cache_enabled=False)
        with mixed if self.compute is not None else nullcontext():
            return self._evaluated(decisions, temperature, columns, checkpointing)

    def _evaluated(
        self, decisions: Tokens, temperature: float, columns: Collection[str], checkpointing: bool
    ) -> Evaluation:
        n, s = decisions.shape
        layout = self._layout(decisions)
        hidden_RLH = self._hidden(
            layout, checkpointing, self.pixels([decisions.pictures_N[n] for n in layout.prompt_R])
        )
        step_S = torch.arange(s, device=decisions.ids_NL.device)
        position_NS = decisions.prompt_N[:, None] + step_S
        row_K, column_K = (position_NS < decisions.length_N[:, None]).nonzero(as_tuple=True)
        id_K = decisions.ids_NL[row_K, position_NS[row_K, column_K]]
        statistics = [name for name in columns if name != "hidden_NSH"]
        place_U, id_U, of_K = layout.distinct(id_K, self.model.get_input_embeddings().weight.shape[0])
        hidden_UH = hidden_RLH.flatten(0, 1)[place_U]
        found = picked(self.model.get_output_embeddings(), hidden_UH, id_U, temperature, statistics)
        found = found if of_K is None else tuple(column_U[of_K] for column_U in found)

        def scatter(x_K: Tensor) -> Tensor:
            return x_K.new_zeros(n, s, *x_K.shape[1:]).index_put((row_K, column_K), x_K)

        asked = dict(zip(statistics, found[1:], strict=True))
        if "hidden_NSH" in columns:
            asked["hidden_NSH"] = hidden_UH if of_K is None else hidden_UH[of_K]
        return Evaluation(logprob_NS=scatter(found[0]), columns={name: scatter(x) for name, x in asked.items()})

    def extent(self, decisions: AbstractDecisions) -> tuple[int, int]:
        if not isinstance(decisions, Tokens):
            return decisions.extent
        if self._extent is None or self._extent[0] is not decisions:
            self._extent = decisions, planned(*decisions.where, self.shares).extent
        return self._extent[1]

    def _layout(self, decisions: Tokens) -> Layout:
        """The rows evaluated last keep theirs: a step evaluates its batch in several passes."""
        if self._laid is None or self._laid[0] is not decisions:
            layout = laid(*decisions.where, self.shares)
            if torch.is_inference_mode_enabled():  # of what is made in it no gradient can be taken
                return layout
            self._laid = decisions, layout
        return self._laid[1]

    def pixels(self, rows: Sequence[tuple[str, ...]]) -> dict[str, Tensor]:
        """Keywords of the forward pass for the images of these rows."""
        if not any(rows):
            return {}
        assert self.images is not None, "refused with the task"
        return self.images.pixels(rows, self.model.device, self.model.dtype)

    def _hidden(self, layout: Layout, checkpointing: bool, pixels: Mapping[str, Tensor]) -> Float[Tensor, "R L H"]:
        if checkpointing and not self._checkpointing:
            # Renamed in the releases of transformers that vLLM does not take yet.
            new = hasattr(self.model, "activation_checkpointing_enable")
            enable = self.model.activation_checkpointing_enable if new else self.model.gradient_checkpointing_enable
            enable({"use_reentrant": False})
            self._checkpointing = True
        self.model.eval()
        if self._checkpointing:
            # Blocks recompute in training mode only. Their layers stay in evaluation mode, since dropout would change the policy.
            for module in self.model.modules():
                if hasattr(module, "gradient_checkpointing"):
                    module.training = checkpointing and torch.is_grad_enabled()
        return self.model.base_model(**layout.inputs(self.model), **pixels, use_cache=False).last_hidden_state

    def pieces(self, decisions: AbstractDecisions) -> list[str]:
        assert isinstance(decisions, Tokens), type(decisions)
        ids = decisions.ids_NL[0, int(decisions.prompt_N[0]) : int(decisions.length_N[0])].tolist()
        return [self.tokenizer.decode([token]) for token in ids]

    def weights(self) -> dict[str, Tensor]:
        """All weights, or the adapter where the rest is frozen."""
        every = self.state_dict(keep_vars=True).items()
        frozen = (isinstance(tensor, nn.Parameter) and not tensor.requires_grad for _, tensor in every)
        return {name: tensor.detach() for (name, tensor), held in zip(every, frozen, strict=True) if not held}

    def save(self, directory: Path) -> None:
        with durable.named(directory):
            self.model.save_pretrained(directory)
            (self.tokenizer if self.images is None else self.images.processor).save_pretrained(directory)


@dataclass(frozen=True, kw_only=True)
class CausalLM(AbstractPolicySpec):
    """A directory with a transformers causal language model (or ``gimbal-tiny``, shipped with the package) or an adapter, which is
    merged.

    ``dtype`` is the type of the trained weights. ``mixed_precision`` "bf16" computes in bfloat16 with float32 weights, and accumulates
    gradients in float32; weights that LoRA freezes are then held in bfloat16. transformers looks up Hub names in its cache, then on
    the network.
    ``fresh`` keeps architecture and tokenizer, and initialises the weights from the run's seed. ``lora`` trains adapters instead of the
    model's weights; checkpoints then contain only the adapter.
    ``freeze_vision_tower`` freezes the vision tower of a model that takes images (docs/models.md). ``use_liger_kernel`` computes norms,
    rotations and gated activations with liger-kernel's fused kernels, in trainer and sampler, on a GPU (extra ``liger``).
    """

    family: ClassVar[Family] = TEXT
    shipped: ClassVar[tuple[str, ...]] = SHIPPED

    model: str = TINY
    dtype: Dtype = "float32"
    mixed_precision: MixedPrecision = "no"
    freeze_vision_tower: bool = False
    use_liger_kernel: bool = False
    fresh: bool = False
    lora: LoRA | None = None

    def __post_init__(self) -> None:
        if self.dtype not in get_args(Dtype):
            raise ValueError(f"policy.dtype is {self.dtype}; choose among {', '.join(get_args(Dtype))}")
        if self.mixed_precision not in get_args(MixedPrecision):
            raise ValueError(
                f"policy.mixed_precision is {self.mixed_precision}; choose among {', '.join(get_args(MixedPrecision))}"
            )
        if self._mixed and self.dtype != "float32":
            raise ValueError(
                f"policy.mixed_precision=bf16 trains float32 weights, and policy.dtype is {self.dtype}: leave one of them out"
            )

    @property
    def _mixed(self) -> bool:
        return self.mixed_precision == "bf16"

    @property
    def _held(self) -> torch.dtype:
        """Of the model's weights as they are loaded: without adapters those that are trained."""
        return torch.bfloat16 if self._mixed and self.lora is not None else getattr(torch, self.dtype)

    @property
    def path(self) -> str:
        return place_of(self.model, SHIPPED)

    @property
    def large(self) -> bool:
        """Whether it is as large as pretrained models, by the size of its files; names on the Hub count as large."""
        files = list(Path(self.path).glob("*.safetensors")) + list(Path(self.path).glob("*.bin"))
        return not Path(self.path).exists() or sum(file.stat().st_size for file in files) > LARGE_BYTES

    def effects(self) -> frozenset[str]:
        return frozenset({LARGE} if self.large else ())

    @property
    def described(self) -> Mapping[str, Any]:
        """The text model's config from its directory's config.json."""
        said = description(self.path)
        return said.get("text_config", said)

    @property
    def width(self) -> int | None:
        """How many numbers a hidden state has; None where the description does not say."""
        return next(
            (self.described[name] for name in ("hidden_size", "n_embd", "d_model") if name in self.described), None
        )

    @property
    def vision(self) -> bool:
        """Whether it takes images."""
        return sees(self.path)

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        yield from super().fits(whole)
        if self.use_liger_kernel and not torch.cuda.is_available():
            yield Refusal(
                "policy.use_liger_kernel computes with Triton's kernels, which need a GPU, and there is none here: leave it out"
            )
        if self.freeze_vision_tower and not self.vision:
            yield Refusal(f"{self.model} has no vision tower that gimbal knows: leave out policy.freeze_vision_tower")
        if self.vision:
            yield from _carried(self.model, whole)
        experts = next((name for name in EXPERTS if (self.described.get(name) or 1) > 1), "")
        trained = "bfloat16" if self._mixed else self.dtype
        sampled = str(vars(whole.run.engine).get("precision", trained))
        drawn = self is whole.run.policy  # a reference's choices are its own: nothing samples by it
        if not experts or not drawn or (sampled == trained and trained in ("float32", "float64")):
            return
        number = self.described[experts]
        told = f"{self.model} chooses among {number} experts, and gimbal does not replay the sampler's choices"
        both = trained if trained in ("float32", "bfloat16") else "float32 policy.dtype=float32"
        if sampled != trained:
            yield Refusal(
                f"{told}: sampled in {sampled} and trained in {trained}, some tokens get other experts in the trainer, and "
                f"log-probabilities that are off by tenths of a nat: engine.precision={both}"
            )
        else:
            yield Advice(
                f"{told}: in {sampled} rounding alone sends some tokens to other experts (up to 0.2 nats on a small model); "
                "correction=TruncatedWeight() bounds what they weigh, policy.dtype=float32 engine.precision=float32 has no such gap"
            )

    def load(self, seed: int = 0) -> TokenPolicy:
        model, tokenizer, processor = read(self.path, self._held, seed if self.fresh else None)
        images = None if processor is None else Images(processor)
        policy = TokenPolicy(model, tokenizer, torch.bfloat16 if self._mixed else None, images)
        _ = policy.shares  # here, to refuse what cannot be trained before anything starts
        if self.use_liger_kernel:
            fuse(policy.model)  # after what is asked of the model on the CPU
        if images is not None:
            policy.model.get_output_embeddings().register_forward_hook(Undrawn(policy.model.config.image_token_id))
            policy.model.base_model.vision_tower.requires_grad_(not self.freeze_vision_tower)
        if self.lora is not None:
            self.lora.attach(policy.model, seed, getattr(torch, self.dtype))
            policy.model.eval()
        return policy

    def check_files(self) -> None:
        check_files(self.path)

    def at(self, directory: Path) -> CausalLM:
        if self.lora is not None:
            return replace(self, lora=replace(self.lora, adapter=str(directory)))
        return replace(self, model=str(directory), fresh=False)


def short(value: Any) -> Any:
    """A model's directory, or its name on the Hub, as the language model there; anything else unchanged."""
    # The names of classes begin with a capital.
    named = isinstance(value, str) and re.fullmatch(r"[^()\[\]{}:=]+", value)
    if isinstance(value, Path) or (named and (not str(value)[0].isupper() or "/" in value or Path(value).is_dir())):
        return CausalLM(model=str(value))
    return value


def _carried(model: str, whole: Composition) -> Iterator[Verdict]:
    """What can carry images from a task to the trainer, by name; all else would read their tokens and no pixels."""
    run, names = whole.run, {type(part).__name__ for part in whole.records}
    for key, part, able in (
        ("engine", run.engine, "Native"),
        ("workflow", vars(run).get("workflow"), "SingleTurn"),
        ("runtime", run.runtime, "Local"),
    ):
        if (name := type(part).__name__) != able:
            yield Refusal(f"{model} takes images, which {name} does not carry: {key}='{able}()'")
    for name in sorted(names & {"TrunkValue", "StepRepair"}):
        yield Refusal(f"{model} takes images, which {name} does not read: leave it out")
