"""docs/methods/ is what the docstrings say."""

import importlib.util
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_every_page_is_up_to_date():
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    written = {file.name: file.read_text(encoding="utf-8") for file in (DOCS / "methods").glob("*.md")}
    assert written == generate.pages(), "run: python docs/generate.py"
