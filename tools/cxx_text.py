"""C++ source as text without comments or literals, for the checks in this folder."""

import pathlib
import re

SUFFIXES = {".cc", ".h", ".cu", ".cuh"}

_TOKEN = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)
      | (?P<number>\b[0-9][0-9a-zA-Z_.]*(?:'[0-9a-zA-Z_.]+)+)
      | (?P<literal>R"(?P<mark>[^(\s]*)\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
    """,
    re.S | re.X,
)


def strip_comments(text):
    """The text with comments blanked out; line numbers stay."""
    return _TOKEN.sub(lambda m: "\n" * m[0].count("\n") if m["comment"] else m[0], text)


def comments(text):
    """(line, column, whether no code stands before it, comment) of each comment, in order."""
    for match in _TOKEN.finditer(text):
        if match["comment"]:
            begin = text.rfind("\n", 0, match.start()) + 1
            before = text[begin : match.start()]
            yield text.count("\n", 0, begin) + 1, len(before), not before.strip(), match[0]


def strip_literals(text):
    """The text with comments and the insides of strings and characters blanked out."""

    def blank(match):
        lines = "\n" * match[0].count("\n")
        return lines if match["comment"] else match[0] if match["number"] else '""' + lines

    return _TOKEN.sub(blank, text)


def comment_lines(text):
    """The numbers of the lines that hold nothing but comment."""
    kept = strip_comments(text).splitlines()
    return {
        i
        for i, line in enumerate(text.splitlines(), 1)
        if line.strip() and (i > len(kept) or not kept[i - 1].strip())
    }


def sources(root, *folders):
    """Every C++ file under the folders of root, in a stable order."""
    found = []
    for folder in folders:
        top = pathlib.Path(root) / folder
        found += [path for path in top.rglob("*") if path.suffix in SUFFIXES and path.is_file()]
    return sorted(found)
