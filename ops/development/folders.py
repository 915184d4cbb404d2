"""docs/folders.md, made from the docstrings of the folders: ``python -m kubechronicle.ops.development.folders``."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOPS = ("api", "eventlog", "actors", "http", "ops")
HEAD = """\
# Folders

Made by `make docs` from the first sentences of the folders' docstrings. Each folder has one idea. The kinds of
Kubernetes in `api/builtin/` have a folder for each API group.
"""


def folders() -> list[Path]:
    """Return the folders with a sentence of their own: two levels, and three except in api/builtin."""
    found = [path.parent for top in TOPS for path in sorted((ROOT / top).rglob("__init__.py"))]
    levels = [(folder, len(folder.relative_to(ROOT).parts)) for folder in found]
    return [folder for folder, level in levels if level == 2 or (level == 3 and "builtin" not in folder.parts)]


def sentence(folder: Path) -> str:
    """Return the first paragraph of a folder's docstring."""
    docstring = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    return " ".join(docstring.split("\n\n")[0].split())


def page() -> str:
    """Return the page: a table for each top folder."""
    lines = [HEAD]
    for top in TOPS:
        rows = [folder for folder in folders() if folder.relative_to(ROOT).parts[0] == top]
        lines += [f"## {top}/", "", "| folder | one sentence |", "|---|---|"]
        lines += [f"| `{folder.relative_to(ROOT).as_posix()}/` | {sentence(folder)} |" for folder in rows]
        lines.append("")
    return "\n".join(lines).rstrip("\n") + "\n"


if __name__ == "__main__":
    sys.stdout.write(page())
