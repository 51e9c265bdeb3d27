"""TextArena's games: what a player is told, whose randomness it is, what fails, and seats that learn."""

import json
import random
from pathlib import Path

import pytest

pytest.importorskip("textarena", reason="textarena is not here: make test-environments installs it")
import sys

import torch

sys.path.insert(0, str(Path(__file__).parent))
import hermes
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from gimbal.cli import main
from gimbal.environments.base import Failure
from gimbal.environments.textarena import TextArena, TextArenaMatch, TextArenaTasks
from gimbal.records import Task
from gimbal.workflows.self_play import SelfPlay

TOWERS, GUESSES, BOARD = (
    TextArenaTasks(game=name) for name in ("TowerOfHanoi-v0", "GuessTheNumber-v0", "TicTacToe-v0-train")
)


def test_a_player_hears_the_game_and_not_itself():
    live = TextArena().open()
    begun = live.reset(TOWERS[0], 0)
    assert begun.startswith("You are playing Tower of Hanoi") and "A: [3, 2, 1]" in begun
    moved = live.step("I move [A C].")
    assert moved.observation.startswith("You moved disk 1 from A to C.") and (moved.calls, moved.errors) == (1, 0)
    wrong = live.step("A C")  # a larger disk on a smaller one; the package puts the brackets
    assert "invalid move" in wrong.observation and (wrong.errors, wrong.terminated) == (1, False)
    end = live.step("hm")
    assert end.terminated and end.reward == 0 and end.errors == 1


def test_each_game_has_its_own_randomness_and_leaves_that_of_the_process_alone():
    live, beside = TextArena().open(), TextArena().open()
    random.seed(5)
    before = random.getstate()
    live.reset(GUESSES[0], 0)
    beside.reset(GUESSES[1], 0)
    assert random.getstate() == before
    dice = TextArenaMatch().open()
    dice.reset(TextArenaTasks(game="PigDice-v0")[0], 0)
    fork = dice.fork()
    random.random()
    one = [dice.step("[roll]").observation for _ in range(4)]
    beside.step("[3]")
    assert one == [fork.step("[roll]").observation for _ in range(4)]


def test_a_seat_that_moves_wrongly_twice_loses_and_the_limit_of_seats_is_the_games():
    table = TextArenaMatch().open()
    assert table.reset(BOARD[0], 0).seat == 0
    other = table.step("[4]").observation
    assert other.seat == 1 and "placed their symbol (O) in cell 4" in other.seen
    again = table.step("[4]")
    assert again.observation == other and again.errors == 1, "a -train game does not show why"
    end = table.step("[9]")
    assert end.terminated and end.observation.returns == (1.0, -1.0)
    table.reset(TextArenaTasks(game="TicTacToe-v0")[0], 0)
    assert "Must be between 0 and 8" in table.step("[9]").observation.seen
    with pytest.raises(Failure, match=r"TicTacToe-v0-train does not begin with 3 players: .*TextArenaMatch\(seats=N\)"):
        TextArenaMatch(seats=3).open().reset(BOARD[0], 0)
    with pytest.raises(Failure, match="TicTacToe-v0-train does not begin with 1 player: "):
        TextArena().open().reset(BOARD[0], 0)
    with pytest.raises(ValueError, match="seats=1; a game of one player"):
        TextArenaMatch(seats=1)


def test_what_is_no_game_is_named():
    with pytest.raises(ValueError, match="no game 'TicTacToe'"):
        TextArenaTasks(game="TicTacToe")[0]
    with pytest.raises(ValueError, match="no column game"):
        TextArena().open().reset(Task(id="x"), 0)
    with pytest.raises(
        Failure, match="Wordle-v0 does not begin with 1 player: LookupError"
    ):  # of words that are fetched
        TextArena().open().reset(TextArenaTasks(game="Wordle-v0")[0], 0)


def squares(place: Path) -> Path:
    """A small random chat model that says nothing but digits, brackets and a blank, and reads all else as one token."""
    words = ["<end>", "<unk>", *"012345678 []OX|,"]
    tokenizer = Tokenizer(models.WordLevel({word: at for at, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<end>",
        pad_token="<end>",
        unk_token="<unk>",
        chat_template=hermes.TEMPLATE,
    )
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = CONFIG_MAPPING["qwen3"](
        vocab_size=len(words), num_key_value_heads=1, head_dim=16, max_position_embeddings=8192, eos_token_id=0, **shape
    )
    AutoModelForCausalLM.from_config(config).save_pretrained(place)
    fast.save_pretrained(place)
    return place


@pytest.mark.slow  # 30 steps
def test_seats_learn_to_move_by_the_rules(tmp_path, monkeypatch):
    """From scratch, with one token a move: fewer moves are against the rules."""
    monkeypatch.chdir(tmp_path)
    words = f"train grpo model={squares(tmp_path / 'model')} rewards=() max_length=1 steps=30 prompts_per_step=2 num_generations=16"
    own = ["tasks=TextArenaTasks(game='TicTacToe-v0-train')", "workflow=SelfPlay(game=TextArenaMatch())"]
    assert main([*words.split(), *own, "advantage=SeatCentered()", "lr=0.01", "threads=1", "--runs", "runs"]) == 0
    (metrics,) = Path("runs").glob("*/metrics.jsonl")
    rows = [json.loads(row) for row in metrics.read_text().splitlines()]
    wrong = [row["tool/failed_frac"] for row in rows if "tool/failed_frac" in row]
    print(wrong)
    assert len(wrong) == 30 and sum(wrong[-5:]) < 0.7 * sum(wrong[:5]), wrong
    assert SelfPlay(game=TextArenaMatch(seats=3)).players == {"seat 0", "seat 1", "seat 2"}
