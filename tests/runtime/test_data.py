"""Runs on people's own data: mixtures, streams and parquet resume to the same bits, and metrics tell sources apart."""

import json
import shutil
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from small import Digits, small_run

from gimbal import cli, recipes
from gimbal.config import Text
from gimbal.environments.dataset import Dataset, Rows
from gimbal.environments.forms import short
from gimbal.environments.mixture import Mixed
from gimbal.environments.split import parted
from gimbal.environments.tables import Rewritten
from gimbal.policies.token import CausalLM
from gimbal.recipes.core.sft import sft
from gimbal.report.files import deterministic
from gimbal.rewards.base import AbstractReward
from gimbal.runtime import checkpoint, compose
from gimbal.runtime.local import Trainer, run_local
from gimbal.runtime.looking import Unread
from gimbal.runtime.run import HeldOut
from gimbal.runtime.sources import digests, edited

SCORE = """
def score(prompts, completions, answer, **columns):
    texts = [text if isinstance(text, str) else text[-1]["content"] for text in completions]
    return [sum(letter in right for letter in text) / 9 for text, right in zip(texts, answer)]

def compute_score(data_source, solution_str, ground_truth, extra_info):
    assert data_source == "openai/gsm8k" and extra_info["index"] >= 0 and ground_truth.isdigit()
    return sum(letter in ground_truth for letter in solution_str) / 9
"""
SMALL = ["prompts_per_step=2", "num_generations=2", "max_length=4", "threads=1"]


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(SCORE)
    (tmp_path / "a.jsonl").write_text(
        "".join(f'{{"prompt": "{n} + 1 =\\n", "answer": "{n + 1}"}}\n' for n in range(12))
    )
    (tmp_path / "b.csv").write_text("prompt,answer\n" + "".join(f"{n} - 1 =,{n - 1}\n" for n in range(5)))
    return tmp_path


def written(directory):
    return [deterministic(json.loads(line)) for line in (directory / "metrics.jsonl").read_text().splitlines()]


def resumed_alike(run, place):
    run_local(run, place / "whole")
    shutil.copytree(place / "whole", place / "cut")
    shutil.rmtree(checkpoint.newest(place / "cut"))
    run_local(run, place / "cut", resume=True)
    assert written(place / "whole") == written(place / "cut")
    return written(place / "whole")


@pytest.mark.slow
def test_a_mixture_resumes_and_tells_its_sources_apart(place, single_thread):
    tasks, held = parted(short("a.jsonl*0.5,b.csv*0.5"), 2.0)
    run = small_run(tasks=tasks, held_out=HeldOut(tasks=held, samples=1, every=2), max_staleness=1, steps=4)
    rows = resumed_alike(run, place)
    for row in rows:
        assert row["source/a/frac"] + row["source/b/frac"] == 1
        both = [row[f"source/{name}/frac"] * row.get(f"source/{name}/reward", 0.0) for name in "ab"]
        assert sum(both) == pytest.approx(row["reward/mean"], abs=1e-6)
    own = [rows[1][f"eval/source/{name}/pass@1"] for name in "ab"]
    assert sum(own) / 2 == pytest.approx(rows[1]["eval/pass@1"])


@pytest.mark.slow
def test_a_stream_resumes(place, single_thread, monkeypatch):
    library = pytest.importorskip("datasets")
    monkeypatch.setattr(library.config, "HF_DATASETS_CACHE", place / "hf")
    tasks = Dataset(path="a.jsonl", streaming=True, buffer=4, epoch_size=7)
    resumed_alike(small_run(tasks=tasks, max_staleness=1, steps=4), place)


@pytest.mark.slow
def test_verls_parquet_trains_as_it_is(place, single_thread, monkeypatch, capsys):
    library = pytest.importorskip("datasets")
    monkeypatch.setattr(library.config, "HF_DATASETS_CACHE", place / "hf")
    rows = [
        {
            "data_source": "openai/gsm8k",
            "prompt": [{"role": "user", "content": f"{number} + 1 ="}],
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": str(number + 1)},
            "extra_info": {"split": "train", "index": number},
        }
        for number in range(8)
    ]
    library.Dataset.from_list(rows).to_parquet("train.parquet")
    policy = CausalLM().load()
    policy.tokenizer.chat_template = "{% for message in messages %}{{ message.content }}\n{% endfor %}"
    policy.save(place / "model")
    words = [
        "model=model",
        "tasks=train.parquet",
        "reward=mine.py:compute_score",
        "held_out=0.25",
        "held_out.samples=1",
    ]
    assert cli.main(["train", "grpo", *words, *SMALL, "steps=2"]) == 0, capsys.readouterr().err
    assert len(written(Path("runs/grpo-0"))) == 2
    assert cli.main(["train", "--resume", "runs/grpo-0", "steps=3"]) == 0
    assert len(written(Path("runs/grpo-0"))) == 3


