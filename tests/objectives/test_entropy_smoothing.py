"""The entropy bonus with a memory: by hand, at its limits, and through its controllers."""

import dataclasses

import pytest
import torch

from gimbal.controllers.two_phase_decay import TwoPhaseDecay
from gimbal.learning.updates.base import Remembered
from gimbal.objectives.regularisers.entropy_bonus import EntropyBonus
from gimbal.objectives.regularisers.entropy_smoothing import EntropySmoothing
from gimbal.objectives.surrogates.clipped_ratio import ClippedRatio
from gimbal.ops import TokenMean, masked_mean
from gimbal.recipes.papers.entropy.epo import epo
from gimbal.records import TrainBatch

CENTRES = (1.0, 0.5)
SEEN = {"turn_frac/0": 1.0, "turn_frac/1": 1.0}


def batch(n=3):
    g = torch.Generator().manual_seed(0)
    mask_NS = torch.tensor([[1, 1, 1, 0], [1, 0, 1, 1], [1, 1, 0, 0]], dtype=torch.bool)[:n]
    return TrainBatch(
        mask_NS=mask_NS,
        entropy_NS=3 * torch.rand(3, 4, generator=g, dtype=torch.float64)[:n],
        turn_NS=torch.tensor([0, 0, 1, 5]).expand(n, 4),
        advantage_NS=torch.randn(3, 4, generator=g, dtype=torch.float64)[:n],
        proximal_NS=-torch.rand(3, 4, generator=g, dtype=torch.float64)[:n],
    )


def loss_and_gradient(part, b, extra=None):
    entropy_NS, logprob_NS = b.entropy_NS.clone().requires_grad_(), b.proximal_NS.clone().requires_grad_()
    live = dataclasses.replace(b, entropy_NS=entropy_NS)
    loss_NS = part(logprob_NS, live.with_columns(part.survey(live))).loss_NS
    if extra is not None:
        loss_NS = loss_NS + extra(logprob_NS, live).loss_NS
    loss = (TokenMean()(b.mask_NS) * loss_NS).sum()
    gradients = torch.autograd.grad(loss, [entropy_NS, logprob_NS], allow_unused=True)
    return loss.detach(), [torch.zeros_like(entropy_NS) if x is None else x for x in gradients]


def same(first, second):
    for x, y in zip((first[0], *first[1]), (second[0], *second[1]), strict=True):
        torch.testing.assert_close(x, y, atol=1e-12, rtol=0)


def test_by_hand():
    b = dataclasses.replace(batch(1), entropy_NS=torch.tensor([[3.0, 0.1, 1.25, 9.0]], dtype=torch.float64))
    part = EntropySmoothing(coef=0.5, smoothing=2.0, penalty=0.1, low=0.5, high=2.0, centres=CENTRES)
    price = torch.tensor([0.1 * 1.0, 0.1 * 0.4, 0.1 * 0.5, 0.0], dtype=torch.float64)
    terms = part(b.proximal_NS, b)
    expected = 0.5 * (2 * price - torch.tensor([3.0, 0.1, 1.25, 0.0], dtype=torch.float64))
    torch.testing.assert_close(terms.loss_NS[0], expected)
    entropy, _ = loss_and_gradient(part, b)[1]
    slopes = torch.tensor([2 * 0.1 - 1, -2 * 0.1 - 1, 2 * 0.1 / 0.5 - 1, 0.0], dtype=torch.float64)
    torch.testing.assert_close(entropy[0], 0.5 * slopes / 3)
    later = dataclasses.replace(part, begin=1)(b.proximal_NS, b).metrics["entropy/price"][0]
    torch.testing.assert_close(later, torch.tensor([0, 0, 0.05, 0], dtype=torch.float64))


@pytest.mark.parametrize("off", [{"penalty": 0.0}, {"smoothing": 0.0}, {"centres": (0.0,)}, {"begin": 9}])
def test_without_a_price_reduces_to_grpo_with_an_entropy_bonus(off):
    part = EntropySmoothing(**({"coef": 0.3, "high": 1.0, "centres": CENTRES} | off))
    bonus = EntropyBonus(coef=0.3)
    same(loss_and_gradient(part, batch(), ClippedRatio()), loss_and_gradient(bonus, batch(), ClippedRatio()))


def test_the_indicator_has_the_gradient_of_the_bonus_and_another_loss():
    b = batch()
    part = EntropySmoothing(coef=0.3, high=1.2, low=0.8, centres=CENTRES, form="indicator")
    (loss, gradient), (plain, expected) = loss_and_gradient(part, b), loss_and_gradient(EntropyBonus(coef=0.3), b)
    assert torch.equal(gradient[0], expected[0]) and loss > plain
    relative_NS = b.entropy_NS / torch.tensor([1.0, 1.0, 0.5, 0.5])
    outside = ((relative_NS <= 0.8) | (relative_NS >= 1.2)) & b.mask_NS
    torch.testing.assert_close(loss - plain, 0.3 * 0.1 * outside.double().sum() / b.mask_NS.sum())


def test_coef_0_reduces_to_grpo():
    part = EntropySmoothing(coef=0.0, high=1.0, centres=CENTRES)
    loss, gradient = loss_and_gradient(part, batch())
    assert loss == 0 and (gradient[0] == 0).all()


def test_micro_batches_of_a_price_give_the_gradient_of_the_whole():
    b = batch()
    part = EntropySmoothing(high=1.0, centres=CENTRES)
    b = b.with_columns(part.survey(b))
    whole = part(b.proximal_NS, b)
    for rows in ([0, 2], [1]):
        micro = b.select(torch.tensor(rows))
        s = micro.shape[1]
        split = part(micro.proximal_NS, micro)
        torch.testing.assert_close(split.loss_NS, whole.loss_NS[rows, :s])
        for name, value_NS in split.metrics.items():
            torch.testing.assert_close(value_NS, whole.metrics[name][rows, :s])


