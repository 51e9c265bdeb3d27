"""Optimisers by name: each takes the step it is named after, and a resumed run goes on to the same bits."""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent.parent / "runtime"))
from small import Shallow, small_run

from gimbal import recipes
from gimbal.learning.optimization import Optimization
from gimbal.learning.optimizers import AdamW, Alike, Rounded, Together
from gimbal.objectives.masks.curvature_mask import CurvatureMask
from gimbal.report.files import deterministic
from gimbal.runtime import compose
from gimbal.runtime.local import Trainer

CHOICES = {
    "adamw": {},
    "adamw in bfloat16": {"optimizer_dtype": "bfloat16"},
    "sgd": {"optimizer": "sgd"},
    "muon": {"optimizer": "muon"},
    "adamw_8bit": {"optimizer": "adamw_8bit"},
}


def chosen(name, **changes):
    if name == "adamw_8bit":
        pytest.importorskip("bitsandbytes")
    return Optimization(learning_rate=1e-3, **CHOICES[name], **changes)


@pytest.mark.parametrize("name", CHOICES)
@pytest.mark.slow
def test_a_resumed_run_goes_on_bit_for_bit(tmp_path, name):
    torch.set_num_threads(1)
    first = Trainer(small_run(optimization=chosen(name, decay="linear")))
    start = {n: x.clone() for n, x in first.policy.state_dict().items()}
    first.advance()
    again = Trainer(first.run, first.save(tmp_path, {}))
    ours, theirs = (deterministic(one.advance()[0]) for one in (first, again))
    assert ours == theirs and ours["grad_norm"] > 0
    ends = (one.policy.state_dict() for one in (first, again))
    for (n, a), b in zip(next(ends).items(), next(ends).values(), strict=True):
        assert torch.equal(a, b)
        assert not torch.equal(a, start[n])
    kept = [one.learner.models.optimizers["policy"] for one in (first, again)]
    for a, b in zip(*(o.state.values() for o in kept), strict=True):
        assert a.keys() == b.keys()
        for x, y in ((a[n], b[n]) for n in a if isinstance(a[n], torch.Tensor)):
            assert x.dtype == y.dtype and torch.equal(x, y)


def gradients(module, count=4):
    """The same for every module of these shapes."""
    generator = torch.Generator().manual_seed(7)
    for _ in range(count):
        for weight in module.parameters():
            weight.grad = torch.randn(weight.shape, generator=generator)
        yield


def small():
    torch.manual_seed(0)
    return nn.ModuleDict({"embed": nn.Embedding(11, 8), "blocks": nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)])})


def moved(optimizer_of):
    module = small()
    optimizer = optimizer_of(module)
    for _ in gradients(module):
        optimizer.step()
    return module, optimizer


def test_moments_in_bfloat16_are_those_of_adamw_rounded(monkeypatch):
    own = {"learning_rate": 1e-2, "weight_decay": 0.1}
    exact, _ = moved(AdamW(**own).over)
    same, _ = moved(AdamW(**own, dtype="float32").over)
    coarse, optimizer = moved(AdamW(**own, dtype="bfloat16").over)
    monkeypatch.setattr("gimbal.learning.optimizers.PIECE", 16)
    pieces, _ = moved(AdamW(**own, dtype="bfloat16").over)
    start = small()
    for a, b, c, d, e in zip(*(x.parameters() for x in (exact, same, coarse, pieces, start)), strict=True):
        assert torch.equal(a, b)
        torch.testing.assert_close(c, d, rtol=1e-6, atol=1e-8)
        assert 0 < float((a - c).detach().norm()) < 0.01 * float((a - e).detach().norm())
    assert isinstance(optimizer, Rounded)
    assert {s["exp_avg"].dtype for s in optimizer.state.values()} == {torch.bfloat16}


