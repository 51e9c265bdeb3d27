"""Equations of docstrings as LaTeX: what is read, what is left alone."""

import importlib.util
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
spec = importlib.util.spec_from_file_location("typeset", DOCS / "typeset.py")
typeset = importlib.util.module_from_spec(spec)
spec.loader.exec_module(typeset)
FIELDS = ("clip_low", "clip_high", "lam", "gamma", "eps", "floor")


def read(text):
    return [latex for _, _, latex in typeset.equations(text, FIELDS)]


@pytest.mark.parametrize(
    ("text", "latex"),
    [
        ("r = exp(logprob - proximal)", r"r = \exp\left(\mathrm{logprob} - \mathrm{proximal}\right)"),
        ("delta_t = r_t + gamma V_{t+1} - V_t;  A_t = 0", r"\delta_{t} = r_{t} + \gamma \, V_{t+1} - V_{t}"),
        (
            "A_i = (R_i - mean_g R) / (std_g R + eps)",
            r"A_{i} = \frac{R_{i} - \operatorname{mean}_{g} R}{\operatorname{std}_{g} R + \epsilon}",
        ),
        (
            "A <- (A - mean) / (std + eps)",
            r"A \leftarrow \frac{A - \operatorname{mean}}{\operatorname{std} + \epsilon}",
        ),
        ("c = 1 - clip_low", r"c = 1 - \mathrm{clip\_low}"),
        (
            "tok(x) = sum(m x) / sum(m)",
            r"\operatorname{tok}\left(x\right) = \frac{\sum\left(m \, x\right)}{\sum\left(m\right)}",
        ),
        ("b = sum_j a_j R_j / sum_j a_j", r"b = \frac{\sum_{j} a_{j} \, R_{j}}{\sum_{j} a_{j}}"),
        ("h(e) = e^2 / 2", r"h\left(e\right) = \frac{e^{2}}{2}"),
        ("loss = -logprob A, with A constant", r"\mathrm{loss} = -\mathrm{logprob} \, A"),
    ],
)
def test_an_equation_is_read_as_it_is_meant(text, latex):
    assert read(text)[0] == latex


@pytest.mark.parametrize(
    "text",
    [
        "value after t learner steps = max(initial, low)",
        "V(after the step) = V(before it)",
        "the mean of A = of all others is taken",
        "f(group) -> list[float | None]",
        "score = mean of all that finished",
        "A_i = R_i - nothing known here",
    ],
)
def test_prose_is_left_as_it_is(text):
    assert read(text) == []


def test_marks_of_markdown_are_escaped_and_code_is_kept():
    assert typeset.markdown("a * b < ``c_d`` ~9 $5") == r"a \* b &lt; `c_d` &#126;9 \$5"


def test_lists_and_indented_lines_keep_their_lines():
    text, count = typeset.docstring("One.\n\n- at L_i = 1: same.\n\n    a = b\n\nA = 0 throughout.", FIELDS)
    assert (text, count) == ("One.\n\n- at L_i = 1: same.\n\n```text\n    a = b\n```\n\nA = 0 throughout.", 0)


def test_most_methods_that_define_something_have_their_equation_typeset():
    pages = [file.read_text(encoding="utf-8") for file in (DOCS / "methods").glob("[A-Z]*.md")]
    learned = [
        page
        for page in pages
        if page.split("\n")[2].startswith(("Objective", "Advantage", "Correction", "Aggregation"))
    ]
    assert sum("$$" in page for page in pages) >= 97
    assert sum("$$" in page or "$\\" in page for page in learned) >= 0.85 * len(learned)