def test_tools_reach_the_chat_template():
    policy = CausalLM().load()
    names = "{% for tool in tools or [] %}{{ tool.function.name }} {% endfor %}"
    policy.tokenizer.chat_template = names + "{% for message in messages %}{{ message.content }}{% endfor %}"
    tool = {"type": "function", "function": {"name": "add"}}
    chat = [{"role": "user", "content": "hi"}]
    tasks = Rows(rows=[{"prompt": chat, "tools": [tool]}, {"prompt": chat}])
    assert [policy.decode(policy.encode_task(task)) for task in tasks] == ["add hi", "hi"]


def test_data_that_were_edited_are_told_on_a_resume(place):
    (place / "d").mkdir()
    (place / "d" / "x.jsonl").write_text('{"prompt": "x"}\n')
    run = small_run(tasks=short("{a.jsonl: 0.5, b.csv: 0.5}"), held_out=HeldOut(tasks=short("d")))
    before = {"sources": digests(run)}
    again = replace(run, tasks=short("{a.jsonl: 0.5, b.csv: 0.5}"), held_out=HeldOut(tasks=short("d")))
    assert edited(before, digests(again)) == []
    (place / "b.csv").write_text("prompt,answer\nother,1\n")
    (place / "d" / "y.jsonl").write_text('{"prompt": "y"}\n')
    (said,) = edited(before, digests(replace(again, tasks=short("a.jsonl,b.csv"), held_out=HeldOut(tasks=short("d")))))
    assert said.startswith("b.csv, d (its list of files) were edited since the checkpoint")


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ({"dataset_name": "a.jsonl", "eval_dataset": "b.csv"}, {"tasks": "a.jsonl", "held_out": "b.csv"}),
        ({"data.train_files": "a.jsonl", "data.val_files": "b.csv"}, {"tasks": "a.jsonl", "held_out": "b.csv"}),
        ({"dataset": "a.jsonl", "label_key": "label"}, {"tasks": "a.jsonl", "tasks.answer": "label"}),
    ],
)
def test_the_names_of_others(place, theirs, ours):
    def load(words):
        return recipes.load(
            "grpo", {"reward": Text("ExactAnswer()"), **{k: Text(v) for k, v in words.items()}}, lambda said: None
        )

    assert load(theirs) == load(ours)


def test_reward_weights_weigh_functions_and_parts(place):
    def load(**given):
        return recipes.load("grpo", {"tasks": Text("a.jsonl"), "held_out": None, **given}, lambda said: None)

    def longer(completions, **columns):
        return [1.0 for _ in completions]

    run = load(reward_funcs=[longer, Digits()], reward_weights=[0.5, 0.25])
    assert [(reward.name, reward.weight) for reward in run.rewards] == [("longer", 0.5), ("digits", 0.25)]
    run = load(reward_funcs=["mine.py:longer", Digits()], reward_weights=[0.5, 0.25])
    assert [reward.weight for reward in run.rewards] == [0.5, 0.25]
    with pytest.raises(ValueError, match="reward_weights has 1 weights for 2 rewards; give one for each"):
        load(reward_funcs=[longer, Digits()], reward_weights=[0.5])
    with pytest.raises(ValueError, match=r"give weights with the rewards: reward=f\.py:score\*0\.7"):
        load(reward=Text("f.py:a,f.py:b"), reward_weights=Text("[0.5, 0.5]"))


SPELLER = CausalLM().load()
UNSPELT = {
    "prompt": {"prompt": "1 é 2 =\n", "completion": "3"},
    "completion": {"prompt": "1 + 2 =\n", "completion": "ß"},
    "one of several": {"prompt": "1 + 2 =\n", "completion": ["3", "中"]},
    "messages": {"prompt": [{"role": "user", "content": "é"}], "completion": "3"},
    "answer of a chat": {
        "prompt": [{"role": "user", "content": "1"}],
        "completion": [{"role": "assistant", "content": "é"}],
    },
}


@pytest.mark.parametrize("where", UNSPELT)
def test_characters_that_the_vocabulary_lacks_are_told_once(where):
    plain = {"prompt": "1 + 2 =\n", "completion": "3"}
    told = unspelt([plain, UNSPELT[where], UNSPELT[where]])
    letter = next(letter for letter in ["é", "ß", "中"] if letter in str(UNSPELT[where]))
    assert len(told) == 1 and told[0].startswith(
        f"2 of 3 rows that were looked at have characters that this model's vocabulary lacks ({letter!r}); it reads each as <unk>"
    )
    assert not unspelt([plain])


