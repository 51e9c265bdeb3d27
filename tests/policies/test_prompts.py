"""What of a task reaches the model: a template that leaves out tools or calls is refused, parts of text are joined."""

import pytest

from gimbal.environments.dataset import Rows
from gimbal.policies.token import CausalLM, Sampling
from gimbal.records import Task
from gimbal.runtime.looking import Copied
from gimbal.workflows.base import Attempt, Write
from gimbal.workflows.demonstrated import Demonstrated
from gimbal.workflows.words import Words

PLAIN = "{% for message in messages %}{{ message.role + ':' + message.content + '\n' }}{% endfor %}"
TOOLS = "{% for tool in tools or [] %}{{ tool.function.name }} {% endfor %}"
CALL = "{% for call in message.tool_calls or [] %}{{ call.function.arguments.a }} {% endfor %}"
CALLS = "{% for message in messages %}" + CALL + "{% endfor %}"
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}
CHAT = [{"role": "user", "content": "hi"}]
CALLED = [
    *CHAT,
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"a": 7}'}}],
    },
    {"role": "tool", "content": "7", "tool_call_id": "1"},
]


@pytest.fixture(scope="module")
def policy():
    return CausalLM().load()


def asked(policy, template, **columns):
    policy.tokenizer.chat_template = template
    return policy.decode(policy.encode_task(Task(id="t", prompt="", columns=columns)))


@pytest.mark.parametrize(
    ("columns", "template", "missing"),
    [({"messages": CHAT, "tools": [TOOL]}, TOOLS, "tools"), ({"messages": CALLED}, CALLS, "tool_calls")],
)
def test_what_the_template_leaves_out_is_refused(policy, columns, template, missing):
    with pytest.raises(ValueError, match=f"does not read {missing}, and task t has them: the model would not see them"):
        asked(policy, PLAIN, **columns)
    assert asked(policy, template + PLAIN, **columns).startswith(("add user:hi", "7 user:hi"))


@pytest.mark.parametrize("role", ["system", "tool"])
def test_a_role_that_the_template_swallows_is_refused(policy, role):
    some = "{% for message in messages if message.role != '" + role + "' %}{{ message.content }}{% endfor %}"
    chat = [{"role": "system", "content": "Be brief."}, *CHAT, {"role": "tool", "content": "7"}]
    with pytest.raises(ValueError, match=f"does not read messages of the role {role}, and task t has them"):
        asked(policy, some, messages=chat)
    assert asked(policy, PLAIN, messages=chat) == "system:Be brief.\nuser:hi\ntool:7\n"


def test_a_template_that_cannot_do_without_calls_reads_them(policy):
    strict = "{% if not messages[1].tool_calls %}{{ raise_exception('no call') }}{% endif %}" + PLAIN
    assert asked(policy, strict, messages=CALLED).endswith("tool:7\n")


def test_parts_of_text_are_joined_and_others_refused(policy):
    parts = [{"type": "text", "text": "how "}, {"type": "text", "text": "many"}]
    chat = [{"role": "user", "content": parts}]
    assert asked(policy, PLAIN, messages=chat) == "user:how many\n"
    for content, what in (
        ([*parts, {"type": "image"}], "a part of type image"),
        ([{"type": "image_url", "image_url": {"url": "a.png"}}], "a part of type image_url"),
        (None, "the content None"),
    ):
        with pytest.raises(ValueError, match=f"message 1 of task t has {what}; qwen3 is shown text here"):
            asked(policy, PLAIN, messages=[{"role": "user", "content": content}])


def test_what_raises_in_a_template_is_a_sentence(policy):
    with pytest.raises(ValueError, match=r"refuses task t, of the roles user: can only concatenate"):
        asked(policy, "{{ messages[0].content + 1 }}", messages=CHAT)


def test_images_with_token_ids_are_refused_too(policy):
    with pytest.raises(ValueError, match="has images, and qwen3 is given none here"):
        policy.encode_task(Task(id="t", prompt="", columns={"prompt_ids": [5], "images": ["a.png"]}))


def test_a_text_with_tools_is_doubted_once(policy):
    texts = Rows(rows=[{"prompt": "hi", "tools": [TOOL]}, {"prompt": "hi", "tools": ["mine"]}, {"prompt": "hi"}])
    policy = CausalLM().load()
    assert ["tasks.chat=true" in policy.accepts(task, 8) for task in texts] == [True, False, False]


def test_tools_count_for_the_length_of_a_prompt(policy):
    """Encoding is spared for rows that fit by their bytes alone; tools were not counted."""
    policy.tokenizer.chat_template = "{{ tools | tojson }}" + PLAIN
    long = {**TOOL, "function": {**TOOL["function"], "description": "x " * policy.context}}
    tasks = Rows(rows=[{"prompt": CHAT, "tools": [tool]} for tool in (TOOL, long)])
    assert policy.accepts(tasks[0], 8) == ""
    with pytest.raises(ValueError, match="tokens; this model holds at most"):
        policy.accepts(tasks[1], 8)


