"""ThinkRL-Edit's rewards on words and pictures: gimbal-tiny plans, gimbal-digits draws, two checklists must agree."""

from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.estimators.chain_ranked import ChainRanked
from gimbal.recipes.papers.denoising.unigrpo import unigrpo
from gimbal.rewards.checklist import Checklist
from gimbal.rewards.digits import DigitClass, DigitLikeness
from gimbal.rewards.exact import ExactAnswer
from gimbal.rewards.pattern import Pattern
from gimbal.runtime.run import Run


def thinkrl_pictures() -> Run:
    """ThinkRL-Edit (arXiv:2601.03467) with pictures: words and picture have a checklist each, and learn where both agree on the order.

    The episode of unigrpo, in which plans are explored as well as noise. The picture's list asks whether it is the digit of the sum by
    a linear classifier and by its neighbours in the data, and whether it is as near to real ones as they are, in pixels and in blocks
    of four; the words' list whether they have the form of an answer and the right one. Only rollouts on the longest chain of a group,
    in which no list falls where the other rises, get an advantage, by their rank: the same for words and steps. Left out: reflections
    on the picture, and pictures that are edited. No guidance. Not shown here: questions of a large model, which
    Checklist(judge=...) asks, and a pretrained model that writes and draws.
    """
    picture = Checklist(
        name="picture",
        items=(
            DigitClass(scale="hit", name="class"),
            DigitClass(by="neighbours", scale="hit", name="neighbours"),
            DigitLikeness(),
            DigitLikeness(blocks=2, name="coarse"),
        ),
    )
    words = Checklist(name="words", items=(Pattern(), ExactAnswer()))
    return replace(
        unigrpo(),
        rewards=(picture, words, DigitLikeness(rows="even", name="other", weight=0.0)),
        advantage=ChainRanked(rewards=("picture", "words")),
    )
