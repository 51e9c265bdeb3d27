"""A judge sees what a policy drew: what an endpoint is sent, in which order, and that no text of the policy's stands for a picture."""

import base64
import io
import sys
from dataclasses import replace
from pathlib import Path

import made
import numpy as np
import pytest
import torch
from PIL import Image
from test_judge import Server, says
from test_samples import group_of as pictures_of

sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))

import blocks

from gimbal.cli import main
from gimbal.ops.scales import spelled
from gimbal.policies.commits import MaskedSampling
from gimbal.policies.loading import SCALES
from gimbal.policies.masked import MaskedLM
from gimbal.records import Episode, Group, Task
from gimbal.rewards.asking import Pictured
from gimbal.rewards.checklist import Checklist
from gimbal.rewards.judge import JudgeScore

DRAWN_KD = torch.linspace(-1, 1, 4)[:, None].expand(4, 16)


@pytest.fixture
def serve():
    live = []

    def start(script):
        live.append(Server(script))
        return live[-1]

    yield start
    for server in live:
        server.live.shutdown()
        server.live.server_close()


def grey(url):
    """The picture behind a data: URL, as rows of levels from 0 to 255."""
    kind, _, data = url.partition(",")
    assert kind == "data:image/png;base64"
    image = Image.open(io.BytesIO(base64.b64decode(data)))
    return torch.from_numpy(np.array(image))


def test_an_endpoint_is_sent_the_question_with_the_picture_where_the_template_has_it(serve):
    server = serve(lambda content: says(f"Score: {int(grey(content[1]['image_url']['url']).float().mean()) / 25.5}"))
    reward = server.reward(template="Asked for {prompt} Drawn: {picture} How good is it?")
    task = Task(id="t", prompt="a four.")
    assert reward(pictures_of(DRAWN_KD, task)) == pytest.approx([0.0, 1 / 3, 2 / 3, 1.0], abs=1e-6)
    contents = [request["body"]["messages"][-1]["content"] for request in server.seen]
    assert len(contents) == 4
    for content in contents:
        assert [part["type"] for part in content] == ["text", "image_url", "text"]
        assert (content[0]["text"], content[2]["text"]) == ("Asked for a four. Drawn: ", " How good is it?")
        assert grey(content[1]["image_url"]["url"]).shape == (4, 4)


def test_equal_pictures_are_asked_about_once_and_a_bare_picture_is_one_part(serve):
    server = serve(lambda content: says(f"Score: {len(content)}"))
    assert server.reward(template="{picture}")(pictures_of(DRAWN_KD[[0, 1, 0]])) == [0.1] * 3 and len(server.seen) == 2


def test_a_template_without_a_picture_sends_plain_text(serve):
    server = serve(lambda content: says("Score: 5" if isinstance(content, str) else "?"))
    assert server.reward(template="{prompt}")(pictures_of(DRAWN_KD[:1])) == [0.5]


def test_a_stream_shows_all_its_blocks_and_the_words_of_its_episode_stand_for_no_picture():
    asked = []

    def judge(question):
        asked.append(question)
        return 0.5

    blocks = pictures_of(DRAWN_KD[:3]).rollouts
    words = made.rollout(text="{picture} data:image/png;base64,AAAA")
    rows = tuple(replace(row, sample=0, row=place) for place, row in enumerate((*blocks, words)))
    both = Group(index=0, task=made.TASK, episodes=(Episode(rows=rows),))
    assert JudgeScore(judge=judge, template="{completion}|{picture}|{prompt}")(both) == [0.5]
    (question,) = asked
    assert isinstance(question, Pictured) and len(question.texts) == 2 and len(question.pictures) == 3
    levels = [int(grey(picture).float().mean()) for picture in question.pictures]
    assert levels == [0, 85, 170]
    assert question.texts == (f"{words.text}|", f"|{made.TASK.asked}")


def test_a_picture_in_scales_is_shown_at_its_finest():
    policy = MaskedLM(model=SCALES).load()
    sampling = MaskedSampling(max_length=84, threshold=0.0, blocks=(4, 16, 64))
    text = spelled(torch.linspace(-1, 1, 64), (2, 4, 8))
    task = Task(id="t", columns={"label": 4}, prompt="4")
    row = made.rollout(task, decisions=policy.written(task, text, sampling), sample=0, text=text)
    question = JudgeScore(template="{picture}").question(task, Episode(rows=(row,)))
    assert isinstance(question, Pictured) and grey(question.pictures[0]).shape == (8, 8)
    assert grey(question.pictures[0])[0, 0] == 0 and grey(question.pictures[0])[7, 7] == 255


def test_rollouts_without_a_picture_are_refused_in_a_sentence(group_of):
    for rollouts in (group_of("a"), group_of("a b")):
        with pytest.raises(ValueError, match=r"shows \{picture\}.*policy=Denoiser\(\)"):
            JudgeScore(template="{picture}")(rollouts)


def test_a_checklist_asks_each_of_its_questions_about_the_picture(serve):
    def script(content):
        bright = int(grey(content[0]["image_url"]["url"]).float().mean()) > 100
        return says("yes" if bright == ("bright" in content[1]["text"]) else "no")

    server = serve(script)
    judge = server.reward(
        template="{picture}Is it {item}?", pattern=r"(yes|no)", words={"yes": 1.0, "no": 0.0}, low=0.0, high=1.0
    )
    task = Task(id="t", columns={"checklist": ("bright", "dark", "very bright")})
    assert Checklist(judge=judge)(pictures_of(DRAWN_KD[[0, 3]], task)) == pytest.approx([1 / 3, 2 / 3])


@pytest.mark.slow
def test_the_command_of_the_page_asks_about_pictures(serve, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    judge = serve(lambda content: says("Score: 5"))
    (line,) = (line for line in blocks.commands(blocks.read("denoising.md")) if "{picture}" in line)
    words = blocks.words_of(line.replace("http://127.0.0.1:8000/v1", judge.url))
    small = {"steps": "1", "prompts_per_step": "1", "num_generations": "2", "threads": "1", "held_out": "none"}
    assert main([*words, *(f"{key}={value}" for key, value in small.items())]) == 0, capsys.readouterr().err
    sent = [part["type"] for one in judge.seen for part in one["body"]["messages"][-1]["content"]]
    assert sent.count("image_url") == len(judge.seen) > 0
