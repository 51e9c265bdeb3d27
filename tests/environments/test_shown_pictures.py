"""Pictures of which a part is shown: what is known of them, who gets which, and settings that are refused."""

from collections import Counter

import pytest
import torch

pytest.importorskip("sklearn", reason="scikit-learn is not installed: pip install -e '.[denoising]'")

from gimbal.environments.shown_pictures import ShownPictures
from gimbal.rewards.digits import digits

EVERY = ("fill", "extend", "remove", "refine")


def parts(task):
    """(what is shown, how much is known, the whole picture), each [8, 8]."""
    return (*torch.tensor(task.columns["given"]).reshape(2, 8, 8), torch.tensor(task.columns["picture"]).reshape(8, 8))


def test_what_each_kind_shows():
    tasks = ShownPictures(kinds=EVERY, seed=3)
    for index in range(80):
        task, kind = tasks[index], EVERY[index % 4]
        seen_HW, known_HW, picture_HW = parts(task)
        assert task.columns["kind"] == kind and ("label" in task.columns) == (kind in ("fill", "extend"))
        if kind == "refine":
            blocks_HW = picture_HW.reshape(4, 2, 4, 2).mean((1, 3))
            assert torch.equal(seen_HW[::2, ::2], blocks_HW) and torch.equal(seen_HW[1::2, 1::2], blocks_HW)
            assert bool((known_HW == 0.25).all())
            continue
        assert torch.equal(seen_HW, picture_HW * known_HW) and set(known_HW.unique().tolist()) == {0, 1}
        gone_HW = known_HW == 0
        if kind == "extend":
            assert int(gone_HW.sum()) == 32 and {int(gone_HW.any(0).sum()), int(gone_HW.any(1).sum())} == {4, 8}
        else:
            assert int(gone_HW.sum()) == 16 and int(gone_HW.any(0).sum()) == int(gone_HW.any(1).sum()) == 4
    four = parts(ShownPictures(kinds=("refine",), block=4, seed=3)[0])
    assert torch.equal(four[0][:4, :4], four[2][:4, :4].mean().expand(4, 4)) and float(four[1][0, 0]) == 1 / 16


def test_the_class_is_the_pictures_and_kept_out_digits_are_never_trained_on():
    data_KD, label_K = digits()
    rows = {}
    for kept_out in (False, True):
        rows[kept_out] = set()
        for index in range(60):
            task = ShownPictures(kinds=("fill",), seed=1, kept_out=kept_out)[index]
            row = int((data_KD - parts(task)[2].flatten()).abs().sum(-1).argmin())
            assert int(label_K[row]) == task.columns["label"]
            rows[kept_out].add(row)
    assert all(row % 5 for row in rows[False]) and not any(row % 5 for row in rows[True])


def test_kinds_come_in_turn_and_tasks_by_the_seed():
    tasks = ShownPictures(seed=1)
    assert Counter(tasks[i].columns["kind"] for i in range(40)) == {"fill": 20, "extend": 10, "remove": 10}
    assert tasks[5] == ShownPictures(seed=1)[5] and tasks[5].columns != ShownPictures(seed=2)[5].columns


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"kinds": ()}, "choose among fill, extend, remove, refine"),
        ({"size": 0}, "at least 1"),
        ({"block": 3}, "block 2 or 4"),
    ],
)
def test_settings_that_are_refused(fields, said):
    with pytest.raises(ValueError, match=said):
        ShownPictures(**fields)
