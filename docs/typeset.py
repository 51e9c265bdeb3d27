"""Equations of docstrings as LaTeX, and the prose around them as Markdown, for docs/generate.py.

Docstrings write equations as plain text between words: "loss = -min(r A, clip(r, 1 - low, 1 + high) A),  r = exp(logprob - proximal)".
An equation is recognised by a relation after a name, and taken as far as it parses; it must end where a sentence may go on. Whatever
does not parse stays as it was written: nothing is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable


def listed(*lines: str) -> tuple[str, ...]:
    return tuple(" ".join(lines).split())


GREEK = listed(
    "alpha beta gamma delta epsilon zeta eta theta kappa lambda mu nu xi pi rho sigma tau phi chi psi omega Delta Sigma"
)
SYMBOLS = {"lam": r"\lambda", "eps": r"\epsilon", "inf": r"\infty"} | {name: f"\\{name}" for name in GREEK}
LETTERS = {letter: f"\\{name}" for letter, name in zip("αβγδεζηθκλμνξπρστφχψωΔΣ", GREEK, strict=True)}
FUNCTIONS = listed(
    "exp log min max clip mean std var sg sigmoid tanh softmax softplus relu sqrt rank sign median cov KL normalise const tok seq",
    "seqsum softmin Var Cov Beta whiten round floor ceil argmax abs",
)
PLAIN = ("exp", "log", "min", "max", "tanh")  # LaTeX has these itself
SUMS = {"sum": r"\sum", "prod": r"\prod"}
# Words that name a quantity wherever they stand; any other word may be prose.
WORDS = listed(
    "logprob proximal behavior reference loss weight value advantage reward ratio policy return returns score entropy target free",
    "margin cap low high old new kept age steps kept_frac least most terminated discrepancy surprise prior baseline decision factor",
    "share full power max_staleness",
)
RELATIONS = {
    "=": "=",
    "<-": r"\leftarrow",
    "~": r"\sim",
    "<": "<",
    ">": ">",
    "<=": r"\le",
    ">=": r"\ge",
    "≤": r"\le",
    "≥": r"\ge",
    "∝": r"\propto",
}
# A sentence may go on after an equation with one of these; with any other word the words were no equation.
GOES_ON = listed(
    "where with over if for and so but or of on in at as which whose when until after before per is are has the to from by while",
    "once unless then else counted within averaged summed clipped computed taken not each it its that otherwise since",
)
TOKEN = re.compile(
    r"(?P<space>\s+)|``(?P<code>[^`]+)``|(?P<number>\d+(?:\.\d+)?(?:e-?\d+)?|\.\d+)|(?P<name>[^\W\d_](?:\w*(?<!_))?(?:_\{[^}]*\})?'*~?)"
    r"|(?P<relation><-|<=|>=|[=<>~≤≥∝])|(?P<op>\*\*|\|\||[-+*/^(){}\[\]|,·‖])|(?P<other>.)",
    re.DOTALL,
)


class NoEquation(Exception):
    """What was read so far is no whole expression."""


class Reader:
    """A recursive descent over the tokens of a text, from ``at`` on."""

    def __init__(self, text: str, at: int, fields: Iterable[str]) -> None:
        self.text, self.at, self.fields, self.depth = text, at, set(fields), 0

    def peek(self) -> tuple[str, str, int, bool]:
        """(kind, token, its end, whether a space stands before it) of the next token."""
        at, spaced = self.at, False
        while match := TOKEN.match(self.text, at):
            if match.lastgroup != "space":
                return match.lastgroup or "other", match[match.lastgroup or 0], match.end(), spaced
            if "\n\n" in match[0]:
                break
            at, spaced = match.end(), True
        return "end", "", at, spaced

    def take(self, *wanted: str) -> str:
        kind, token, end, _ = self.peek()
        if token not in wanted or kind == "end":
            raise NoEquation
        self.at = end
        return token

    def sum(self) -> str:
        parts = [self.signed()]
        while (token := self.peek()[1]) in ("+", "-") and self.peek()[0] == "op":
            place = self.at
            self.take(token)
            try:
                parts.append(("+ " if token == "+" else "- ") + self.product())
            except NoEquation:
                self.at = place
                break
        return " ".join(parts)

    def signed(self) -> str:
        if self.peek()[1] == "-":
            self.take("-")
            return "-" + self.product()
        return self.product()

    def product(self, summed: bool = False) -> str:
        parts = [self.power()]
        while True:
            kind, token, _, spaced = self.peek()
            place = self.at
            try:
                if token == "/" and kind == "op":
                    if summed and re.match(r"\s*/\s*\(?(sum|prod)\b|\s*/\s*sum_", self.text[self.at :]):
                        return r" \, ".join(parts)  # sum w x / sum w: the whole sum is divided
                    self.take("/")
                    parts.append(rf"\frac{{{bare(parts.pop())}}}{{{bare(self.power())}}}")
                elif token in ("*", "·") and kind == "op":
                    self.take(token)
                    parts.append(r"\cdot " + self.power())
                elif kind in ("name", "code", "number") or (token in ("(", "[") and spaced):
                    parts.append(self.power(juxtaposed=True))
                else:
                    return r" \, ".join(parts)
            except NoEquation:
                self.at = place
                return r" \, ".join(parts)

    def power(self, juxtaposed: bool = False) -> str:
        base = self.atom(juxtaposed)
        if (self.peek()[1] == "^" and not self.peek()[3]) or self.peek()[1] == "**":
            self.take("^", "**")
            negative = self.peek()[1] == "-" and bool(self.take("-"))
            base = f"{base}^{{{'-' if negative else ''}{bare(self.atom())}}}"
        return base

    def atom(self, juxtaposed: bool = False) -> str:
        kind, token, end, _ = self.peek()
        if kind == "number":
            self.at = end
            return token
        if kind == "code" and re.fullmatch(r"\w+", token):
            self.at = end
            return name_of(token, whole=True)
        if kind == "name":
            return self.named(token, end, juxtaposed)
        if token in ("(", "[", "|", "‖", "||"):
            close = {"(": ")", "[": "]"}.get(token, token)
            self.take(token)
            self.depth += 1
            inside = self.listed() if token in ("(", "[") else self.sum()
            self.depth -= 1
            self.take(close)
            left, right = {"(": "()", "[": "[]"}.get(token, "||")
            return rf"\left{left}{inside}\right{right}"
        if kind == "other" and token in LETTERS:
            self.at = end
            return LETTERS[token]
        raise NoEquation

    def named(self, token: str, end: int, juxtaposed: bool) -> str:
        head, _, below = token.rstrip("'~").partition("_")
        depth = self.depth
        if head in SUMS:
            self.at = end
            mark = SUMS[head] + (f"_{{{subscript(below)}}}" if below else "")
            return mark + self.atom() if self.text[end : end + 1] == "(" else f"{mark} {self.product(summed=True)}"
        known = (
            token in self.fields
            or head in SYMBOLS
            or head in WORDS
            or (len(head) == 1 and token not in ("a", "I", "s"))
            or head.isupper()
        )
        calls = self.text[end : end + 1] in ("(", "[")
        if head in FUNCTIONS and token not in self.fields and (calls or below or not known):
            self.at = end
            name = (f"\\{head}" if head in PLAIN else rf"\operatorname{{{head}}}") + (
                f"_{{{subscript(below)}}}" if below else ""
            )
            try:
                return name + (self.atom() if calls else " " + self.power())
            except NoEquation:  # of nothing: (A - mean) / std
                if not re.match(r"\s*(\)|[-+*/] )", self.text[end:]):
                    raise
                self.at, self.depth = end, depth
                return name
        # A word that is no name of ours may stand alone between marks: log(above - s). Two in a row are prose.
        alone = re.match(r"\s*([-+*/=;)|(\]]|,\s)", self.text[end : end + 2] + " ") is not None
        if (
            not known
            and not (calls and len(head) <= 8)
            and not (alone and not juxtaposed and (self.depth or token in ("a", "s")))
        ):
            raise NoEquation
        self.at = end
        name = name_of(token, whole=token in self.fields or token in WORDS)
        return name + self.atom() if calls else name

    def listed(self) -> str:
        """What stands in parentheses: expressions with relations, commas and bars between them."""
        parts = [self.related(needs=False)]
        while (token := self.peek()[1]) in (",", "|", "||", "‖", ";"):
            self.take(token)
            parts.append(({",": r",\, ", ";": r";\, "}.get(token, r" \,\|\, ")) + self.related(needs=False))
        return "".join(parts)

    def related(self, needs: bool = True) -> str:
        """An expression, a relation, an expression, and more of them; without a relation where none is needed."""
        parts, found = [self.sum()], False
        while self.peek()[0] == "relation":
            token = self.peek()[1]
            place = self.at
            self.take(token)
            try:
                parts.append(f"{RELATIONS[token]} {self.sum()}")
                found = True
            except NoEquation:
                self.at = place
                break
        if needs and not found:
            raise NoEquation
        return " ".join(parts)


def bare(latex: str) -> str:
    """Without the parentheses around all of it, which a fraction or an exponent does not need."""
    if latex.startswith(r"\left(") and latex.endswith(r"\right)") and r"\left" not in latex[6:-7]:
        return latex[6:-7]
    return latex


def subscript(text: str) -> str:
    """What stands below a name: letters, Greek, words set upright, relations."""
    for plain, latex in ((" != ", r" \ne "), (" >= ", r" \ge "), (" <= ", r" \le "), (" in ", r" \in ")):
        text = text.replace(plain, latex)
    return re.sub(
        r"(?<![\\a-z])[A-Za-z]+",
        lambda word: SYMBOLS.get(word[0]) or (word[0] if len(word[0]) < 3 else rf"\mathrm{{{word[0]}}}"),
        text.strip("{}").replace("_", ","),
    )


def name_of(token: str, whole: bool = False) -> str:
    r"""A name: Greek, a letter with its subscript, or a word set upright; a field keeps its underscores."""
    primes = token[len(token.rstrip("'~")) :].replace("~", "")
    tilde = token.endswith("~")
    token = token.rstrip("'~")
    head, _, below = ("", "", "") if whole and token not in SYMBOLS else token.partition("_")
    if not head:
        escaped = token.replace("_", r"\_")
        return (SYMBOLS.get(token) or (token if len(token) == 1 else rf"\mathrm{{{escaped}}}")) + primes
    name = SYMBOLS.get(head) or (head if len(head) == 1 else rf"\mathrm{{{head}}}")
    name = rf"\tilde{{{name}}}" if tilde else name
    return name + primes + (f"_{{{subscript(below)}}}" if below else "")


START = re.compile(
    r"(?:(?<=^)|(?<=[.;:,(] )|(?<=[;,:]\s\s)|(?<=With )|(?<=with )|(?<=where )|(?<=and )|(?<=is )|(?<=\n))(?=[^\W\d])"
)


def equations(text: str, fields: Iterable[str]) -> list[tuple[int, int, str]]:
    """(start, end, LaTeX) of the equations of a paragraph."""
    found: list[tuple[int, int, str]] = []
    for match in START.finditer(text):
        if found and match.start() < found[-1][1]:
            continue
        reader = Reader(text, match.start(), fields)
        try:
            latex = reader.related()
        except NoEquation:
            continue
        if ends(text, reader.at):
            found.append((match.start(), reader.at, latex))
    return found


def ends(text: str, at: int) -> bool:
    """Whether a sentence may go on, or end, after this place."""
    rest = text[at:].lstrip()
    if not rest or re.match(r"[.;:,)](\s|$)", rest):
        return True
    word = re.match(r"[a-z]+", rest)
    return bool(word) and word[0] in GOES_ON


def markdown(text: str) -> str:
    """Prose of a docstring with its code; what Markdown would read as a mark is escaped."""
    pieces = re.split(r"(``[^`]+``)", text)
    escaped = {"*": r"\*", "$": r"\$", "<": "&lt;", "~": "&#126;"}
    return "".join(
        piece.replace("``", "`") if piece.startswith("``") else re.sub(r"[*<$~]", lambda mark: escaped[mark[0]], piece)
        for piece in pieces
    )


def paragraph(text: str, fields: Iterable[str]) -> tuple[str, int]:
    """(a paragraph as Markdown with its equations typeset, how many they are). One that begins a paragraph or is long stands apart."""
    parts, at, found = [], 0, equations(text, fields)
    for start, end, latex in found:
        before = markdown(text[at:start]).strip()
        if before:
            parts.append(before)
        stop = re.match(r"[.;:,]", text[end:])
        mark = stop[0] if stop else ""
        apart = len(latex) > (20 if start == 0 else 40)
        parts.append(f"$$\n{latex}{'.' if mark == '.' else ',' if mark else ''}\n$$" if apart else f"${latex}${mark}")
        at = end + (1 if stop else 0)
    if rest := markdown(text[at:]).strip():
        parts.append(rest)
    joined = ""
    for part in parts:
        apart = part.startswith("$$\n") or joined.endswith("\n$$")
        joined += (("\n\n" if apart else " ") if joined else "") + part
    return joined, len(found)


def docstring(text: str, fields: Iterable[str]) -> tuple[str, int]:
    """(a docstring as Markdown, the number of its typeset equations). Lists and indented blocks keep their lines."""
    written, count = [], 0
    for block in text.split("\n\n"):
        if block.startswith("    "):
            written.append(f"```text\n{block}\n```")
        elif re.match(r"\s*[-*] ", block):
            written.append(markdown(block))
        else:
            made, equations_found = paragraph(block, fields)
            written.append(made)
            count += equations_found
    return "\n\n".join(written), count
