"""Broken weight syncs, each as what it does to one sampler in place of a load.

A kind is called with the sampler's own engine, the version and the weights that it was given of all versions so far; it loads or
does not. Version 0 is delivered as it should be.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from gimbal.engines.base import AbstractEngine, AbstractEngineAround, AbstractEngineSpec, Witness
from gimbal.engines.native import Native, NativeEngine
from gimbal.engines.precision import Precision, rounded
from gimbal.engines.receipts import Receipt
from gimbal.learning.weight_sync.base import AbstractDistantEngine, Since
from gimbal.policies.base import AbstractPolicy
from gimbal.records import Rollout
from gimbal.runtime.members import Sampler, Word, packed

States = Mapping[int, Mapping[str, Tensor]]
Kind = Callable[[NativeEngine, int, States], None]

CLEAN, ONCE, VERSIONS = 1, 2, 3  # versions 0 to 3; a single fault is of version 2
DOWN = "model.model.layers.1.mlp.down_proj.weight"
UP = "model.model.layers.1.mlp.up_proj.weight"
QUERIES = ("model.model.layers.0.self_attn.q_proj.weight", "model.model.layers.1.self_attn.q_proj.weight")
EMBEDDING = "model.model.embed_tokens.weight"


def acknowledged(engine: NativeEngine, version: int) -> None:
    """It says that it is at this version, and nothing else happens."""
    engine._version = version


def held(engine: NativeEngine, name: str) -> Tensor:
    return engine.copy.module.state_dict(keep_vars=True)[name.removeprefix("model.")].data


def ever(wrong: Callable[[int, States], Mapping[str, Tensor]]) -> Kind:
    """At every version these weights are loaded instead."""
    return lambda engine, version, states: engine.load(version, wrong(version, states))


def once(wrong: Callable[[int, States], Mapping[str, Tensor]]) -> Kind:
    return lambda engine, version, states: engine.load(
        version, (wrong(version, states) if version == ONCE else states[version])
    )


def instead(change: Callable[[Tensor], Tensor], name: str = DOWN) -> Kind:
    """One tensor arrives otherwise than it was sent."""
    return once(lambda version, states: {**states[version], name: change(states[version][name].clone())})


def after(damage: Callable[[NativeEngine], None]) -> Kind:
    """It is loaded, and then something happens to what it holds."""

    def kind(engine: NativeEngine, version: int, states: States) -> None:
        engine.load(version, states[version])
        if version == ONCE:
            damage(engine)

    return kind


def mixed(is_old: Callable[[int, str], bool]) -> Callable[[int, States], Mapping[str, Tensor]]:
    return lambda version, states: {
        name: states[version - 1 if is_old(i, name) else version][name]
        for i, name in enumerate(sorted(states[version]))
    }


def only_at(versions: Callable[[int], bool], *, labelled: bool = True) -> Kind:
    """The others never arrive; they are acknowledged all the same, unless it keeps its own number."""

    def kind(engine: NativeEngine, version: int, states: States) -> None:
        if versions(version):
            engine.load(version, states[version])
        elif labelled:
            acknowledged(engine, version)

    return kind


def numbered(shift: int) -> Kind:
    return lambda engine, version, states: engine.load(version + (shift if version == ONCE else 0), states[version])


def at(place: int, change: Callable[[Tensor], Tensor | float]) -> Callable[[Tensor], Tensor]:
    """One element, so many after the first."""

    def changed(tensor: Tensor) -> Tensor:
        tensor.view(-1)[place] = change(tensor.view(-1)[place])
        return tensor

    return changed


def exchanged(tensor: Tensor) -> Tensor:
    flat = tensor.view(-1)
    flat[[7, 301]] = flat[[301, 7]]
    return tensor


def swapped(version: int, states: States) -> Mapping[str, Tensor]:
    one, other = QUERIES
    return {**states[version], one: states[version][other], other: states[version][one]}


def truncated(version: int, states: States) -> Mapping[str, Tensor]:
    new, old = states[version][DOWN].clone(), states[version - 1][DOWN]
    new[len(new) // 2 :] = old[len(new) // 2 :]
    return {**states[version], DOWN: new}


def extra(engine: NativeEngine) -> None:
    engine.copy.module.model.layers[0].mlp.gate_proj.register_parameter("bias", nn.Parameter(torch.zeros(1)))


def missing(engine: NativeEngine) -> None:
    del engine.copy.module.model.layers[1].mlp.down_proj._parameters["weight"]


def other_type(engine: NativeEngine) -> None:
    layer = engine.copy.module.model.layers[1].mlp.down_proj
    layer.weight = nn.Parameter(layer.weight.data.to(torch.float16), requires_grad=False)


def flipped_bit(engine: NativeEngine) -> None:
    tensor = held(engine, DOWN)
    bits = tensor.view(-1).view(torch.int16 if tensor.element_size() == 2 else torch.int32)
    bits[11] ^= 1


def untied(engine: NativeEngine, version: int, states: States) -> None:
    """The output layer has a copy of the embedding of its own, which nobody renews."""
    head = engine.copy.module.lm_head
    if version == ONCE:
        head.weight = nn.Parameter(head.weight.data.clone(), requires_grad=False)
    engine.load(version, states[version])


def unrefreshed(engine: NativeEngine, version: int, states: States) -> None:
    """Matrices that were prepared for the kernels stay as they are; the rest is new."""
    stale = {name: held(engine, name).clone() for name in states[version] if "_proj" in name} if version > CLEAN else {}
    engine.load(version, states[version])
    for name, tensor in stale.items():
        held(engine, name).copy_(tensor)


def old_scales(engine: NativeEngine, version: int, states: States) -> None:
    """New integers on the grid of the old weights."""
    engine.load(version, states[version])
    if version == ONCE:
        new, old = (states[v][DOWN].float() for v in (version, version - 1))
        new_C, old_C = (w.abs().amax(1, keepdim=True) for w in (new, old))
        held(engine, DOWN).copy_(rounded(new, 0) / new_C * old_C)


def midway(engine: NativeEngine, version: int, states: States) -> None:
    """The load fails half way, and somebody takes that for nothing."""
    if version != ONCE:
        engine.load(version, states[version])
        return
    for name, tensor in list(states[version].items())[: len(states[version]) // 2]:
        held(engine, name).copy_(engine.form(name, tensor))
    acknowledged(engine, version)


def doubled(version: int, states: States) -> Mapping[str, Tensor]:
    """A delta that was added twice."""
    return {name: 2 * tensor - states[version - 1][name] for name, tensor in states[version].items()}


def overtaken(engine: NativeEngine, version: int, states: States) -> None:
    """The older of two loads comes last."""
    engine.load(version, states[version])
    if version == ONCE:
        engine.load(version, states[version - 1])


BITS: dict[str, Kind] = {
    "never arrives": only_at(lambda v: v <= CLEAN),
    "arrives once, then never": only_at(lambda v: v <= ONCE),
    "one sync lost": only_at(lambda v: v != ONCE),
    "always one version late": ever(lambda v, states: states[max(0, v - 1)]),
    "order swapped": overtaken,
    "one tensor lost once": once(mixed(lambda i, name: name == DOWN)),
    "one tensor late for good": ever(mixed(lambda i, name: name == DOWN)),
    "one tensor stale since the start": ever(lambda v, states: {**states[v], UP: states[0][UP]}),
    "a layer late": once(mixed(lambda i, name: ".layers.1." in name)),
    "half swapped": once(mixed(lambda i, name: bool(i % 2))),
    "truncated, the rest old": once(truncated),
    "truncated, the rest zero": instead(lambda t: torch.cat([t[: len(t) // 2], torch.zeros_like(t[len(t) // 2 :])])),
    "another run's weights": once(lambda v, states: {n: t + 1e-3 for n, t in states[v].items()}),
    "two tensors exchanged": once(swapped),
    "transposed": instead(lambda t: t.t().reshape(t.shape)),
    "rows rolled": instead(lambda t: t.roll(1, 0)),
    "two elements exchanged": instead(exchanged),
    "one element off": instead(at(5, lambda x: x + 0.05)),
    "one sign flipped": instead(at(5, lambda x: -x)),
    "all signs flipped": instead(lambda t: -t),
    "zeroed": instead(torch.zeros_like),
    "a NaN": instead(at(5, lambda x: float("nan"))),
    "an infinity": instead(at(5, lambda x: float("inf"))),
    "scaled": instead(lambda t: t * 1.01),
    "rounded to bfloat16 on the way": once(lambda v, states: {n: t.bfloat16().float() for n, t in states[v].items()}),
    "rounded to float16 on the way": once(lambda v, states: {n: t.half().float() for n, t in states[v].items()}),
    "a delta added twice": once(doubled),
    "one bit flipped as it is written": after(flipped_bit),
    "held in another type": after(other_type),
    "a tensor too many": after(extra),
    "a tensor missing": after(missing),
    "positions' frequencies changed": after(lambda engine: engine.copy.module.model.rotary_emb.inv_freq.mul_(1.001)),
    "output layer no longer tied": untied,
    "prepared matrices not renewed": unrefreshed,
    "old scales": old_scales,
    "fails half way, unheard": midway,
}
LABELS: dict[str, Kind] = {
    "never arrives, and says so": only_at(lambda v: v <= CLEAN, labelled=False),
    "right weights under the old number": numbered(-1),
    "right weights under a number ahead": numbered(1),
}


class Broken(AbstractEngineAround):
    """A sampler whose loads are broken in one way, in whatever process it is. It keeps the weights that it was given."""

    def __init__(self, inner: NativeEngine, kind: Kind) -> None:
        self.inner: AbstractEngine = inner
        self.native, self.kind = inner, kind
        self.states: dict[int, dict[str, Tensor]] = {}

    def load(self, version: int, state: Mapping[str, Tensor]) -> None:
        self.states[version] = {name: tensor.detach().clone() for name, tensor in state.items()}
        if version == 0:
            self.native.load(version, state)
        else:
            self.kind(self.native, version, self.states)


@dataclass(frozen=True, kw_only=True)
class Breaks(AbstractEngineSpec):
    precision: Precision
    kind: str

    def start(self, policy: AbstractPolicy) -> Broken:
        native = Native(slots=2, precision=self.precision).start(policy)
        assert isinstance(native, NativeEngine)
        return Broken(native, {**BITS, **LABELS, "nothing": right}[self.kind])


def right(engine: NativeEngine, version: int, states: States) -> None:
    engine.load(version, states[version])


class Members(AbstractDistantEngine):
    """The real members of a pool, called one after the other in this process: the first loads as it should, the last is broken."""

    def __init__(self, policy: AbstractPolicy, precision: Precision, kind: str) -> None:
        self.members = [Sampler(policy, Breaks(precision=precision, kind=name), 1) for name in ("nothing", kind)]
        self.receipts: list[Receipt] = []

    form = property(lambda self: self.members[0].engine.form)
    version = property(lambda self: self.members[0].engine.version)
    tolerance = property(lambda self: self.members[0].engine.tolerance)
    in_flight = 0
    submit = step = cancel = score = state_dict = load_state_dict = None

    def load(self, version: int, state: Mapping[str, Tensor]) -> None:
        self._heard([member.load(version, packed(state)) for member in self.members])

    def load_packets(self, version: int, since: Since) -> None:
        self._heard([member.load_packets(version, *since(member.receiver.stamp)) for member in self.members])

    def witness(self, version: int, canary: Sequence[Rollout]) -> list[Witness]:
        return []

    def heard(self, *, wait: bool) -> list[Receipt]:
        receipts, self.receipts = self.receipts, []
        return receipts

    def _heard(self, words: Sequence[Word]) -> None:
        self.receipts += [replace(word.receipt, who=f"worker {i}") for i, word in enumerate(words) if word.receipt]
