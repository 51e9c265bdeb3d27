"""What every method must do, whatever it is: the harness walks the packages and finds them."""

import dataclasses
import importlib
import inspect
import json
import pickle
import pkgutil
from collections import defaultdict

import pytest
import torch
from exceptions import EXCEPTIONS

import gimbal.advantages
import gimbal.controllers
import gimbal.objectives
from gimbal import config
from gimbal.advantages.base import AbstractAdvantage, AbstractRewardShaping
from gimbal.composition import AbstractRemembering
from gimbal.controllers.base import AbstractController, AbstractStepSize
from gimbal.objectives.base import AbstractCorrection, AbstractMask, AbstractObjective
from gimbal.ops import ConstantMean, SequenceMean, SequenceSum, TokenMean
from gimbal.records import Part, TrainBatch


def found(package, kind):
    """Final classes of this kind in the package, each by its default configuration."""
    classes = {}
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        for name, thing in vars(importlib.import_module(module.name)).items():
            if inspect.isclass(thing) and issubclass(thing, kind) and not name.startswith("Abstract"):
                classes[name] = thing
    return [classes[name]() for name in sorted(classes)]


OBJECTIVES = found(gimbal.objectives, AbstractObjective)
CORRECTIONS = found(gimbal.objectives, AbstractCorrection)
ADVANTAGES = found(gimbal.advantages, AbstractAdvantage)
SHAPINGS = found(gimbal.advantages, AbstractRewardShaping)
MASKS = found(gimbal.objectives, AbstractMask)
CONTROLLERS = found(gimbal.controllers, AbstractController)
STEP_SIZES = found(gimbal.controllers, AbstractStepSize)
EVERY = OBJECTIVES + CORRECTIONS + MASKS + ADVANTAGES + SHAPINGS + CONTROLLERS + STEP_SIZES
COLUMNS = (
    "behavior_NS",
    "proximal_NS",
    "reference_NS",
    "current_NS",
    "advantage_NS",
    "reward_NS",
    "value_NS",
    "target_NS",
)
OF_BATCH = OBJECTIVES + CORRECTIONS + MASKS + ADVANTAGES + SHAPINGS


def name(method):
    return type(method).__name__


@pytest.fixture(autouse=True)
def exceptions(request):
    """A test that a method is exempt from is skipped with the reason, which is on record."""
    params = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    method = params.get("method", params.get("rule"))
    reason = EXCEPTIONS.get(name(method), {}).get(request.node.originalname)
    if reason:
        pytest.skip(reason)