def test_the_metric_of_a_turn_is_its_mean_entropy():
    b = batch()
    metrics = EntropySmoothing(centres=(0.0, 0.0, 0.7, 0.0))(b.proximal_NS, b).metrics
    for turn, there in ((0, b.turn_NS == 0), (1, b.turn_NS == 1), (3, b.turn_NS >= 3)):
        found = masked_mean(metrics[f"entropy/turn_{turn}"], b.mask_NS)
        torch.testing.assert_close(found, b.entropy_NS[there & b.mask_NS].mean())
    assert (metrics["entropy/turn_2"] == 0).all(), "of a turn that did not occur, known or not"
    assert [float(masked_mean(metrics[f"turn_frac/{turn}"], b.mask_NS)) for turn in range(4)] == [1, 1, 0, 1]


def test_a_centre_is_the_mean_over_steps_and_what_it_began_with_enters_none():
    part = EntropySmoothing(centres=(7.0, 0.0))
    state = part.init()
    assert part.recalling(state) == part
    for x, mean in ((1.0, 1.0), (2.0, 1.5), (6.0, 3.0), (7.0, 4.0)):
        state = part.update(state, {"entropy/turn_0": x, "entropy/turn_1": 0.5} | SEEN)
        assert part.recalling(state).centres == pytest.approx((mean, 0.5))


def stepped(part, state, *minibatches):
    """The state after a step of these minibatches, and the prices of the last: the learner reports the mean over them."""
    recalled, found = part.recalling(state), []
    for turns, entropies in minibatches:
        shape = (1, len(turns))
        b = TrainBatch(
            mask_NS=torch.ones(shape, dtype=torch.bool),
            entropy_NS=torch.tensor([entropies], dtype=torch.float64),
            turn_NS=torch.tensor([turns]),
        )
        metrics = recalled(torch.zeros(shape, dtype=torch.float64), b).metrics
        found.append({name: float(masked_mean(x_NS, b.mask_NS)) for name, x_NS in metrics.items()})
    means = {name: sum(one[name] for one in found) / len(found) for name in found[0]}
    return part.update(state, means), metrics["entropy/price"]


def test_a_turn_that_has_not_occurred_has_no_centre_and_no_price():
    part = EntropySmoothing(centres=(0.0, 0.0, 0.0))
    state, _ = stepped(part, part.init(), ([0, 0, 1, 1], [2.0, 2.0, 0.1, 0.1]))
    assert part.recalling(state).centres == pytest.approx((2.0, 0.1, 0.0))
    state, price_NS = stepped(part, state, ([0, 2, 2], [2.0, 3.0, 3.0]))
    assert (price_NS == 0).all(), "turn 2 had none, whatever the other turns' entropies were"
    assert part.recalling(state).centres == pytest.approx((2.0, 0.1, 3.0))


def test_a_step_without_a_turn_is_no_observation_of_it():
    part = EntropySmoothing(centres=(0.0, 0.5))
    state = part.init()
    for entropy in (1.0, None, None, 4.0):
        state, _ = stepped(part, state, ([0], [2.0]) if entropy is None else ([0, 1], [2.0, entropy]))
        if entropy == 1.0:
            assert part.recalling(state).centres == pytest.approx((2.0, 1.0)), "what it began with enters none"
    assert part.recalling(state).centres == pytest.approx((2.0, 2.5))
    never, _ = stepped(part, part.init(), ([0], [2.0]))
    assert part.recalling(never).centres == (2.0, 0.5), "until then it is what it began with"


def test_a_step_is_observed_by_its_minibatches_that_have_the_turn():
    part = EntropySmoothing(centres=(0.0, 0.0))
    state, _ = stepped(part, part.init(), ([0, 1], [2.0, 1.0]), ([0, 0], [4.0, 4.0]), ([1, 1], [3.0, 3.0]))
    assert part.recalling(state).centres == pytest.approx((3.0, 2.0))


def test_a_state_of_an_earlier_version_is_refused():
    held = Remembered(EntropySmoothing(centres=(0.0, 0.0)))
    held.load_state_dict(held.state_dict())
    with pytest.raises(
        ValueError, match=r"of EntropySmoothing is of steps, centres\.0, .*start a new run from its weights"
    ):
        held.load_state_dict({"steps": 3.0, "centres.0": 1.0, "centres.1": 0.5})


def test_two_phases():
    rule = TwoPhaseDecay(steps=100)
    state, values = rule.init(), [rule.init()["value"]]
    for _ in range(100):
        state = rule.update(state, {})
        values.append(state["value"])
    assert values[0] == 1 and values[49] == pytest.approx(0.828, abs=2e-3)
    assert values[50] == pytest.approx(0.8) and values[100] == pytest.approx(0.8 * 0.049787, rel=1e-4)
    assert values == sorted(values, reverse=True)
    flat = TwoPhaseDecay(steps=4, drop=0.0, late=1.0, late_rate=0.0)
    assert flat.update(flat.update(flat.update(flat.init(), {}), {}), {})["value"] == 1


def test_the_recipe_moves_every_centre_and_the_schedule():
    run = epo()
    paths = {f"regularisers.0.{name}" for name in run.regularisers[0].init()}
    assert set(run.controllers) == {"regularisers.0.smoothing"} and "regularisers.0.centres.2" in paths


def test_refusals():
    with pytest.raises(ValueError, match="low"):
        EntropySmoothing(low=1.5, high=1.2)
    with pytest.raises(ValueError, match="empty"):
        EntropySmoothing(centres=())
    with pytest.raises(ValueError, match="at least 1"):
        TwoPhaseDecay(steps=0)
