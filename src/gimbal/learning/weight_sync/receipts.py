"""Receipts against the trainer: at every load, in every process, all that a sampler holds is what it was to be given."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch import Tensor

from gimbal.engines.base import AbstractEngine
from gimbal.engines.receipts import Prints, Reading, Receipt, differences
from gimbal.learning.base import AbstractTrained, trained
from gimbal.policies.base import AbstractPolicy

KEPT = 64  # versions: no sampler is that far behind unless its calls hang, and then it is replaced

Travels = Callable[[Tensor], Tensor]  # what the way makes of a tensor


class NotDelivered(ValueError):
    """The sampler does not run the weights that it claims to run."""


class Receipts:
    """The trainer's side: the manifest of each version, and the version each copy of the weights was found to hold.

    A copy is read just after a load and just before the next. So everything it sampled in between used that version's weights: a
    sampler that shares the trainer's memory would have moved too early, and a flipped bit would still be flipped.
    """

    def __init__(self, source: AbstractPolicy | AbstractTrained, travels: Travels = lambda tensor: tensor) -> None:
        self.source, self.travels = trained(source), travels
        self.manifests: dict[int, Prints] = {}
        self.found: dict[str, int] = {}  # the version last found, by copy
        self.count = 0  # of receipts that were in order

    def still(self, engine: AbstractEngine) -> None:
        """Before a load: the copy in this process is what it was after the last."""
        if "" in self.found and (reading := engine.reading()) is not None:
            self._same("", self.found[""], reading, "no longer what was delivered")

    def arrived(self, engine: AbstractEngine, version: int) -> None:
        """After the newest load: the copy here is correct, and so is each remote copy that has answered."""
        manifest = engine.manifest({**self.source.tensors(), **self._sent()})
        if manifest is None:
            return
        self.manifests[version] = manifest
        for old in sorted(self.manifests)[:-KEPT]:
            del self.manifests[old]
        if (reading := engine.reading()) is not None:
            self._judge(Receipt(who="", due=version, before=None, after=reading))
        self.heard(engine, wait=True)

    def heard(self, engine: AbstractEngine, *, wait: bool = False) -> None:
        """Copies elsewhere answer in the order of their calls: what they drew after a load is not heard of before its receipt."""
        for receipt in engine.heard(wait=wait):
            self._judge(receipt)

    def _sent(self) -> dict[str, Tensor]:
        return {name: self.travels(tensor) for name, tensor in self.source.weights().items()}

    def _judge(self, receipt: Receipt) -> None:
        who, due, last = receipt.who, receipt.due, self.found.get(receipt.who)
        if receipt.before is not None and last is not None:
            self._same(who, last, receipt.before, "no longer what was delivered")
            following = min((version for version in self.manifests if version > last), default=last)
            if due not in (last, following):
                raise NotDelivered(
                    f"the sampler {_of(who)}loaded version {due} after version {last}, where version {following} was to come"
                )
        self._same(who, due, receipt.after, "not the trainer's as the sampler holds them")
        self.found[who] = due
        self.count += 1

    def _same(self, who: str, version: int, reading: Reading, what: str) -> None:
        if reading.version != version:
            raise NotDelivered(
                f"the sampler {_of(who)}is at version {reading.version}, not {version}: the sync did not reach it"
            )
        if version not in self.manifests:
            raise NotDelivered(f"the sampler {_of(who)}answers for version {version}, which was not sent recently")
        if wrong := differences(self.manifests[version], reading.prints):
            raise NotDelivered(
                f"weights of version {version} were not delivered: of {len(self.manifests[version])} tensors of the sampler "
                f"{_of(who)}{len(wrong)} are {what}, {', '.join(wrong[:3])} among them"
            )


def _of(who: str) -> str:
    return f"of {who} " if who else ""


def load(engine: AbstractEngine, source: AbstractPolicy | AbstractTrained, version: int = 0) -> Receipts:
    """Load these weights into an engine that is not shared. NotDelivered if it does not hold them afterwards."""
    engine.load(version, trained(source).state_dict())
    receipts = Receipts(source)
    receipts.arrived(engine, version)
    return receipts


@contextmanager
def running(engine: AbstractEngine, source: AbstractPolicy | AbstractTrained, version: int = 0) -> Iterator[None]:
    """An unshared engine with these weights: it must hold them when the body begins, and still when it ends."""
    source = trained(source)
    if lacking := sorted(engine.separate.keys() - source.separate.keys()):
        raise ValueError(
            f"{lacking[0]} has weights of its own in this run (separate), and only the policy's were given: use gimbal eval RUN, or "
            "drop separate"
        )
    pairs = [(engine, source), *((engine.separate[name], source.separate[name]) for name in engine.separate)]
    loaded = [(load(one, of, version), one) for one, of in pairs]
    yield
    for receipts, one in loaded:
        receipts.still(one)