def batch(n=6, s=5, seed=0, dtype=torch.float32):
    """Three groups of two; ragged; one row with a hole, as multi-turn rollouts have."""
    g = torch.Generator().manual_seed(seed)

    def draw(scale=1.0):
        return (scale * torch.randn(n, s, generator=g)).to(dtype)

    length_N = torch.tensor([5, 3, 4, 1, 2, 5])[:n]
    mask_NS = torch.arange(s) < length_N[:, None]
    mask_NS[0, 2] = False
    logprob_NS = -draw().abs()
    of_steps = torch.Generator().manual_seed(seed)
    of_joints = torch.Generator().manual_seed(seed + 1)
    each_NSA = torch.randn(n, s, 2, generator=of_joints).to(dtype)
    mean_NSD, reference_NSD = torch.randn(2, n, s, 3, generator=of_steps).to(dtype)
    return logprob_NS, TrainBatch(
        mask_NS=mask_NS,
        behavior_NS=logprob_NS + draw(0.2),
        proximal_NS=logprob_NS + draw(0.2),
        reference_NS=logprob_NS + draw(0.2),
        current_NS=logprob_NS.clone(),
        advantage_NS=draw(),
        reward_NS=draw(),
        value_NS=draw(),
        target_NS=draw(),
        new_value_NS=draw(),
        entropy_NS=draw().abs(),
        bootstrap_N=draw()[:, 0],
        version_NS=torch.zeros(n, s, dtype=torch.long),
        group_N=torch.tensor([7, 7, 3, 3, 9, 9])[:n],
        episode_N=torch.arange(n),
        parent_N=torch.full((n,), -1),
        role_N=torch.tensor([0, 0, 0, 1, 1, 1])[:n],
        fork_N=torch.zeros(n, dtype=torch.long),
        turn_NS=(torch.arange(s) >= 2).long().expand(n, s).clone(),
        part_NS=torch.where(mask_NS, Part.RESPONSE, Part.OBSERVATION),
        hidden_NSH=torch.randn(n, s, 4, generator=g).to(dtype),
        score_norm_N=1 + draw()[:, 0].abs(),
        facts={
            "score/right": (draw()[:, 0] > 0).to(dtype),
            "score/short": draw()[:, 0],
            "score/emphasis": 1 + draw()[:, 0].abs(),
            "score/novelty": 0.5 + torch.rand(n, generator=of_steps).to(dtype),
            "score/outcome": torch.linspace(0, 1, n).to(dtype),
            "score/revision": torch.zeros(n, dtype=dtype),
            "score/parent": torch.full((n,), -1, dtype=dtype),
            "score/before": torch.zeros(n, dtype=dtype),
            "truncated": torch.zeros(n, dtype=dtype),
            "inclusion": torch.rand(n, generator=g).clamp(0.2, 1).to(dtype),
            "step_slope_NS": torch.rand(n, s, generator=g).to(dtype),
            "step_variance_NS": torch.rand(n, s, generator=g).to(dtype),
            "logprob_NSV": torch.randn(n, s, 3, generator=g).log_softmax(-1).to(dtype),
            "reference/logprob_NSV": torch.randn(n, s, 3, generator=g).log_softmax(-1).to(dtype),
            "logprob_NSA": each_NSA,
            "proximal/logprob_NSA": each_NSA + 0.2 * torch.randn(n, s, 2, generator=of_joints).to(dtype),
            "mean_NSD": mean_NSD,
            "reference/mean_NSD": reference_NSD,
            "velocity_NSD": mean_NSD,
            "reference/velocity_NSD": reference_NSD,
            "shift_NSD": torch.randn(n, s, 3, generator=of_steps).to(dtype),
            "std_NS": 0.5 + torch.rand(n, s, generator=of_steps).to(dtype),
            "scale_NS": torch.ones(n, s, dtype=dtype),
            "staggered_NS": -torch.rand(n, s, generator=of_steps).to(dtype),
            "exposed_NS": -torch.rand(n, s, generator=of_steps).to(dtype),
            "cost/after": torch.rand(n, s, generator=of_steps).to(dtype),
        },
        live=frozenset(
            {"exposed_NS", "logprob_NSA", "logprob_NSV", "mean_NSD", "shift_NSD", "staggered_NS", "velocity_NSD"}
        ),
        value_NSM=torch.stack([draw(), draw()], -1),
        new_value_NSM=torch.stack([draw(), draw()], -1),
    )


def apply(method, logprob_NS, b):
    if isinstance(method, AbstractObjective):
        return method(logprob_NS, b.with_columns(method.survey(b))).loss_NS
    return method(b)


def counted(method, b):
    """Where the method's loss may lie: an objective may count what the policy did not draw."""
    return method.counted(b) if isinstance(method, AbstractObjective) else b.mask_NS


def surveyed(method, b):
    return b.with_columns(method.survey(b))


def loss_and_gradient(method, logprob_NS, b, weight_NS):
    """Of a batch that was surveyed, if the method surveys."""
    logprob_NS = logprob_NS.clone().requires_grad_()
    inputs = {key: getattr(b, key).clone().requires_grad_() for key in ("entropy_NS", "new_value_NS", "new_value_NSM")}
    inputs |= {key: b.facts[key].clone().requires_grad_() for key in b.live}
    loss = (method(logprob_NS, b.with_columns(inputs)).loss_NS * weight_NS)[counted(method, b)].sum()
    gradients = torch.autograd.grad(loss, [logprob_NS, *inputs.values()], allow_unused=True)
    return loss, [torch.zeros_like(logprob_NS) if g is None else g for g in gradients]


