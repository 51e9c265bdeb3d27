"""The first table of claims/README.md: what each question came to, read from the sections below it; page.py writes it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

HEAD = re.compile(r"\| [^|]* \| difference \| holds \|")
ABOUT = """## At a glance

The questions below that ask whether one arm is above another, each in its claim's own figure: "yes" and "no: below" where the interval
of the difference (five seeds and five, 96.8 %) leaves 0 out, "undecided" where it does not, which is no sign that two arms are equal.
Runs here are small: a difference that they do not show may be there in large ones, and the reverse. Of a hundred such questions about
three would be answered by chance. A few rows are bars of another kind, as their text says.

"""


class Answer(NamedTuple):
    section: str  # its title
    question: str
    difference: str
    holds: str


def overview(sections: Sequence[str]) -> str:
    """Of all sections with a table of questions, and links to those with a rule of another form."""
    found = [answer for section in sections for answer in answers(section)]
    counts = Counter(answer.holds for answer in found)
    told = ", ".join(f"{count} {said or 'not run'}" for said, count in counts.most_common())
    lines = [f"{len(found)} questions: {told}.", "", "| claim | question | difference | holds |", "| --- " * 4 + "|"]
    last = ""
    for answer in found:
        claim = "" if answer.section == last else link(answer.section)
        last = answer.section
        lines.append(f"| {claim} | {answer.question} | {answer.difference} | {answer.holds} |")
    shown = {answer.section for answer in found}
    others = [link(title(section)) for section in sections if section.startswith("## ") and title(section) not in shown]
    lines += ["", f"Claims with a rule of another form: {', '.join(others)}.", ""]
    return ABOUT + "\n".join(lines)


def answers(section: str) -> Iterator[Answer]:
    lines = section.splitlines()
    for place, line in enumerate(lines):
        if HEAD.fullmatch(line):
            for row in lines[place + 2 :]:
                if not row.startswith("|"):
                    break
                question, difference, holds = (cell.strip() for cell in row.strip("|").split("|"))
                yield Answer(title(section), question, difference, holds)


def title(section: str) -> str:
    return section.splitlines()[0].removeprefix("## ")


def link(heading: str) -> str:
    """To the heading on the same page, as GitHub and mkdocs name it."""
    slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
    return f"[{heading.rsplit(' (', 1)[0]}](#{slug})"
