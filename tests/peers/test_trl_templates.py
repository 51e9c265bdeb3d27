"""Chat templates by TRL's checks and by ours (`make test-peers`): which keep what was said, and which show calls of tools."""

import sys
from pathlib import Path

import pytest

checks = pytest.importorskip("trl.chat_template_utils", reason="trl is not here: make test-peers installs it")
sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "zoo"))

from made import rollout
from zoo_families import FAMILIES, tokenizer_of

from gimbal.policies.prompts import for_template, rendered
from gimbal.policies.token import CausalLM
from gimbal.serve.exchanges import Exchange, Session

CALL = {"type": "function", "function": {"name": "add", "arguments": '{"number": 7}'}}
BODY = "{{ message.role + ':' + (message.content or '') }}"
SHOWN = "{% for call in message.tool_calls or [] %}{{ call.function.name }}{{ call.function.arguments | tojson }}{% endfor %}"
EACH = "{% for message in messages %}"
OPEN = "{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"
TEMPLATES = {  # beside those of the models that we build
    "all": EACH + BODY + SHOWN + OPEN,
    "no calls": EACH + BODY + OPEN,
    "names alone": EACH
    + BODY
    + "{% for call in message.tool_calls or [] %}{{ call.function.name }}{% endfor %}"
    + OPEN,
    "no answers of tools": EACH + "{% if message.role != 'tool' %}" + BODY + SHOWN + "{% endif %}" + OPEN,
    "the last only": "{% for message in messages[-1:] %}" + BODY + SHOWN + OPEN,
    "forgets": EACH + "{% if loop.last or message.role != 'assistant' %}" + BODY + SHOWN + "{% endif %}" + OPEN,
    "refuses tools": EACH
    + "{% if message.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}"
    + BODY
    + SHOWN
    + OPEN,
}
READ_IN_PART = {"names alone"}  # TRL also wants the arguments; ours is content if calls change the text


def tokenizers():
    tiny = CausalLM().load().tokenizer
    yield "gimbal-tiny", tiny
    for name, family in FAMILIES.items():
        if (tokenizer := tokenizer_of(family)).chat_template is not None:
            yield name, tokenizer
    for name, template in TEMPLATES.items():
        tokenizer = CausalLM().load().tokenizer
        tokenizer.chat_template = template
        yield name, tokenizer


ALL = dict(tokenizers())


@pytest.mark.parametrize("name", ALL)
def test_calls_of_tools_are_shown_or_refused(name):
    """TRL trains tools only by a template that shows a call, its arguments and its answer. Ours refuses a chat that has what is not."""
    chat = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "name": "add", "content": "8"},
    ]
    try:
        rendered(ALL[name], [for_template(message) for message in chat], None, "a chat")
        ours = True
    except ValueError as error:
        ours = False
        assert "does not read" in str(error) or "refuses a chat" in str(error)
    assert ours == (checks.supports_tool_calling(ALL[name]) or name in READ_IN_PART)


@pytest.mark.parametrize("name", ALL)
def test_an_answer_goes_on_where_the_template_keeps_what_was_said(name):
    """A session's next prompt continues from the tokens that were drawn exactly where the template writes them again as they were."""
    tokenizer = ALL[name]
    try:
        keeps = checks.is_chat_template_prefix_preserving(tokenizer)
    except Exception:  # of a template that refuses tools, by whose chat TRL judges
        keeps = None
    chat = [{"role": "user", "content": "one"}]

    def text(chat, open_):
        return tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=open_)

    prompt = text(chat, True)
    closed = text([*chat, {"role": "assistant", "content": "two"}], False)
    if not closed.startswith(prompt):
        assert keeps is False, "an answer is not written where it was asked for"
        return
    held = Session(name="s", exchanges=(Exchange(session="s", rollout=rollout(), text=closed),))
    chat += [{"role": "assistant", "content": "two"}, {"role": "user", "content": "three"}]
    goes_on = held.continued(text(chat, True)) is not None
    assert keeps is None or goes_on == keeps
