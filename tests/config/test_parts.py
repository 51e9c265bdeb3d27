"""Parts and plain data: the way there and back."""

import ast
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from gimbal import ops, recipes
from gimbal.config import Text, catalogue, dump, load, plain, read, read_file, resolve
from gimbal.config.classes import PACKAGE, first_sentence, heads, methods
from gimbal.config.expected import quoted
from gimbal.objectives import ClippedRatio
from gimbal.objectives.base import AbstractObjective
from gimbal.report.record import Record
from gimbal.workflows.base import AbstractWorkflow


@dataclass(frozen=True)
class Everything:
    """A field of every kind."""

    inner: ops.AbstractAggregation = ops.ConstantMean(length=3.5)
    many: tuple[ops.AbstractAggregation, ...] = (ops.TokenMean(), ops.SequenceSum())
    pair: tuple[int, float] = (1, 1e-300)
    maybe: str | None = "None"
    mapping: Mapping[str, Any] = field(default_factory=lambda: {"digits": "12", "n": 3, "deep": {"a": [1, None]}})
    choice: Literal["a", "b"] = "b"
    path: Path = Path("x/y")
    number: float = math.inf
    function: Callable[..., Any] = ops.k3
    reference: str | Callable[..., Any] = "file.py:f"
    text: str = "a: 'b'\n# \\ 1e3"
    flag: bool = True


def test_a_part_comes_back_equal_through_yaml(tmp_path):
    thing = Everything()
    file = tmp_path / "recipe.yaml"
    file.write_text(dump(thing, "everything"))
    assert load(file, Everything) == ("everything", thing)


def test_a_part_comes_back_equal_through_json(tmp_path):
    import json

    thing = Everything(number=1.5)
    file = tmp_path / "recipe.json"
    file.write_text(json.dumps({"recipe": "r", "run": plain(thing)}))
    assert load(file, Everything) == ("r", thing)


def test_typed_none_is_nothing_and_a_saved_one_is_a_string():
    assert read(Text("None"), str | None) is None
    assert read("None", str | None) == "None"
    assert read(Text("12"), Any) == 12
    assert read("12", Any) == "12"


def test_what_cannot_be_found_again_is_refused():
    with pytest.raises(ValueError, match="top level"):
        plain(Everything(function=lambda: 0))
    with pytest.raises(ValueError, match="cannot be saved"):
        plain({"x": object()})


