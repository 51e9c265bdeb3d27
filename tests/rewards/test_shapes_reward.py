"""What a program reads from pictures of shapes: every drawing, what is scored, and the model that draws them."""

from itertools import product

import made
import pytest
import torch
from test_samples import group_of

from gimbal.rewards.shapes import (
    COUNT,
    SIDE,
    VALUES,
    ShapeAttributes,
    ShapeDistance,
    attributes,
    drawings,
    number,
    read,
)


def test_every_drawing_is_read_as_its_own_class_also_under_noise():
    drawing_KD, class_K = drawings()
    assert class_K.bincount().tolist() == [144, 64] * 9 and drawing_KD.unique(dim=0).shape == drawing_KD.shape
    apart_K, found_K = read(drawing_KD)
    assert torch.equal(found_K, class_K) and float(apart_K.max()) == 0
    noise_KD = torch.randn(drawing_KD.shape, generator=torch.Generator().manual_seed(0))
    apart_K, found_K = read(drawing_KD + 0.3 * noise_KD)
    assert (found_K == class_K).float().mean() > 0.99 and 7 < apart_K.mean() < 10


def test_attributes_are_where_the_drawings_have_them():
    drawing_KD, class_K = drawings()
    lit_KC = (drawing_KD.view(-1, 3, SIDE * SIDE) > 0).sum(-1)
    attribute_KA = attributes(class_K)
    assert torch.equal(lit_KC.argmax(-1), attribute_KA[:, 1]) and (lit_KC > 0).sum(-1).unique().tolist() == [1]
    ink = {(s, z): lit_KC.amax(-1)[class_K == number(s, "red", z)].unique().tolist() for s, z in SHAPES}
    assert ink["square", "small"] == [25] and ink["square", "large"] == [81] and ink["cross", "small"] == [9]
    assert all(len(each) == 1 and ink[s, "small"] < ink[s, "large"] for (s, _), each in ink.items())
    names = [tuple(values[place] for values, place in zip(VALUES.values(), row, strict=True)) for row in ALL.tolist()]
    assert [number(*name) for name in names] == list(range(COUNT)) and len(set(names)) == COUNT


SHAPES = list(product(VALUES["shape"], VALUES["size"]))
ALL = attributes(torch.arange(COUNT))


def drawn(*name):
    return drawings()[0][drawings()[1] == number(*name)][:1]


def test_the_share_of_attributes_that_are_right():
    x_ND = torch.cat([drawn("disc", "red", "large"), drawn("disc", "blue", "large"), drawn("cross", "blue", "small")])
    asked = made.Task(id="t", columns={"label": number("disc", "red", "large")})
    group = group_of(x_ND[:, :64], asked)  # of another size
    with pytest.raises(ValueError, match=r"16x16 pixels in three channels .*have 64 numbers"):
        ShapeAttributes()(group)
    label_N = torch.full((3,), number("disc", "red", "large"))
    assert ShapeAttributes().of_samples(x_ND, label_N).tolist() == pytest.approx([1, 2 / 3, 0])
    assert ShapeAttributes(scale="all").of_samples(x_ND, label_N).tolist() == [1, 0, 0]
    for name, right in (("shape", [1, 1, 0]), ("colour", [1, 0, 0]), ("size", [1, 1, 0])):
        for scale in ("share", "all"):
            assert ShapeAttributes(only=(name,), scale=scale).of_samples(x_ND, label_N).tolist() == right
    wanted = ShapeAttributes(wanted=number("cross", "blue", "small")).of_samples(x_ND, torch.full((3,), -1))
    assert wanted.tolist() == pytest.approx([0, 1 / 3, 1])


def test_a_drawing_is_at_no_distance_and_a_dimmed_one_as_far_as_its_pixels_say():
    x_ND = drawn("square", "green", "small")
    label_N = torch.tensor([-1])
    assert ShapeDistance().of_samples(x_ND, label_N).tolist() == [0.0]
    dim = x_ND.clamp(max=0.6)  # 25 pixels, each 0.4 too dark
    assert ShapeDistance().of_samples(dim, label_N).tolist() == pytest.approx([2.0], abs=1e-3)
    slope = dim.clone().requires_grad_()
    ShapeDistance().of_samples(slope, label_N).sum().backward()
    assert slope.grad is not None and (slope.grad[x_ND > 0] < 0).all(), "it has a gradient: brighter is nearer"


def test_classes_and_attributes_that_there_are_not_are_refused():
    for fields, said in (
        ({"wanted": 18}, "0 to 17"),
        ({"only": ()}, "shape, colour, size"),
        ({"only": ("size", "size")}, "once"),
    ):
        with pytest.raises(ValueError, match=said):
            ShapeAttributes(**fields)
    with pytest.raises(ValueError, match=r"class from 0 to 17 .*tasks.labels"):
        ShapeAttributes().of_samples(drawn("disc", "red", "large"), torch.tensor([-1]))


@pytest.mark.slow
def test_the_shipped_model_draws_much_of_what_it_is_asked_for_and_learns_the_rest(single_thread):
    pytest.importorskip("diffusers", reason="diffusers is not installed: pip install -e '.[denoising]'")
    from gimbal import recipes
    from gimbal.runtime.local import Trainer

    run = recipes.load("shapes")
    assert run.policy.load(0).sample_shape == (3, SIDE, SIDE)
    trainer = Trainer(run)
    trainer.begin()
    before = trainer.evaluate().metrics()
    for _ in range(10):
        trainer.advance()
    after = trainer.evaluate().metrics()
    trainer.close()
    assert 0.4 < before["eval/greedy"] < 0.6, "much of it, and something is left to learn"
    assert after["eval/greedy"] > before["eval/greedy"] + 0.05
    assert after["eval/data/distance"] < 1.1 * before["eval/data/distance"], "and its shapes are as clean"
