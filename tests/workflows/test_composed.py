"""Which workflow goes over which engine, said before a run starts; and what old command lines and runs are told."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "runtime"))
from small import small_run

from gimbal import config
from gimbal.config import Text
from gimbal.engines.base import Request, drained
from gimbal.engines.episodes import Episodes
from gimbal.engines.native import Native
from gimbal.engines.offline import Offline
from gimbal.engines.vllm import VLLM
from gimbal.environments.games import Deals
from gimbal.policies.token import CausalLM, Sampling
from gimbal.recipes.papers.agents.rema import rema
from gimbal.records import Episode, Task
from gimbal.runtime.compose import check
from gimbal.workflows.base import AbstractWorkflow
from gimbal.workflows.branching import Branching
from gimbal.workflows.demonstrated import Demonstrated
from gimbal.workflows.dialogue import Dialogue
from gimbal.workflows.guided import Guided
from gimbal.workflows.retrying import Retrying
from gimbal.workflows.runner import Driven
from gimbal.workflows.self_play import SelfPlay
from gimbal.workflows.single import SingleTurn
from gimbal.workflows.tempered import Tempered

POLICY = CausalLM().load()


@pytest.mark.parametrize(
    "engine, workflow, words",
    [
        (Episodes(), Dialogue(), "workflow=Dialogue.. needs an engine that can go on with a row, but engine=Episodes"),
        (Episodes(), Branching(), "can fork a row"),
        (Offline(), SingleTurn(), "can draw rows, but engine=Offline.. can do none of it: use engine=Native"),
        (Offline(), Guided(), "can draw rows"),
        (Native(), Tempered(), "can record entropy.*engine.entropy=true"),
        (Native(), Tempered(inside=Dialogue()), "can record entropy"),
    ],
)
def test_what_an_engine_cannot_do_is_refused_in_one_sentence(engine, workflow, words):
    with pytest.raises(ValueError, match=words):
        check(small_run(engine=engine, workflow=workflow))


@pytest.mark.parametrize(
    "workflow", [Dialogue(), Branching(), Branching(inside=Dialogue()), Guided(others=Dialogue())], ids=repr
)
@pytest.mark.parametrize("engine", [Native(), VLLM()], ids=["native", "vllm"])
def test_what_it_can_do_is_accepted(engine, workflow):
    check(small_run(engine=engine, workflow=workflow))


def test_what_drives_groups_is_not_put_into_what_takes_samples():
    for make in (lambda: Branching(inside=Branching()), lambda: Guided(others=Branching())):
        with pytest.raises(ValueError, match="whole groups"):
            make()


@pytest.mark.parametrize(
    "wrapper",
    [
        Branching(inside=rema().workflow),
        Retrying(inside=rema().workflow),
        Guided(others=rema().workflow),
        Tempered(inside=rema().workflow),
        Tempered(inside=SelfPlay()),
    ],
    ids=repr,
)
def test_the_players_of_a_workflow_inside_another_are_its_own(wrapper):
    inside = wrapper.others if isinstance(wrapper, Guided) else wrapper.inside
    assert wrapper.players == inside.players != frozenset()
    engine = Driven(engine=Native(slots=4, precision="float32", entropy=True), workflow=wrapper).start(POLICY)
    engine.load(0, POLICY.state_dict())
    tasks = Deals() if isinstance(inside, SelfPlay) else rema().tasks
    for sample in range(4):
        engine.submit(Request(group=0, task=tasks[0], sample=sample, sampling=Sampling(max_length=24), seed=0))
    outcomes = [item.outcome for _, item in drained(engine).items()]
    acted = {row.role for outcome in outcomes if isinstance(outcome, Episode) for row in outcome.rows}
    assert acted and acted <= inside.players  # a match may end with the first action


@pytest.mark.parametrize(
    "make", [lambda w: Branching(inside=w), lambda w: Guided(others=w), lambda w: Tempered(inside=w)]
)
def test_what_the_workflow_inside_cannot_use_is_refused_before_the_run(make):
    with pytest.raises(ValueError, match="completion"):
        make(Demonstrated()).accepts(Task(id="t", prompt="1 + 1 ="))


def test_the_new_form_is_read_from_a_command_line():
    read = config.read(Text("Dialogue(tool=Calculator(unreadable='!'), answers=2)"), AbstractWorkflow, "workflow")
    assert isinstance(read, Dialogue) and read.answers == 2 and read.tool.unreadable == "!"
