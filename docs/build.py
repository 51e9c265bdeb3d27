"""Builds the documentation site into build/site, without a network: `make docs`.

The pages are copied to build/pages as they lie in the repository, so that their links hold. Equations become MathML, which browsers
show without a script, and the methods' pages enter the navigation by their kind. A link or an anchor that leads nowhere ends the build.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "build" / "pages"
ROOMS = ("", "docs", "docs/methods", "claims", "benchmarks")
KINDS = (".md", ".svg", ".png")
# A link from a page to a file that is no page: the site has none of the sources.
SOURCE = re.compile(r"\[([^\]\n]+)\]\((?!https?:|#)[^)\s]+\.(?:py|json|toml|yaml)\)")


def stage() -> None:
    """The pages in build/pages."""
    shutil.rmtree(PAGES, ignore_errors=True)
    for room in ROOMS:
        (PAGES / room).mkdir(parents=True, exist_ok=True)
        for file in sorted((ROOT / room).glob("*")):
            if file.suffix == ".md":
                text = file.read_text(encoding="utf-8")
                text = with_mathml(text) if room == "docs/methods" else text
                (PAGES / room / file.name).write_text(SOURCE.sub(r"\1", text), encoding="utf-8")
            elif file.suffix in KINDS:
                shutil.copyfile(file, PAGES / room / file.name)


def with_mathml(text: str) -> str:
    """A page of docs/typeset.py with its LaTeX as MathML; code is left alone."""
    from latex2mathml.converter import convert

    def block(match: re.Match[str]) -> str:
        return convert(match[1].strip(), display="block")

    def inline(match: re.Match[str]) -> str:
        return convert(match[2]) if match[2] else match[1].replace(r"\$", "$")

    pieces = re.split(r"(^```.*?^```\n)", text, flags=re.MULTILINE | re.DOTALL)
    for place in range(0, len(pieces), 2):
        written = re.sub(r"^\$\$\n(.*?)\n\$\$$", block, pieces[place], flags=re.MULTILINE | re.DOTALL)
        pieces[place] = re.sub(r"(`[^`\n]*`|\\\$)|\$([^$\n]+)\$", inline, written)
    return "".join(pieces)


def methods() -> list[dict[str, list[str]]]:
    """The pages of the methods by their kind, in the order of docs/methods/README.md."""
    index = (ROOT / "docs" / "methods" / "README.md").read_text(encoding="utf-8")
    kinds = re.findall(r"^## (\w+)\n\n((?:- .*\n)+)", index, re.MULTILINE)
    found = {
        kind: [f"docs/methods/{page}" for page in re.findall(r"^- \[\w+\]\((\w+\.md)\):", rows, re.MULTILINE)]
        for kind, rows in kinds
    }
    return [{kind: pages} for kind, pages in found.items() if pages]


def main() -> int:
    from mkdocs.commands.build import build
    from mkdocs.config import load_config
    from mkdocs.exceptions import Abort

    stage()
    config = load_config(str(ROOT / "mkdocs.yml"), strict=True)
    for entry in config.nav:
        for title, pages in entry.items():
            if isinstance(pages, list) and "METHODS" in pages:
                entry[title] = [page for page in pages if page != "METHODS"] + methods()
    try:
        build(config)
    except Abort as error:
        print(error, file=sys.stderr)
        return 1
    print("build/site is made; python -m http.server --directory build/site shows it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