def test_a_tokenizer_of_another_model_is_told_wherever_its_ids_come_from():
    """Ids without an embedding would end the run within the model, or be another's memory on a GPU."""
    other = CausalLM().load()
    ids = other.tokenizer.encode("zebra", add_special_tokens=False)
    other.model.resize_token_embeddings(max(ids))
    for ask in (
        lambda: other.encode_told(None, "zebra"),
        lambda: other.encode_task(Task(id="t", prompt="zebra")),
        lambda: Words(other, "Demonstrated").written(
            Write(text="zebra"),
            Attempt(group=0, task=Task(id="t", prompt="a"), samples=(0,), sampling=Sampling(), seed=0),
            0,
        ),
    ):
        with pytest.raises(ValueError, match=f"has the token {max(ids)}; this model knows 0 to {max(ids) - 1}"):
            ask()


ADD = {"a": 7, "b": 2}
SAID = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"type": "function", "function": {"name": "add", "arguments": ADD}}],
}
TWICE = {**SAID, "tool_calls": [*SAID["tool_calls"], {"function": {"name": "look", "arguments": {"at": 1}}}]}
WRITES = (
    "{% for message in messages %}{{ message.role + ':' + message.content }}"
    "{% for call in message.tool_calls or [] %}{{ call.function.name + ' ' + call.function.arguments | tojson }}{% endfor %}"
    "{{ eos_token + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}"
)


def learned(policy, template, said, **columns):
    """The row of a demonstration: its prompt, what is trained on, and the token that ends it."""
    policy.tokenizer.chat_template = template
    task = Task(id="t", prompt="" if columns else "hi", columns={**columns, "completion": said})
    Copied(policy).look(task, Demonstrated())
    attempt = Attempt(group=0, task=task, samples=(0,), sampling=Sampling(), seed=0)
    row = Words(policy, "Demonstrated").written(Write(text=said), attempt, 0)
    ids, start = row.decisions.ids_NL[0].tolist(), int(row.decisions.prompt_N[0])
    assert ids[:start] == policy.encode_task(task) and row.text == policy.decode(ids[start:])
    return policy.decode(ids[:start]), policy.decode(ids[start:-1]), ids[-1]


def test_a_call_is_learned_as_the_model_would_write_it(policy):
    asked, answer, end = learned(policy, WRITES, SAID, messages=CHAT)
    assert (asked, answer) == ("user:hi\nassistant:", 'add {"a": 7, "b": 2}') and end in policy.end_ids
    text = learned(policy, WRITES, 'add {"a": 7, "b": 2}', messages=CHAT)
    assert text == (asked, answer, end), "as the same answer that is written as text"
    assert learned(policy, WRITES, {**SAID, "content": "So: "}, messages=CHAT)[1] == 'So: add {"a": 7, "b": 2}'
    quoted = [{"type": "function", "function": {"name": "add", "arguments": '{"a": 7, "b": 2}'}}]
    assert learned(policy, WRITES, {**SAID, "tool_calls": quoted}, messages=CHAT) == text
    endless = WRITES.replace("{{ eos_token + '\n' }}", "")
    assert learned(policy, endless, SAID, messages=CHAT)[1:] == text[1:], "a template without an end is given one"


@pytest.mark.parametrize(
    ("template", "said", "sentence"),
    [
        (
            WRITES.replace("tool_calls", "calls"),
            SAID,
            "does not read tool_calls, and the answer of task t has it: write the answer",
        ),
        (WRITES, {**SAID, "thinking": "hm"}, "does not read thinking, and the answer of task t has it"),
        (WRITES.replace("call.function.arguments", "{}"), SAID, "does not read the arguments of call 1 of tool_calls"),
        (
            WRITES.replace("message.tool_calls or []", "(message.tool_calls or [])[:1]"),
            TWICE,
            "does not read call 2 of tool_calls",
        ),
        (
            WRITES.replace("message.content", "(message.content if not message.tool_calls else '')"),
            {**SAID, "content": "I add."},
            "does not read content beside calls or thoughts",
        ),
        (
            WRITES.replace("'assistant:'", "'model:'"),
            SAID,
            "does not write the answer of task t after its generation prompt",
        ),
        (
            WRITES + "{% if not add_generation_prompt %}over{% endif %}",
            SAID,
            "writes 'over' behind the end of the answer of task t",
        ),
        (
            WRITES + "{% if not add_generation_prompt %}{{ 1 + 'a' }}{% endif %}",
            SAID,
            "refuses the answer of task t: .*write the",
        ),
    ],
)
def test_an_answer_that_the_template_cannot_write_is_refused(policy, template, said, sentence):
    with pytest.raises(ValueError, match=sentence):
        learned(policy, template, said, messages=CHAT)


def test_a_call_that_answers_a_text_is_refused(policy):
    with pytest.raises(
        ValueError,
        match=r"has tool_calls, which only a chat template can write.*tasks\.chat=true",
    ):
        learned(policy, WRITES, SAID)