def test_a_vocabulary_without_a_token_for_the_unknown_leaves_letters_out():
    found = Unread(SPELLER)
    found._tokenizer = SimpleNamespace(
        unk_token_id=None, unk_token=None, encode=lambda text, **how: [7] * (text != "é")
    )
    found.look(Rows(rows=[{"prompt": "1 + 2 =\n", "completion": "é"}])[0])
    (told,) = found.sentence()
    assert "lacks ('é'); it leaves them out: replace them" in told


def test_of_many_characters_some_are_named():
    (told,) = unspelt([{"prompt": "1 + 2 =\n", "completion": "éèêëàâäôöü"}])
    assert "and 2 more" in told and told.startswith("1 of 1")


def test_a_run_of_sft_tells_what_it_cannot_spell_before_its_first_step(single_thread):
    notes, row = [], {"prompt": "1 + 2 =\n", "completion": "drei ½"}
    run = replace(sft(), tasks=Rows(rows=[row]), held_out=None, steps=1, prompts_per_step=1, threads=1)
    Trainer(run, note=notes.append).close()
    assert [note for note in notes if "vocabulary lacks ('½')" in note and note.startswith("1 of 1 rows")]


def unspelt(rows):
    found = Unread(SPELLER)
    for row in rows:
        found.look(Rows(rows=[row])[0])
    return list(found.sentence())


def test_demonstrations_that_the_template_cannot_write_are_refused_before_the_first_step():
    policy, call = CausalLM().load(), {"type": "function", "function": {"name": "add", "arguments": {"a": 1}}}
    chat = [{"role": "user", "content": "1 + 2"}, {"role": "assistant", "tool_calls": [call]}]
    run = replace(sft(), tasks=Rows(rows=[{"messages": chat}]), held_out=None)
    plain = "{% for message in messages %}{{ message.content + eos_token }}{% endfor %}"
    policy.tokenizer.chat_template = plain
    with pytest.raises(
        ValueError, match="does not read tool_calls, and the answer of task row:0 has it: write the answer as text"
    ):
        compose.accepted(run, policy=policy)
    policy.tokenizer.chat_template = plain.replace("eos", "(message.tool_calls or [''])[0] | string + eos")
    assert not [told for told in compose.accepted(run, policy=policy) if "template" in told]


def test_held_out_rows_that_are_trained_on_are_counted(place):
    (place / "c.jsonl").write_text('{"prompt": "0 + 1 =\\n"}\n{"prompt": "new"}\n')
    mixed = Mixed(sets=(short("a.jsonl"), short("b.csv")), weights=(0.7, 0.3))
    both = small_run(tasks=mixed, held_out=HeldOut(tasks=short("c.jsonl")))
    assert [told for told in compose.accepted(both) if told.startswith("1 of 2 held-out tasks are also trained on")]
    same = replace(both, held_out=HeldOut(tasks=short("a.jsonl")), tasks=short("a.jsonl"))
    assert compose.accepted(same)[0].startswith("all 12 held-out tasks")
    tasks, held_out = parted(short("a.jsonl"), 0.2)
    assert not compose.accepted(replace(both, tasks=tasks, held_out=HeldOut(tasks=held_out)))


@dataclass(frozen=True, kw_only=True)
class WritesToTheRows(AbstractReward):
    """Digits; adds a row to the file at its fourth group, the last of the second step."""

    name: str = "digits"
    path: Path
    calls: list[int] = field(default_factory=list, compare=False)

    def __call__(self, group):
        self.calls.append(group.index)
        if len(self.calls) == 4:
            self.path.write_text(self.path.read_text() + '{"prompt": "more"}\n')
        return Digits()(group)


@pytest.mark.slow
def test_a_file_that_is_written_to_during_a_run_costs_no_step(single_thread, place):
    whole = small_run(tasks=short("a.jsonl"), steps=3, checkpoint_every=25)
    run_local(whole, place / "whole")
    before = (place / "a.jsonl").read_text()
    with pytest.raises(Rewritten, match=r"a.jsonl changed while it was in use; restore it"):
        run_local(replace(whole, rewards=(WritesToTheRows(path=place / "a.jsonl"),)), place / "cut")
    (place / "a.jsonl").write_text(before)
    run_local(replace(whole, tasks=short("a.jsonl")), place / "cut", resume=True)
    assert written(place / "whole") == written(place / "cut")


def test_with_fewer_rows_than_it_has_taken_a_run_cannot_go_on(single_thread, place):
    run_local(small_run(tasks=short("a.jsonl"), steps=2), place / "one")
    (place / "a.jsonl").write_text('{"prompt": "1"}\n{"prompt": "2"}\n')
    with pytest.raises(ValueError, match=r"there are 2 tasks now, and the run has taken 4 of this epoch"):
        run_local(small_run(tasks=short("a.jsonl"), steps=3), place / "one", resume=True)