@pytest.mark.parametrize("method", EVERY, ids=name)
def test_is_a_frozen_documented_value(method):
    assert dataclasses.is_dataclass(method) and method.__dataclass_params__.frozen
    assert hash(method) == hash(pickle.loads(pickle.dumps(method))) and method == pickle.loads(pickle.dumps(method))
    text = inspect.getdoc(type(method))
    assert "arXiv:" in text or "textbook" in text or any(year in text for year in ("1991", "1992", "2020", "2025"))
    assert "\n- " in text, "a method states its limiting cases as a list"
    assert text.rpartition("\n\n")[2].startswith("Confidence: "), "the last line says how well the work is known"


@pytest.mark.parametrize("method", OF_BATCH, ids=name)
def test_rows_in_another_order_give_the_same_rows(method):
    logprob_NS, b = batch()
    order = torch.tensor([3, 0, 5, 2, 1, 4])
    first = apply(method, logprob_NS, b)[order]
    longest = b.shape[1]
    second = apply(method, logprob_NS[order], b.select(order))
    torch.testing.assert_close(second[:, :longest], first, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("method", OF_BATCH, ids=name)
@pytest.mark.parametrize("garbage", [float("nan"), float("inf"), -1e30])
def test_what_lies_under_the_mask_never_matters(method, garbage):
    logprob_NS, b = batch()
    kept = {key: getattr(b, key) for key in (*COLUMNS, "new_value_NS", "entropy_NS")}
    kept |= {key: getattr(b, key) for key in ("value_NSM", "new_value_NSM")}
    kept |= {key: x for key, x in b.facts.items() if x.ndim > 1}
    mask_NS = {2: b.mask_NS, 3: b.mask_NS[..., None]}
    spoilt = b.with_columns({key: x.where(mask_NS[x.ndim], garbage) for key, x in kept.items()})
    there = counted(method, b)
    first = apply(method, logprob_NS, b)
    second = apply(method, logprob_NS.where(b.mask_NS | there, garbage), spoilt)
    torch.testing.assert_close(second[there], first[there])
    assert torch.isfinite(second[there]).all() and (second[~there] == 0).all()


@pytest.mark.parametrize("method", OBJECTIVES, ids=name)
def test_no_gradient_reaches_what_is_masked(method):
    logprob_NS, b = batch()
    if counted(method, b) is not b.mask_NS:
        return
    for gradient in loss_and_gradient(
        method, logprob_NS.where(b.mask_NS, float("nan")), surveyed(method, b), TokenMean()(b.mask_NS)
    )[1]:
        assert (gradient[~b.mask_NS] == 0).all()


@pytest.mark.parametrize("method", OBJECTIVES, ids=name)
def test_a_loop_of_ones_own_need_not_survey(method):
    logprob_NS, b = batch()
    b = b.with_columns({"current_NS": logprob_NS})
    torch.testing.assert_close(method(logprob_NS, b).loss_NS, method(logprob_NS, surveyed(method, b)).loss_NS)


@pytest.mark.parametrize("method", OF_BATCH, ids=name)
def test_padding_changes_nothing(method):
    logprob_NS, b = batch()
    columns = {f.name: x for f in dataclasses.fields(b) if isinstance(x := getattr(b, f.name), torch.Tensor)} | b.facts
    pad = {key: torch.nn.functional.pad(x, (0, 0) * (x.ndim - 2) + (0, 3)) for key, x in columns.items() if x.ndim >= 2}
    wide = apply(method, torch.nn.functional.pad(logprob_NS, (0, 3)), b.with_columns(pad))
    torch.testing.assert_close(wide[:, :5], apply(method, logprob_NS, b))


@pytest.mark.parametrize("method", OBJECTIVES, ids=name)
@pytest.mark.parametrize(
    "aggregation", [TokenMean(), SequenceMean(), SequenceSum(), ConstantMean(length=9.0)], ids=name
)
def test_micro_batches_give_the_gradient_of_the_whole(method, aggregation):
    logprob_NS, b = batch(dtype=torch.float64)
    b = surveyed(method, b)
    weight_NS = aggregation(counted(method, b), b.part_NS)
    loss, gradients = loss_and_gradient(method, logprob_NS, b, weight_NS)
    parts = [torch.tensor([0, 4]), torch.tensor([1]), torch.tensor([2, 3, 5])]
    if method.whole_groups:
        parts = [torch.tensor([2, 3]), torch.tensor([0, 1, 4, 5])]
    total, pieces = 0.0, [torch.zeros_like(g) for g in gradients]
    for rows in parts:
        micro = b.with_columns({"weight": weight_NS}).select(rows)
        s = micro.shape[1]
        part, split = loss_and_gradient(method, logprob_NS[rows, :s], micro, micro.facts["weight"])
        total = total + part
        for piece, gradient in zip(pieces, split, strict=True):
            piece[rows, :s] += gradient
    torch.testing.assert_close(total, loss, atol=1e-6, rtol=0)
    for piece, gradient in zip(pieces, gradients, strict=True):
        torch.testing.assert_close(piece, gradient, atol=1e-6, rtol=0)


@pytest.mark.parametrize("method", OF_BATCH, ids=name)
@pytest.mark.parametrize("shift", [20.0, -20.0, 1000.0, -1000.0])
def test_extreme_ratios_stay_finite(method, shift):
    logprob_NS, b = batch()
    far = dataclasses.replace(
        b, proximal_NS=logprob_NS - shift, behavior_NS=logprob_NS - 2 * shift, reference_NS=logprob_NS - shift
    )
    if not isinstance(method, AbstractObjective):
        assert torch.isfinite(method(far)).all()
        return
    loss, gradients = loss_and_gradient(method, logprob_NS, surveyed(method, far), TokenMean()(b.mask_NS))
    assert torch.isfinite(loss) and all(torch.isfinite(g).all() for g in gradients)


@pytest.mark.parametrize("method", ADVANTAGES, ids=name)
def test_equal_rewards_and_lone_rollouts_teach_nothing(method):
    """Group estimators give exactly 0; the others have no group to compare with and must say so by not needing one."""
    _, b = batch()
    if "group_N" not in method.needs:
        return
    reward_NS = torch.zeros_like(b.reward_NS)
    reward_NS[:, 0] = 0.3
    assert (method(dataclasses.replace(b, reward_NS=reward_NS)) == 0).all()
    alone = dataclasses.replace(b, group_N=torch.arange(6))
    assert (method(alone) == 0).all()


@pytest.mark.parametrize("method", OF_BATCH, ids=name)
def test_an_empty_mask_is_no_error(method):
    logprob_NS, b = batch()
    for mask_NS in (torch.zeros_like(b.mask_NS), b.mask_NS & (torch.arange(6) != 1)[:, None]):
        result = apply(method, logprob_NS, dataclasses.replace(b, mask_NS=mask_NS))
        assert torch.isfinite(result).all()
        assert counted(method, b) is not b.mask_NS or (result[~mask_NS] == 0).all()


@pytest.mark.parametrize("method", OF_BATCH, ids=name)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_in_float32_out(method, dtype):
    logprob_NS, b = batch(dtype=dtype)
    result = apply(method, logprob_NS, b)
    assert result.dtype == (torch.bool if method in MASKS else torch.float32) and torch.isfinite(result).all()


@pytest.mark.parametrize("method", CORRECTIONS + MASKS + ADVANTAGES + SHAPINGS, ids=name)
def test_constants_carry_no_gradient(method):
    _, b = batch()
    live = {key: getattr(b, key).clone().requires_grad_() for key in COLUMNS}
    assert not method(dataclasses.replace(b, **live)).requires_grad


@pytest.mark.parametrize("method", OBJECTIVES, ids=name)
def test_no_gradient_flows_into_anchors_and_advantages(method):
    logprob_NS, b = batch()
    live = {key: getattr(b, key).clone().requires_grad_() for key in COLUMNS}
    live |= {key: x.clone().requires_grad_() for key, x in b.facts.items() if x.ndim > 1 and key not in b.live}
    own = {key: getattr(b, key).clone().requires_grad_() for key in ("entropy_NS", "new_value_NS", "new_value_NSM")}
    own |= {key: b.facts[key].clone().requires_grad_() for key in b.live}
    loss_NS = method(logprob_NS.requires_grad_(), surveyed(method, b.with_columns({**live, **own}))).loss_NS
    loss_NS.sum().backward()
    assert all(column.grad is None for column in live.values())


@pytest.mark.parametrize("method", OF_BATCH, ids=name)
def test_inputs_are_left_alone(method):
    logprob_NS, b = batch()
    copies = {f.name: x.clone() for f in dataclasses.fields(b) if isinstance(x := getattr(b, f.name), torch.Tensor)}
    apply(method, logprob_NS, b)
    for key, copy in copies.items():
        torch.testing.assert_close(getattr(b, key), copy, equal_nan=True)


@pytest.mark.parametrize("method", OBJECTIVES, ids=name)
def test_a_small_step_makes_good_decisions_likelier(method):
    """The sign: near the anchor, descent raises log-probabilities where A > 0 and lowers them where A < 0."""
    logprob_NS, b = batch()
    if "advantage_NS" not in method.needs:
        return
    near = dataclasses.replace(b, proximal_NS=logprob_NS.clone())
    step_NS = -loss_and_gradient(method, logprob_NS, surveyed(method, near), TokenMean()(b.mask_NS))[1][0]
    if name(method) == "SequenceRatio":  # its decisions share one ratio; with an advantage constant over the row
        near = dataclasses.replace(near, advantage_NS=b.advantage_NS[:, :1].expand(-1, 5))
        step_NS = -loss_and_gradient(method, logprob_NS, surveyed(method, near), TokenMean()(b.mask_NS))[1][0]
    assert (step_NS * near.advantage_NS)[b.mask_NS].min() >= 0 and step_NS[b.mask_NS].abs().min() > 0


@pytest.mark.parametrize("method", OF_BATCH, ids=name)
def test_needs_are_what_is_read(method):
    logprob_NS, b = batch()
    always = ("mask_NS", "decisions", "part_NS", "turn_NS", "roles", "facts", "live")
    columns = [f.name for f in dataclasses.fields(b) if f.name not in always]
    scores = {key: x for key, x in b.facts.items() if key in method.needs or not key.endswith("_NS")}
    only = dataclasses.replace(b, facts=scores, **{key: None for key in columns if key not in method.needs})
    apply(method, logprob_NS, only)
    for key in method.needs:
        facts = {name: x for name, x in only.facts.items() if name != key}
        less = dataclasses.replace(only, facts=facts, **({key: None} if key in columns else {}))
        with pytest.raises(ValueError, match=f"{name(method)}|mask_NS|TrainBatch"):
            apply(method, logprob_NS, less)


@pytest.mark.parametrize("rule", CONTROLLERS, ids=name)
def test_controllers_survive_json_and_stay_bounded(rule):
    states = [rule.init()]
    for signal in (0.0, 1e9, 1e9, 0.0, 0.001):
        fresh = rule.update(states[-1], {rule.signal: signal})
        assert fresh == rule.update(json.loads(json.dumps(states[-1])), {rule.signal: signal})
        states.append(fresh)
    assert all(rule.low <= state["value"] <= rule.high for state in states)
    assert rule.update(states[0], {rule.signal: 1e9})["value"] > rule.update(states[0], {rule.signal: 0.0})["value"]
    with pytest.raises(KeyError, match=rule.signal):
        rule.update(rule.init(), {})


def test_the_harness_finds_what_there_is():
    """In packages of packages too: as many as the catalogue, which reads the sources, and no fewer than there have been."""
    kinds = ("Objective", "Correction", "Mask", "Advantage", "RewardShaping", "Controller", "StepSize")
    assert {name(method) for method in EVERY} == {entry.name for kind in kinds for entry in config.methods()[kind]}
    assert len(EVERY) >= 98 and len(OBJECTIVES) >= 38 and len(ADVANTAGES) >= 32


@pytest.mark.parametrize("method", [m for m in EVERY if isinstance(m, AbstractRemembering)], ids=name)
def test_what_remembers_begins_as_it_is_written_and_holds_plain_numbers(method):
    state = method.init()
    later = method.update(state, defaultdict(lambda: 0.25))
    assert method.recalling(state) == method != method.recalling(later)
    assert state.keys() == later.keys() and {type(x) for x in (*state.values(), *later.values())} == {float}
