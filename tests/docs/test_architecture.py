"""docs/architecture.md names classes, methods and files that are there, with the arguments that they take."""

import ast
import inspect
import re
from pathlib import Path

import pytest

from gimbal.config import find
from gimbal.dataflow.base import AbstractBudget, AbstractCurriculum
from gimbal.engines.base import AbstractEngine
from gimbal.environments.base import AbstractEnvironment
from gimbal.learning.base import AbstractLearner
from gimbal.learning.updates.base import AbstractUpdate, Loss, ModelSpec
from gimbal.runtime.base import AbstractScorer
from gimbal.workflows.base import AbstractWorkflow

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
CLASSES = {
    node.name: (node, file)
    for file in (ROOT / "src" / "gimbal").rglob("*.py")
    for node in ast.parse(file.read_text()).body
    if isinstance(node, ast.ClassDef)
}


def methods(name):
    """Of a class and its bases within the package: name -> arguments."""
    node, _ = CLASSES[name]
    found = {}
    for base in node.bases:
        if isinstance(base, ast.Name) and base.id in CLASSES:
            found |= methods(base.id)
    own = {item.name: [a.arg for a in item.args.args] for item in node.body if isinstance(item, ast.FunctionDef)}
    return found | own


def test_classes_that_are_named_are_there():
    pages_own = set(re.findall(r"^@dataclass.*\nclass (\w+)", "\n".join(BLOCKS), re.M))
    named = set(re.findall(r"`([A-Z][A-Za-z]+)[`(]", PAGE)) | set(re.findall(r"^class (\w+)", "\n".join(BLOCKS), re.M))
    assert len(named) >= 10
    assert sorted(named - CLASSES.keys() - pages_own) == [] and pages_own == {"BatchReinforce"}


def test_signatures_are_those_of_the_code():
    seen = 0
    for block in BLOCKS:
        for name, body in re.findall(r"^class (\w+).*?:(.*?)(?=^\S|\Z)", block, re.DOTALL | re.M):
            real = methods(name) if name in CLASSES else methods("AbstractUpdate")
            for method, given in re.findall(r"(\w+)\((self[^)]*)\)", body):
                arguments = [re.sub(r":.*", "", a).strip() for a in re.sub(r"\[[^\]]*\]", "", given).split(",")]
                assert real[method] == arguments, f"{name}.{method}"
                seen += 1
    assert seen >= 20


def test_files_that_are_named_are_there():
    files = re.findall(r"[`# ]((?:[a-z_]+/)+[a-z_]+\.py|(?:[a-z_]+/){2,})", PAGE)
    assert files
    for file in files:
        places = (ROOT / file, ROOT / "src" / "gimbal" / file, ROOT / "src" / "gimbal" / "learning" / file)
        assert any(place.exists() for place in places), file


FIELDS = ((ModelSpec, {"load", "first", "follows", "rate", "optimizer"}), (Loss, {"of", "value", "metrics"}))


@pytest.mark.parametrize("kind, fields", FIELDS)
def test_records_have_these_fields(kind, fields):
    assert set(inspect.signature(kind).parameters) == fields


def test_the_learner_and_the_update_promise_no_more_than_the_page_says():
    page = "\n".join(BLOCKS)
    for name in AbstractLearner.__abstractmethods__ | AbstractUpdate.__abstractmethods__:
        assert re.search(rf"\b{name}\b", page), name
    shown = dict(re.findall(r"^class (\w+).*?:(.*?)(?=^\S|\Z)", page, re.DOTALL | re.M))
    for kind in (
        AbstractCurriculum,
        AbstractBudget,
        AbstractWorkflow,
        AbstractEngine,
        AbstractEnvironment,
        AbstractScorer,
    ):
        asked = kind.__abstractmethods__ - {"state_dict", "load_state_dict"}  # of all live parts, below the blocks
        assert [name for name in asked if not re.search(rf"\b{name}\b", shown[kind.__name__])] == [], kind.__name__
    assert AbstractUpdate in find("SoftActorCritic").__mro__
