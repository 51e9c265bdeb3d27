"""Environments of gymnasium's interface that speak: which spaces are taken, what an action is, and that a policy acts in them."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import own_text

from gimbal.config import Text
from gimbal.environments.gym import Registered
from gimbal.environments.gym_text import TextGymnasium, TextGymnasiumTasks
from gimbal.recipes import load
from gimbal.records import Task
from gimbal.runtime.local import Trainer
from gimbal.workflows.dialogue import Dialogue

FILE = Path(own_text.__file__)
WAYS = {
    "class": f"{FILE}:Guess",
    "function": f"{FILE}:choices",
    "registered": f"{FILE}:OwnGuess-v0",
    "the class itself": own_text.Guess,
}


def begun(name):
    live = TextGymnasium(environment=WAYS[name]).open()
    assert live.reset(Task(id="t", seed=3), 7) == "guess from 1 to 20"
    return live


@pytest.mark.parametrize("name", WAYS)
def test_the_seed_of_the_task_alone_makes_what_is_wanted(name):
    def answers(task, other):
        live = TextGymnasium(environment=WAYS[name]).open()
        live.reset(task, other)
        return [live.step(str(guess)).observation for guess in (5, 10, 15)]

    assert answers(Task(id="a", seed=3), 0) == answers(Task(id="b", seed=3), 9)
    assert len({tuple(answers(Task(id="t", seed=seed), 0)) for seed in range(12)}) > 1


@pytest.mark.parametrize("turn", ["7", " 7\n"])
def test_a_text_is_the_action_and_white_space_around_it_is_not(turn):
    assert begun("class").step(turn).observation in ("higher", "lower", "right")


@pytest.mark.parametrize("turn", ["7", "I take 7.", "not 3 but 7"])
def test_a_choice_is_the_last_number_of_a_turn(turn):
    plain, other = begun("function"), begun("function")
    assert other.step(turn).observation == plain.step("7").observation


@pytest.mark.parametrize(
    ("name", "turn", "why"),
    [
        ("class", "seven", "'e' is not allowed"),
        ("class", "123", "3 characters, and 1 to 2 are allowed"),
        ("class", "", "0 characters, and 1 to 2 are allowed"),
        ("function", "0", "a number from 1 to 20 is one"),
        ("function", "21", "a number from 1 to 20 is one"),
        ("function", "none", "a number from 1 to 20 is one"),
    ],
)
def test_what_is_no_action_is_told_and_is_no_step(name, turn, why):
    live = begun(name)
    for _ in range(9):  # more than the environment has steps
        moment = live.step(turn)
        assert moment.observation.startswith("That is no action") and why in moment.observation
        assert (moment.calls, moment.errors, moment.reward, moment.ended) == (1, 1, 0.0, False)
    found = live.step("7")
    assert (found.calls, found.errors) == (1, 0)


def test_the_end_and_the_success_are_the_environments():
    live = begun("class")
    moments = [live.step(str(guess)) for guess in range(1, live._env.unwrapped.wanted + 1)][:6]
    cut = moments[-1].truncated
    assert cut or (moments[-1].terminated and moments[-1].success and moments[-1].reward == 1)
    assert all(moment.success is False for moment in moments[:-1])


def test_a_copy_goes_its_own_way():
    live = begun("class")
    other = live.fork()
    for _ in range(5):
        other.step("1")
    assert live._env.unwrapped.asked == 0 and other._env.unwrapped.asked == 5


def test_a_reward_that_is_no_number_is_refused():
    live = TextGymnasium(environment=f"{FILE}:Endless").open()
    live.reset(Task(id="t"), 0)
    with pytest.raises(ValueError, match="returned the reward nan; it must be a finite number"):
        live.step("7")


def test_what_shows_or_takes_no_text_is_refused_with_the_way_out():
    with pytest.raises(
        ValueError, match=r"CartPole-v1 shows Box.*a text \(Text\) is to be shown.*tasks\.environment=NAME"
    ):
        TextGymnasium(environment="CartPole-v1").open()
    with pytest.raises(ValueError, match=r"takes Text.*tasks=\"TextGymnasiumTasks\(environment='.*Guess'\)"):
        Registered(source=WAYS["class"]).open()
    with pytest.raises(ValueError, match=r"Numb\.step returned the observation 3; its observation_space is a Text"):
        live = TextGymnasium(environment=f"{FILE}:Numb").open()
        live.reset(Task(id="t"), 0)
        live.step("1")


def test_the_same_index_is_the_same_task():
    one, other = (TextGymnasiumTasks(environment=WAYS["class"]) for _ in range(2))
    first = {index: one[index] for index in (0, 1, 5)}
    assert first == {index: other[index] for index in (5, 0, 1)}
    assert len({one[index].id for index in range(4)}) == len({one[index].seed for index in range(4)}) == 4


def test_without_a_chat_a_task_is_text_and_a_model_without_a_template_acts(single_thread):
    one = TextGymnasiumTasks(environment=WAYS["class"], system="Guess.")
    chat, text = one[0], replace(one, chat=False)[0]
    assert chat.columns["messages"] == [{"role": "system", "content": "Guess."}] and not text.columns
    assert chat.seed == text.seed and (chat.prompt, text.prompt) == ("", "Guess.\n")
    with pytest.raises(ValueError, match="give chat=False"):
        replace(one, system="")
    tool = Dialogue(tool=TextGymnasium(environment=WAYS["class"]))
    run = replace(load("grpo", {}), tasks=replace(one, chat=False), workflow=tool, rewards=(), held_out=None)
    trainer = Trainer(replace(run, steps=1, prompts_per_step=1, num_generations=2, max_staleness=0, threads=1))
    metrics, groups, _ = trainer.advance()
    trainer.close()
    assert groups[0].episodes[0].task.prompt == "Guess.\nguess from 1 to 20" and metrics["tool/calls"] > 0


def test_a_policy_acts_in_one_by_one_word(single_thread):
    told = Text(f"TextGymnasiumTasks(environment='{WAYS['class']}')")
    run = load("terminal", {"tasks": told})
    assert run.workflow.tool == TextGymnasium(environment=WAYS["class"])
    run = replace(run, steps=1, prompts_per_step=2, num_generations=2, max_staleness=0, held_out=None, threads=1)
    trainer = Trainer(run)
    metrics, groups, _ = trainer.advance()
    trainer.close()
    assert metrics["tool/calls"] > 0 and metrics["tool/failed_frac"] > 0, "it writes programs, which are no numbers"
    assert not [name for name in metrics if name.startswith("drops/rollouts/environment")]
    seen = groups[0].episodes[0].task.columns["messages"][-1]
    assert seen == {"role": "user", "content": "guess from 1 to 20"}
