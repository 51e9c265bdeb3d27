"""Kinds of small tasks for a terminal: files, counting, text, bugs to fix, functions to write. Each draws drafts from a generator.

A draft is a proposal with its own solution; whether it is a task is found out by running it (``chores.gate``). Nothing that a check
compares with is in the files that the policy can see.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

_LETTERED = (
    "amber birch cedar delta ember fjord grove heron ivory jetty knoll larch maple north ocean pearl quartz ridge stone tidal umber "
    "violet willow yarrow zephyr"
)
WORDS: tuple[str, ...] = tuple(_LETTERED.split())
NAMES = ("ada", "ben", "cleo", "dora", "emil", "finn", "gus", "hana", "ivan", "jude")
PLACES = ("north", "south", "east", "west")
LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, kw_only=True)
class Draft:
    """What is asked, what lies in the sandbox, how it is solved, and how that is checked.

    ``programs`` are run one after the other, then ``answer`` is given. One of these decides: the ``answer``; that the file ``file``
    holds ``holds``; that what the file defines makes the expression ``calls`` print ``holds`` (None: as the reference solution does).
    """

    kind: str
    prompt: str
    files: Mapping[str, str]
    programs: tuple[str, ...]
    answer: str = "done"
    check: Mapping[str, str] = field(default_factory=dict)  # empty: the answer alone


Kind = Callable[[Random], Draft]


def _name(rng: Random, *, but: tuple[str, ...] = ()) -> str:
    while True:
        name = rng.choice(LETTERS) + rng.choice(LETTERS)
        if name not in (*but, "as", "if", "in", "is", "or"):
            return name


# What is asked of the numbers of a file that another file names, and the program for it.
FOLLOWED: Mapping[str, tuple[str, str, Callable[[list[int]], int]]] = {
    "follow_total": ("the sum of the numbers", "print(sum(map(int,open('{}').read().split())))", sum),
    "follow_count": ("the count of numbers", "print(len(open('{}').read().split()))", len),
    "follow_largest": ("the largest number", "print(max(map(int,open('{}').read().split())))", max),
    "follow_last": ("the last number", "print(open('{}').read().split()[-1])", lambda numbers: numbers[-1]),
}


def followed(kind: str) -> Kind:
    """The answer is two calls away: which file it is about stands in another file, and a third one leads astray."""
    what, program, of = FOLLOWED[kind]

    def draw(rng: Random) -> Draft:
        first = _name(rng)
        second = _name(rng, but=(first,))
        other = _name(rng, but=(first, second))
        numbers, astray = ([rng.randint(1, 99) for _ in range(rng.randint(3, 12))] for _ in range(2))
        files = {first: second, second: " ".join(map(str, numbers)), other: " ".join(map(str, astray))}
        return Draft(
            kind=kind,
            prompt=f"What is {what} in the file that {first} names?",
            files=dict(sorted(files.items())),
            programs=(f"print(open('{first}').read())", program.format(second)),
            answer=str(of(numbers)),
        )

    return draw


def different_words(rng: Random) -> Draft:
    some = rng.sample(WORDS, rng.randint(4, 12))
    text = [rng.choice(some) for _ in range(rng.randint(12, 30))]
    written = [word.capitalize() if rng.random() < 0.3 else word for word in text]
    return Draft(
        kind="different_words",
        prompt="How many different words are in text.txt? Upper and lower case are the same.",
        files={"text.txt": _lines(written, 6, rng)},
        programs=("print(len(set(open('text.txt').read().lower().split())))",),
        answer=str(len(set(text))),
    )


def most_frequent(rng: Random) -> Draft:
    some = rng.sample(WORDS, 6)
    text = [rng.choice(some) for _ in range(rng.randint(12, 30))]
    counts = sorted((text.count(word), word) for word in set(text))
    # Two that are equal have no answer: the gate finds out.
    best = counts[-1][1] if counts[-1][0] > counts[-2][0] else "?"
    return Draft(
        kind="most_frequent",
        prompt="Which word is most frequent in text.txt?",
        files={"text.txt": _lines(text, 5, rng)},
        programs=(
            "w = open('text.txt').read().split()\nn = {x: w.count(x) for x in w}\nm = max(n.values())\n"
            "b = [x for x in n if n[x] == m]\nprint(b[0] if len(b) == 1 else b)",
        ),
        answer=best,
    )


def longest_line(rng: Random) -> Draft:
    lines = [" ".join(rng.choices(WORDS, k=rng.randint(1, 6))) for _ in range(rng.randint(5, 12))]
    length = [len(line) for line in lines]
    return Draft(
        kind="longest_line",
        prompt="What is the number of the longest line of notes.txt? The first line is number 1.",
        files={"notes.txt": "\n".join(lines) + "\n"},
        programs=(
            "n = [len(x) for x in open('notes.txt').read().splitlines()]\nprint(n.index(max(n)) + 1 if n.count(max(n)) == 1 else n)",
        ),
        answer=str(length.index(max(length)) + 1),
    )


def log_errors(rng: Random) -> Draft:
    who = rng.choice(NAMES)
    rows = [
        (rng.choice(("INFO", "WARNING", "ERROR")), rng.choice([who, *rng.sample(NAMES, 2)]), rng.choice(WORDS))
        for _ in range(rng.randint(10, 24))
    ]
    return Draft(
        kind="log_errors",
        prompt=f"How many lines of app.log are of level ERROR and of the user {who}?",
        files={"app.log": "".join(f"{level} user={user} {word}\n" for level, user, word in rows)},
        programs=(
            f"print(sum(x.split()[:2] == ['ERROR', 'user={who}'] for x in open('app.log').read().splitlines()))",
        ),
        answer=str(sum(row[:2] == ("ERROR", who) for row in rows)),
    )


def table_sum(rng: Random) -> Draft:
    place = rng.choice(PLACES)
    rows = [(rng.choice(NAMES), rng.choice(PLACES), rng.randint(1, 90)) for _ in range(rng.randint(6, 16))]
    return Draft(
        kind="table_sum",
        prompt=f"What is the sum of the column amount of sales.csv over the rows of the region {place}?",
        files={"sales.csv": "name,region,amount\n" + "".join(f"{n},{p},{a}\n" for n, p, a in rows)},
        programs=(
            "rows = [x.split(',') for x in open('sales.csv').read().splitlines()[1:]]\n"
            f"print(sum(int(a) for n, p, a in rows if p == '{place}'))",
        ),
        answer=str(sum(a for _, p, a in rows if p == place)),
    )


def chain(rng: Random) -> Draft:
    names: list[str] = []
    for _ in range(rng.randint(3, 5)):
        names.append(_name(rng, but=tuple(names)))
    number = str(rng.randint(100, 9999))
    files = {name: f"see {after}" for name, after in pairwise(names)} | {names[-1]: number}
    return Draft(
        kind="chain",
        prompt=f"Each file names the next one, beginning with {names[0]}. Which number is in the last one?",
        files=dict(sorted(files.items())),
        programs=(f"t = open('{names[0]}').read()\nwhile t.startswith('see '):\n    t = open(t[4:]).read()\nprint(t)",),
        answer=number,
    )


def sorted_lines(rng: Random) -> Draft:
    lines = rng.sample(WORDS, rng.randint(2, 9))
    return Draft(
        kind="sorted_lines",
        prompt="Sort the lines of list.txt alphabetically, in that file.",
        files={"list.txt": "\n".join(lines) + "\n"},
        programs=(
            "x = sorted(open('list.txt').read().splitlines())\nwith open('list.txt', 'w') as f:\n    f.write('\\n'.join(x) + '\\n')",
        ),
        # Where they are sorted, nothing is left to do.
        check={"file": "list.txt", "holds": "\n".join(sorted(lines)) + "\n"},
    )


def even_numbers(rng: Random) -> Draft:
    numbers = [rng.randint(1, 999) for _ in range(rng.randint(4, 14))]
    even = "".join(f"{n}\n" for n in numbers if n % 2 == 0)
    return Draft(
        kind="even_numbers",
        prompt="Write the even numbers of numbers.txt to even.txt, one on each line, in the same order.",
        files={"numbers.txt": " ".join(map(str, numbers)) + "\n"},
        programs=(
            "x = [n for n in open('numbers.txt').read().split() if int(n) % 2 == 0]\n"
            "with open('even.txt', 'w') as f:\n    f.write(''.join(n + '\\n' for n in x))",
        ),
        check={"file": "even.txt", "holds": even},
    )


def setting(rng: Random) -> Draft:
    keys = rng.sample(WORDS, 5)
    values = {key: rng.randint(1, 99) for key in keys}
    key, value = rng.choice(keys), rng.randint(1, 99)
    wanted = values | {key: value}
    return Draft(
        kind="setting",
        prompt=f"Set {key} to {value} in settings.ini, and leave all else as it is.",
        files={"settings.ini": "".join(f"{k} = {v}\n" for k, v in values.items())},
        programs=(
            f"x = [a if a.split(' = ')[0] != '{key}' else '{key} = {value}' for a in open('settings.ini').read().splitlines()]\n"
            "with open('settings.ini', 'w') as f:\n    f.write('\\n'.join(x) + '\\n')",
        ),
        check={"file": "settings.ini", "holds": "".join(f"{k} = {v}\n" for k, v in wanted.items())},
    )


def joined(rng: Random) -> Draft:
    names = rng.sample(NAMES, rng.randint(3, 6))
    ages, towns = {n: rng.randint(10, 80) for n in names}, {n: rng.choice(PLACES) for n in names}
    one, other = rng.sample(names, len(names)), rng.sample(names, len(names))
    return Draft(
        kind="joined",
        prompt="Join ages.txt and towns.txt by name into all.txt: lines NAME AGE TOWN, in the order of names.",
        files={
            "ages.txt": "".join(f"{n} {ages[n]}\n" for n in one),
            "towns.txt": "".join(f"{n} {towns[n]}\n" for n in other),
        },
        programs=(
            "a = dict(x.split() for x in open('ages.txt').read().splitlines())\n"
            "t = dict(x.split() for x in open('towns.txt').read().splitlines())\n"
            "with open('all.txt', 'w') as f:\n    f.write(''.join(n + ' ' + a[n] + ' ' + t[n] + '\\n' for n in sorted(a)))",
        ),
        check={"file": "all.txt", "holds": "".join(f"{n} {ages[n]} {towns[n]}\n" for n in sorted(names))},
    )


# A function, what it does, and what it is called with; K is a number of the task's own.
FUNCTIONS: Mapping[str, tuple[str, str, str]] = {
    "above": ("returns how many numbers of the list are above K", "return sum(1 for n in x if n > K)", "numbers"),
    "shifted": ("returns the list with its first K items moved to the end", "return x[K:] + x[:K]", "numbers"),
    "every": ("returns every K-th item of the list, the first one among them", "return x[::K]", "numbers"),
    "scaled": (
        "returns the list with each number times K plus its place, from 0",
        "return [n * K + i for i, n in enumerate(x)]",
        "numbers",
    ),
    "clipped": ("returns the list with each number above K made K", "return [n if n < K else K for n in x]", "numbers"),
    "running": (
        "returns the running totals of the list, beginning at K",
        "t = K\n    y = []\n    for n in x:\n        t += n\n        y.append(t)\n    return y",
        "numbers",
    ),
    "chunks": (
        "returns the text cut into pieces of K letters; the last may be shorter",
        "return [x[i:i + K] for i in range(0, len(x), K)]",
        "text",
    ),
    "longer": (
        "returns the words of the text with more than K letters",
        "return [w for w in x.split() if len(w) > K]",
        "text",
    ),
    "rotated": (
        "returns the text with each small letter moved K places on in the alphabet, after z comes a",
        "return ''.join(chr((ord(c) - 97 + K) % 26 + 97) if 'a' <= c <= 'z' else c for c in x)",
        "text",
    ),
    "repeats": (
        "returns the letters that the text has at least K times, in alphabetical order",
        "return sorted(c for c in set(x) if c != ' ' and x.count(c) >= K)",
        "text",
    ),
}
MUTATIONS = (
    (" > K", " >= K"),
    (" < K", " > K"),
    ("[K:]", "[K + 1:]"),
    ("::K", "1::K"),
    (" + i", " - i"),
    ("t = K", "t = 0"),
    ("i + K", "i + K + 1"),
    ("% 26", "% 25"),
    (">= K", "> K"),
    ("y.append(t)", "y.append(n)"),
    ("sum(1 for", "max(n for"),
    ("enumerate(x)", "enumerate(x, 1)"),
    ("len(w) > K", "len(w) != K"),
)
ORDINALS = {"2": "2nd", "3": "3rd"}


def _function(rng: Random) -> tuple[str, str, str, str, str]:
    """(What it does, its source, its body with K, K, the expression that tries it): calls that nobody is shown."""
    name = rng.choice(sorted(FUNCTIONS))
    does, body, kind = FUNCTIONS[name]
    most = 9 if name in ("above", "clipped", "scaled", "running", "rotated") else 4
    k = str(rng.randint(2, most))
    tried = [
        [rng.randint(0, 12) for _ in range(rng.randint(0, 7))]
        if kind == "numbers"
        else " ".join(rng.choices(WORDS, k=rng.randint(1, 3)))
        for _ in range(8)
    ]
    does = does.replace("K-th", ORDINALS.get(k, f"{k}th")).replace("K", k)
    return does, f"def f(x):\n    {body}\n".replace("K", k), body, k, f"[f(x) for x in {tried!r}]"


def write_function(rng: Random) -> Draft:
    does, source, _, _, calls = _function(rng)
    return Draft(
        kind="write_function",
        prompt=f"Write a Python function f(x) to solve.py that {does}.",
        files={},
        programs=(f"with open('solve.py', 'w') as f:\n    f.write({source!r})",),
        check={"file": "solve.py", "calls": calls},
    )


def fix_bug(rng: Random) -> Draft:
    """A function with one thing changed in it. A change that no call shows is no bug: the gate finds out."""
    does, source, body, k, calls = _function(rng)
    right, wrong = rng.choice([(a.replace("K", k), b.replace("K", k)) for a, b in MUTATIONS if a in body])
    return Draft(
        kind="fix_bug",
        prompt=f"The function f in solve.py has a bug. Fix it: it {does}.",
        files={"solve.py": source.replace(right, wrong, 1)},
        programs=("print(open('solve.py').read())", f"with open('solve.py', 'w') as f:\n    f.write({source!r})"),
        check={"file": "solve.py", "calls": calls},
    )


def _lines(words: list[str], width: int, rng: Random) -> str:
    lines, at = [], 0
    while at < len(words):
        step = rng.randint(2, width)
        lines.append(" ".join(words[at : at + step]))
        at += step
    return "\n".join(lines) + "\n"


KINDS: Mapping[str, Kind] = {
    **{kind: followed(kind) for kind in FOLLOWED},
    "chain": chain,
    "different_words": different_words,
    "most_frequent": most_frequent,
    "longest_line": longest_line,
    "log_errors": log_errors,
    "table_sum": table_sum,
    "sorted_lines": sorted_lines,
    "even_numbers": even_numbers,
    "setting": setting,
    "joined": joined,
    "write_function": write_function,
    "fix_bug": fix_bug,
}
