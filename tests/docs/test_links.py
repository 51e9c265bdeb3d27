"""Links between pages lead somewhere: to a file that is there, and to a heading that is on it."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "claims/README.md", "benchmarks/README.md")
]
PAGES += sorted((ROOT / "docs").rglob("*.md"))


def prose(page):
    """The page without its code."""
    return re.sub(r"^```.*?^```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchors(page):
    """The names of its headings, as GitHub and the site make them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    names = [
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
        for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    ]
    return set(names)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_its_links_lead_somewhere(page):
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"https?:|mailto:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
            broken.append(target)
    assert broken == []


def test_every_page_is_reached_from_the_index():
    named = set(re.findall(r"\]\(([\w.-]+\.md)", (ROOT / "docs" / "index.md").read_text(encoding="utf-8")))
    assert {page.name for page in (ROOT / "docs").glob("*.md")} - {"index.md"} <= named


def test_messages_that_pages_explain_are_messages_of_ours():
    """Of each phrase in a table of what can go wrong, the pieces between what differs from case to case stand in the source."""
    source = "\n".join(file.read_text(encoding="utf-8") for file in sorted((ROOT / "src").rglob("*.py")))
    source = re.sub(r"\"\n\s*f?\"", "", source)
    quoted, missing = 0, []
    for page in sorted((ROOT / "docs").glob("*.md")):
        _, _, table = page.read_text(encoding="utf-8").partition("\n## What can go wrong\n")
        for phrase in re.findall(r"^\| `([^`]+)`", table.partition("\n## ")[0], re.MULTILINE):
            quoted += 1
            pieces = re.split(r"\.\.\.|'[^']*'|\b[A-Z]\b|\d[\d.,]*|\bscore\b", phrase)
            missing += [
                f"{page.name}: {piece}" for piece in map(str.strip, pieces) if len(piece) > 6 and piece not in source
            ]
    assert quoted > 10 and missing == []
