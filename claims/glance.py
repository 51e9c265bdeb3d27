"""The first table of claims/README.md: what each question came to, read from the sections below it; page.py writes it."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from gimbal import recipes

HEAD = re.compile(r"\| [^|]* \| difference \| holds \|")
ARMS = re.compile(r"\*([^*]+)\* above \*([^*]+)\*")
EDGE = re.compile(r"\((?:lowest|highest) tried\)")
ABOUT = """## At a glance

The questions below that ask whether one arm is above another, each in its claim's own figure: "yes" and "no: below" where the interval
of the difference (five seeds and five, 96.8 %) leaves 0 out, "undecided" where it does not, which is no sign that two arms are equal,
and "void" where the claim's rule says that its runs cannot answer. Runs here are small: a difference that they do not show may be there
in large ones, and the reverse. Of a hundred such questions about three would be answered by chance. A few rows are bars of another
kind, as their text says. The recipes are those that the claim's script names: its arms are built on them, and its section says how
(`gimbal show RECIPE` prints one). A question that asks the reverse of one above it is left out here.

96.8 % is exact where all ten runs are independent. Arms that share tasks, a start or random numbers by seed are not: what moves both
alike makes the interval wider than it says (99 % where runs of a seed correlate by .5), what moves them apart narrower (93 % at -.5).
Wholly shared by seed are the tasks in `loops.py` and `segments.py` and the starts of two arms in `atoms.py`; in most claims it is what
is drawn before the arms part.

A rate is marked "lowest tried" or "highest tried" where no rate beyond it was tried, so that the arm's best may lie further out; of
two rates each is one or the other: EDGES.

"""


class Answer(NamedTuple):
    section: str  # its title
    question: str
    difference: str
    holds: str


def overview(sections: Sequence[str]) -> str:
    """Of all sections with a table of questions, and links to those with a rule of another form."""
    found = [answer for section in sections for answer in unmirrored(answers(section))]
    counts = Counter(answer.holds for answer in found)
    told = ", ".join(f"{count} {said or 'not run'}" for said, count in counts.most_common())
    lines = [
        f"{len(found)} questions: {told}.",
        "",
        "| claim | recipes | question | difference | holds |",
        "| --- " * 5 + "|",
    ]
    last = ""
    for answer in found:
        claim, named = ("", "") if answer.section == last else (link(answer.section), recipes_of(answer.section))
        last = answer.section
        lines.append(f"| {claim} | {named} | {answer.question} | {answer.difference} | {answer.holds} |")
    shown = {answer.section for answer in found}
    others = [link(title(section)) for section in sections if section.startswith("## ") and title(section) not in shown]
    lines += ["", f"Claims with a rule of another form: {', '.join(others)}.", ""]
    marked = sum(len(EDGE.findall(section)) for section in sections)
    return ABOUT.replace("EDGES", f"{marked} rates below are marked so") + "\n".join(lines)


def answers(section: str) -> Iterator[Answer]:
    lines = section.splitlines()
    for place, line in enumerate(lines):
        if HEAD.fullmatch(line):
            for row in lines[place + 2 :]:
                if not row.startswith("|"):
                    break
                question, difference, holds = (cell.strip() for cell in row.strip("|").split("|"))
                yield Answer(title(section), question, difference, holds)


def unmirrored(answers: Iterator[Answer]) -> Iterator[Answer]:
    """Those of one section, without what asks an earlier one the other way round."""
    seen: set[tuple[object, ...]] = set()
    for answer in answers:
        arms, figures = (
            ARMS.search(answer.question),
            sorted(float(x) for x in re.findall(r"-?\d+(?:\.\d+)?", answer.difference)),
        )
        if arms and (*arms.groups()[::-1], *sorted(-x for x in figures)) in seen:
            continue
        seen |= {(*arms.groups(), *figures)} if arms else set()
        yield answer


def recipes_of(heading: str) -> str:
    """The recipes that a section's script names, by the script in its heading."""
    script = re.search(r"\(`?(\w+)\.py`?\)", heading)
    return ", ".join(f"`{name}`" for name in _named(script.group(1))) if script else ""


@cache
def _named(script: str) -> list[str]:
    known, found = set(recipes.names()), set()
    for node in ast.walk(ast.parse((Path(__file__).parent / f"{script}.py").read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("gimbal.recipes"):
            found |= {item.name for item in node.names}
    return sorted(known & found)


def title(section: str) -> str:
    return section.splitlines()[0].removeprefix("## ")


def link(heading: str) -> str:
    """To the heading on the same page, as GitHub and mkdocs name it."""
    slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
    return f"[{heading.rsplit(' (', 1)[0]}](#{slug})"