def test_weights_that_are_alike_move_as_torchs_adamw_moves_them_and_go_on_from_its_state():
    spec = AdamW(learning_rate=0.1, beta1=0.8, beta2=0.9, weight_decay=0.3)
    models = [nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    ours = spec.over(models[0])
    theirs = torch.optim.AdamW(models[1].parameters(), lr=0.1, betas=(0.8, 0.9), weight_decay=0.3, fused=True)
    assert isinstance(ours, Alike)
    for step in range(7):
        if step == 2:  # each goes on with the other's
            first, second = ours.state_dict(), theirs.state_dict()
            ours, theirs = spec.over(models[0]), torch.optim.AdamW(models[1].parameters(), fused=True)
            ours.load_state_dict(second)
            theirs.load_state_dict({**first, "param_groups": second["param_groups"]})
        for number, pair in enumerate(zip(*(model.parameters() for model in models), strict=True)):
            gradient = torch.randn(pair[0].shape, generator=torch.Generator().manual_seed(10 * step + number))
            for weight in pair:  # some have none, and count their own steps
                weight.grad = None if (step, number) in {(0, 0), (3, 1), (4, 2), (4, 3)} else gradient.clone()
        ours.step()
        theirs.step()
        assert all(torch.equal(a, b) for a, b in zip(*(model.parameters() for model in models), strict=True)), step
    assert [int(ours.state[weight]["step"]) for weight in models[0].parameters()] == [6, 6, 6, 6]
    mixed = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2).bfloat16()])
    assert isinstance(spec.over(mixed), torch.optim.AdamW)


def test_muon_moves_matrices_of_blocks_by_orthogonal_steps_and_the_rest_by_adamw():
    optimization = Optimization(learning_rate=1e-2, optimizer="muon")
    start, ends = small(), {}
    for name, of in (("muon", optimization.of_policy().over), ("adamw", optimization.adamw(1e-2).over)):
        module = small()
        optimizer = of(module)
        assert name == "adamw" or isinstance(optimizer, Together)
        next(gradients(module))
        optimizer.step()
        ends[name] = module
    for path, weight in ends["muon"].named_parameters():
        step = weight - start.get_parameter(path)
        if path.startswith("blocks") and weight.ndim == 2:
            sizes = torch.linalg.svdvals(step) / (1e-2 * 0.2 * 8**0.5)
            assert float(sizes.min()) > 0.6 and float(sizes.max()) < 1.3  # five iterations bring them near 1
        else:
            assert torch.equal(weight, ends["adamw"].get_parameter(path)), path


def test_muon_learns_the_layers_of_a_language_model():
    policy = Shallow().load()
    parts = Optimization(optimizer="muon").of_policy().over(policy).parts
    of_muon = {id(w) for group in parts[0].param_groups for w in group["params"]}
    names = {n for n, w in policy.named_parameters() if id(w) in of_muon}
    assert len(names) == 14 and all(".layers." in n and n.endswith("proj.weight") for n in names)


def test_sgd_is_the_gradient():
    module = small()
    start = small()
    optimizer = Optimization(learning_rate=0.5, optimizer="sgd", beta1=0.0).of_policy().over(module)
    next(gradients(module))
    optimizer.step()
    for a, b in zip(module.parameters(), start.parameters(), strict=True):
        torch.testing.assert_close(a, b - 0.5 * a.grad)
    assert all(value is None for state in optimizer.state.values() for value in state.values())


def test_eight_bits_a_moment():
    pytest.importorskip("bitsandbytes")
    exact, coarse = nn.Linear(128, 64), nn.Linear(128, 64)
    coarse.load_state_dict(exact.state_dict())
    start = exact.weight.detach().clone()
    for module, optimizer in ((exact, "adamw"), (coarse, "adamw_8bit")):
        live = Optimization(learning_rate=1e-3, optimizer=optimizer).of_policy().over(module)
        for _ in gradients(module):
            live.step()
    assert live.state[coarse.weight]["state1"].dtype == torch.uint8
    assert 0 < float((exact.weight - coarse.weight).norm()) < 0.05 * float((exact.weight - start).norm())


def test_what_does_not_go_together_is_refused(monkeypatch):
    with pytest.raises(ValueError, match="optimizer is muon: drop it"):
        Optimization(optimizer="muon", optimizer_dtype="bfloat16")
    with pytest.raises(ValueError, match=r"beta2=0\.99 or below"):
        Optimization(optimizer_dtype="bfloat16", beta2=0.999)
    with pytest.raises(ValueError, match="trains none: optimizer=adamw"):
        Optimization(optimizer="muon").of_policy().over(nn.Linear(3, 3))
    with pytest.raises(ValueError, match="CurvatureMask predicts steps of AdamW"):
        compose.check(small_run(masks=(CurvatureMask(),), optimization=Optimization(optimizer="sgd")))
    with pytest.raises(ValueError, match="optimizer"):
        recipes.load("grpo", {"optim": "adafactor"})
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    with pytest.raises(ValueError, match=r"pip install -e '\.\[8bit\]' in the clone"):
        Optimization(optimizer="adamw_8bit").of_policy().over(nn.Linear(3, 3))