def test_class_names_are_unique():
    """A bare name is how a part is written on a command line and in a file."""
    names = [
        node.name
        for file in PACKAGE.rglob("*.py")
        for node in ast.parse(file.read_text()).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    assert [name for name, count in Counter(names).items() if count > 1] == []


def test_the_catalogue_knows_a_class_without_importing_it():
    entry = catalogue()["ClippedRatio"]
    assert (entry.module, entry.part, entry.bases) == (
        "gimbal.objectives.surrogates.clipped_ratio",
        True,
        ("AbstractObjective", "AbstractPart", "ABC"),
    )
    assert entry.summary.startswith("The clipped surrogate") and entry.summary.endswith(".")


def test_own_classes_are_found_by_file_and_by_module(tmp_path, monkeypatch):
    source = (
        "from dataclasses import dataclass\nfrom neighbour_of_mine import X\n"
        "@dataclass(frozen=True)\nclass Mine:\n    x: float = X\n"
    )
    (tmp_path / "mine.py").write_text(source)
    (tmp_path / "neighbour_of_mine.py").write_text("X = 2.0\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for reference in ("mine.py:Mine", "mine:Mine"):
        cls = resolve(reference)
        thing = read(Text(f"{reference}(x=3)"), cls)
        assert thing == cls(x=3.0)
        assert read(plain(thing), cls) == thing


@pytest.mark.parametrize(
    ("reference", "sentence"),
    [
        ("nowhere.py:f", "no file"),
        ("no_such_module:f", "no module"),
        ("math:sine", "math has no sine"),
        ("plain", "not a reference"),
    ],
)
def test_references_that_lead_nowhere(reference, sentence):
    with pytest.raises(ValueError, match=sentence):
        resolve(reference)


def test_fields_of_saved_parts_are_checked():
    with pytest.raises(ValueError, match=r"ClippedRatio has no field clip_hi; did you mean clip_high\?"):
        read({"class": "ClippedRatio", "clip_hi": 1.0}, ClippedRatio)


@pytest.mark.parametrize(
    "text",
    [
        "Dialogue(answers=2, tool={}:Shout(said='a)b:c', times=(1, 2)))",
        "Dialogue(answers=2, tool='{}:Shout(said=\"a)b:c\", times=(1, 2))')",
        "'Dialogue(answers=2, tool={}:Shout(said=\"a)b:c\", times=(1, 2)))'",
        "{}:Flow(inner=Dialogue(answers=2, tool={}:Shout(said='a)b:c', times=(1, 2))))",
    ],
)
def test_own_classes_need_no_quotes_at_any_level_and_may_have_them(text, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "from dataclasses import dataclass\n"
        "from gimbal.environments.tools import AbstractTool\n"
        "from gimbal.workflows.base import AbstractWorkflow\n"
        "@dataclass(frozen=True, kw_only=True)\n"
        "class Shout(AbstractTool):\n"
        "    said: str\n"
        "    times: tuple[int, ...]\n"
        "    triggers = ('=',)\n"
        "    def __call__(self, task, text): return self.said\n"
        "@dataclass(frozen=True, kw_only=True)\n"
        "class Flow(AbstractWorkflow):\n"
        "    inner: AbstractWorkflow\n"
        "    def __call__(self, attempt): return self.inner(attempt)\n"
    )
    part = read(Text(text.replace("{}", str(file))), AbstractWorkflow, "workflow")
    part = part.inner if type(part).__name__ == "Flow" else part
    assert (part.answers, part.tool.said, part.tool.times) == (2, "a)b:c", (1, 2))


def test_what_is_quoted_already_and_what_is_no_reference_stays():
    for text in ("{'a': 1, 'b:c': 2}", "{1:Foo()}", r"Pattern(pattern='it\'s a:b')", "Native(slots=3)", "X(a=1.5)"):
        assert quoted(text) == text
    assert quoted("HeldOut(tasks=some/rows.jsonl, samples=2)") == "HeldOut(tasks='some/rows.jsonl', samples=2)"
    assert quoted("(a.py:f*0.7, pkg.mod:g, X(b='c.py:d'))") == "('a.py:f*0.7', 'pkg.mod:g', X(b='c.py:d'))"
    with pytest.raises(ValueError, match=r"or your own, workflow='file.py:Class\(field=value\)'"):
        read(Text("Dialogue("), AbstractWorkflow, "workflow")


@pytest.mark.parametrize(
    ("docstring", "summary"),
    [
        ("The mean over tokens. More.", "The mean over tokens."),
        ("A group's mean (Dr. GRPO). More.", "A group's mean (Dr. GRPO)."),
        ("A group's mean, after Dr. GRPO. More.", "A group's mean, after Dr. GRPO."),
        ("A weight (see Sec. 3. It is cut). More.", "A weight (see Sec. 3. It is cut)."),
        ("Rewards, e.g. Pattern and others. More.", "Rewards, e.g. Pattern and others."),
        ("One\nline.\n\nAnother.", "One line."),
    ],
)
def test_a_summary_ends_where_the_first_sentence_does(docstring, summary):
    assert first_sentence(docstring) == summary


def test_heads_are_what_the_parser_reads():
    for file in PACKAGE.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        parsed = ast.parse(text).body
        classes = [node for node in parsed if isinstance(node, ast.ClassDef)]
        read = [head for head in heads(text) if head.kind == "class"]
        assert [head[2:] for head in read] == [
            (
                node.name,
                tuple(base.id for base in node.bases if isinstance(base, ast.Name)),
                ast.get_docstring(node) or "",
                node.lineno,
            )
            for node in classes
        ]
        made = [any("dataclass" in ast.unparse(mark) for mark in node.decorator_list) for node in classes]
        assert ["dataclass" in head.decorators for head in read] == made, file
        said = {head.name: head.docstring for head in heads(text)}
        for node in parsed:
            if isinstance(node, ast.FunctionDef) and node.name == file.stem and "recipes" in file.parts:
                assert said[node.name] == ast.get_docstring(node)


def test_no_summary_is_cut_short():
    """Of every method and recipe: a whole sentence, with the brackets that it opens closed."""
    parts = {entry.name: entry.summary for entries in methods().values() for entry in entries}
    for name, text in {**parts, **recipes.names()}.items():
        assert text.endswith((".", "?")) and not text.endswith("..."), (name, text)
        assert all(text.count(left) == text.count(right) for left, right in ("()", "[]")), (name, text)
        assert not re.search(r"\b(Dr|al|e\.g|i\.e|cf|vs)\.$", text), (name, text)
    for name, text in recipes.names().items():
        assert len(text) <= 132, f"{name}: the summary of a recipe is one line of a terminal: {text}"


def test_a_class_that_is_no_dataclass_is_told_what_it_lacks(tmp_path):
    (tmp_path / "loss.py").write_text("class Forgot:\n    pass\n\ndef made(): pass\n")
    for kind in ("Forgot()", "Forgot(x=1)"):
        with pytest.raises(ValueError, match=r"put @dataclass\(frozen=True, kw_only=True\) above class Forgot"):
            read(Text(f"{tmp_path}/loss.py:{kind}"), AbstractObjective, "objective")
    with pytest.raises(ValueError, match="is not a part"):
        read(Text(f"{tmp_path}/loss.py:made()"), AbstractObjective, "objective")


def test_only_parts_of_the_kind_are_meant():
    with pytest.raises(ValueError) as told:
        read(Text("Encod"), AbstractWorkflow, "workflow")
    assert "Encode" not in str(told.value)
    with pytest.raises(ValueError, match=r"objective=ClipedRatio; did you mean ClippedRatio\?"):
        read(Text("ClipedRatio"), AbstractObjective, "objective")


def test_an_interface_is_no_part(tmp_path):
    with pytest.raises(
        ValueError, match=r"store.preference names no class; it must be one of AgeDecay, Prioritized, Uniform, such as"
    ):
        recipes.load("rlpd", {"store.preference": Text("{}")})
    with pytest.raises(ValueError, match="objective names no class; it must be an objective, such as"):
        recipes.load("grpo", {"objective": {}})
    own = "from dataclasses import dataclass\nfrom gimbal.objectives.base import AbstractObjective\n\n\n"
    (tmp_path / "half.py").write_text(
        own + "@dataclass(frozen=True, kw_only=True)\nclass Half(AbstractObjective):\n    x: int = 0\n"
    )
    with pytest.raises(ValueError, match=r"objective: Half lacks .*; add it"):
        recipes.load("grpo", {"objective": Text(f"{tmp_path}/half.py:Half()")})


ALIASED = "a: &a [x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{below}'] * 8)}]\n" for below, name in ("ab", "bc", "cd", "de", "ef", "fg")
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (ALIASED + "run: [*g, *g]\n", r"recipe.yaml holds more than 100,000 values once its aliases"),
        ("run: &a\n  b: *a\n", r"recipe.yaml holds more than 100,000 values once its aliases"),
        ("recipe: sac\nrun: 5\n", r"recipe.yaml is not the recipe of a run: the key run is 5, not the fields of a run"),
        ("recipe: sac\nrun: [1]\n", r"recipe.yaml is not the recipe of a run: the key run is \[1\], not"),
        ("recipe: sac\n", r"recipe.yaml is not the recipe of a run: the key run is missing"),
    ],
)
def test_a_recipe_file_that_is_none_is_named_with_its_key(tmp_path, text, said):
    (tmp_path / "recipe.yaml").write_text(text)
    with pytest.raises(ValueError, match=said):
        load(tmp_path, AbstractObjective)
    if "missing" not in said:
        with pytest.raises(ValueError, match=said):
            Record(tmp_path)


def test_aliases_are_read(tmp_path):
    (tmp_path / "mine.yaml").write_text("steps: &n 3\nhidden: &h [8, 8]\nother: *n\nmore: [*h, *h]\n")
    assert read_file(tmp_path / "mine.yaml")["more"] == [[8, 8], [8, 8]]


def test_a_file_that_several_threads_want_is_run_once_and_whole(tmp_path):
    """Environments open in threads; a module is listed before it has run, and another thread once found it without its class."""
    file = tmp_path / "slow_to_load.py"
    file.write_text("import time\n\ntime.sleep(0.2)\n\n\nclass Late:\n    pass\n")
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(resolve, [f"{file}:Late"] * 8))
    assert len(set(found)) == 1
