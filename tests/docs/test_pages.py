"""The commands and files of the how-to pages do what the pages say, in an empty directory."""

import json
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import blocks
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "environments"))
import hermes

from gimbal.cli import main
from gimbal.environments.demonstrations import training_tasks

MODELS = [("STUDENT", "gimbal-tiny"), ("TEACHER", "gimbal-tiny-teacher")]
STAGES = "--keep texts|texts.jsonl|runs/first"  # commands that need each other
ROWS = '{"prompt": "2 + 2 =\\n", "answer": "4"}\n{"prompt": "30 + 12 =\\n", "answer": "42"}\n'
BREVITY = "def brevity(completions, **columns):\n    return [1 - min(len(text), 100) / 100 for text in completions]\n"


class Judge(BaseHTTPRequestHandler):
    """Gives 7 of 10 to everything."""

    keys: list = []  # noqa: RUF012

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.keys.append(self.headers.get("Authorization"))
        body = json.dumps({"choices": [{"message": {"content": "Score: 7"}}]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        return None


@pytest.fixture
def judge():
    with HTTPServer(("127.0.0.1", 0), Judge) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()


@pytest.fixture
def desk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JUDGE_KEY", "k-7391")
    Path("rows.jsonl").write_text(ROWS)
    Path("heldout.jsonl").write_text(ROWS)
    return tmp_path


@pytest.mark.slow
def test_the_program_of_the_readme_runs(desk):
    text = (Path(__file__).parents[2] / "README.md").read_text()
    program = re.search(r"```python\n(import re\n.*?)```", text, re.S)[1]
    for said, small in (("path/to/model", "gimbal-tiny"), ("steps=100", "steps=1"), ("range(2, 50)", "range(2, 5)")):
        assert said in program
        program = program.replace(said, small)
    Path("program.py").write_text(program)
    done = subprocess.run([sys.executable, "program.py"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.split()[-1]) == Path("runs/stable-0")


def run(page, capsys, replaced=(), dry=False, given=(), only=""):
    """Every command of a page (that ``only`` matches), with small sizes, or as far as what would be done; all that was said."""
    failed, heard = [], []
    for line in filter(re.compile(only).search, blocks.commands(page)):
        for before, after in (("model=PATH ", ""), *replaced):
            line = line.replace(before, after)
        words = blocks.words_of(line)
        if not words or words[0] not in ("train", "eval"):
            continue
        if "--seeds" in words:
            words = words[: words.index("--seeds")]
        if words[0] == "train" and not {"--dry-run", "--help"} & set(words):
            words = [*words, "--dry-run"] if dry else blocks.small(words, given)
        status = main(words)
        said = capsys.readouterr()
        heard.append(said.out + said.err)
        if status:
            failed.append(f"{line}\n{words}\n{heard[-1]}")
    assert heard and failed == [], "\n".join(failed)
    return heard


@pytest.mark.slow
def test_rewards_judges_and_secrets(desk, single_thread, judge, capsys):
    page = blocks.read("reward.md")
    blocks.write_files(page, desk)
    Path("mine.py").write_text(Path("mine.py").read_text() + BREVITY)
    heard = run(page, capsys, [("http://127.0.0.1:8000/v1", judge), *MODELS], only=f"^(?!.*({STAGES}))")
    assert len(heard) >= 7 and "Bearer k-7391" in Judge.keys and None in Judge.keys
    saved = "".join(file.read_text() for file in Path("runs").glob("*/recipe.yaml"))
    assert "JUDGE_KEY" in saved and "k-7391" not in saved


@pytest.mark.slow
def test_a_teachers_texts_and_then_its_verdicts(desk, single_thread, capsys):
    """One run starts from another's model, and that from texts in a file: on sums that the teacher solves."""
    page = blocks.read("reward.md")
    blocks.write_files(page, desk)
    rows = ({"prompt": task.prompt, "answer": task.answer} for task in training_tasks(size=12))
    Path("rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    heard = run(page, capsys, MODELS, given={"max_length": "64"}, only=STAGES)
    assert len(heard) == 3 and all(Path(f"runs/{name}/model").is_dir() for name in ("first", "paced_opd-0"))


@pytest.mark.slow
def test_parts_of_your_own(desk, single_thread, capsys):
    page = blocks.read("method.md")
    blocks.write_files(page, desk)
    blocks.write_files(blocks.read("reward.md"), desk)
    run(page, capsys, [("MODEL", "gimbal-tiny")])
    steps = [json.loads(line) for line in Path("runs/grpo-0/metrics.jsonl").read_text().splitlines()]
    assert any(key.endswith("gate") for key in steps[0]), "the loss's own metric is kept"
    known = {key for file in Path("runs").glob("grpo-0*/metrics.jsonl") for key in json.loads(file.read_text())}
    assert {"curriculum/Shortest/solved", "budget/Sparing/known"} <= known


@pytest.mark.slow
def test_memory_and_when_it_does_not_learn(desk, single_thread, capsys):
    blocks.write_files(blocks.read("reward.md"), desk)
    for name in ("memory.md", "not-learning.md"):
        run(blocks.read(name), capsys, dry=True)  # test_from_trl trains with these keys
    assert main(blocks.small(["train", "stable", "tasks=rows.jsonl", "reward=mine.py:score"])) == 0
    assert main(["doctor", "runs/stable-0"]) == 0


@pytest.mark.slow
def test_a_terminal(desk, single_thread, capsys):
    """With a chat model whose template offers tools; the block of Python writes tasks that it may train on."""
    pytest.importorskip("pydantic_monty")
    page = blocks.read("terminal.md")
    blocks.write_files(page, desk)
    model = hermes.saved(desk / "model")
    page = page.replace("Bubblewrap()", "Monty()").replace("model=PATH", f"model={model}")
    run(page, capsys)
    steps = [json.loads(line) for line in Path("runs/terminal-0/metrics.jsonl").read_text().splitlines()]
    assert {"tool/calls", "time/tool", "pass_rate"} <= set(steps[0])
    (code,) = [code for language, _, code in blocks.blocks(page) if language == "python"]
    exec(compile(code, "terminal.md", "exec"), {})
    assert "'kept': 40" in capsys.readouterr().out
    words = ["train", "terminal", f"model={model}", "tasks=vowels.jsonl"]
    assert main(blocks.small(words)) == 0


@pytest.mark.slow
def test_the_agent_of_the_page_is_trained(desk, single_thread, capsys):
    pytest.importorskip("openai")
    page = blocks.read("agent.md")
    blocks.write_files(page, desk)
    heard = run(page, capsys, [('"node agent.js"', "agent.py:solve")], given={"max_length": "64"})
    assert len(heard) == 5 and all("1 step" in said for said in heard)
    assert (desk / "runs/stable-0/model/model.safetensors").is_file()
