"""Output of commands: one module writes to the terminal, and it escapes everything but its own colours."""

from __future__ import annotations

import ast
import io
from pathlib import Path

import pytest

from kubechronicle.ops import terminal
from kubechronicle.ops.terminal import Output, Painted

ROOT = Path(__file__).resolve().parents[2]
# The terminal's module, the server's log, and the audit log, which may be standard output. Tools of developers are not
# shipped.
WRITERS = {"ops/terminal.py", "ops/klog.py", "http/audit/log_file.py"}
TOOLS = ("ops/bench/", "ops/development/")
STREAMS = {"stdout", "stderr", "__stdout__", "__stderr__"}


def modules() -> list[Path]:
    found = [
        path for top in ("api", "eventlog", "actors", "http", "ops") for path in sorted((ROOT / top).rglob("*.py"))
    ]
    names = {path: path.relative_to(ROOT).as_posix() for path in found}
    return [path for path, name in names.items() if name not in WRITERS and not name.startswith(TOOLS)]


def prints(tree: ast.AST) -> list[int]:
    """Return the lines that print past the terminal's module."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if (isinstance(node, ast.Name) and node.id in ("print", "pprint"))
        or (isinstance(node, ast.Attribute) and node.attr in STREAMS and ast.unparse(node.value) == "sys")
        or (isinstance(node, ast.ImportFrom) and node.module == "sys" and STREAMS & {one.name for one in node.names})
        or (isinstance(node, ast.Attribute) and ast.unparse(node) in ("os.write", "sys.displayhook"))
    ]


def test_one_module_writes_to_the_terminal() -> None:
    found = {path.relative_to(ROOT).as_posix(): prints(ast.parse(path.read_text())) for path in modules()}
    assert {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.parametrize("source", ["print(1)", "import sys\nsys.stderr.write('x')", "from sys import stdout"])
def test_the_check_finds_what_prints(source: str) -> None:
    assert prints(ast.parse(source))


def test_a_line_is_one_line_with_colours_of_its_own() -> None:
    stream = io.StringIO()
    out = Output(stream, colours=True)
    out.line("a\x1b[31m\n", Painted("b\x1b[0m\r", "old"), Painted("", "old"), "\u202ec")
    assert stream.getvalue() == "a\\x1b[31m\\n\x1b[31mb\\x1b[0m\\r\x1b[0m\\u202ec\n"


def test_documents_keep_their_values() -> None:
    stream = io.StringIO()
    out = Output(stream)
    out.json({"a\x9b": "\u202e\U000e0041"})
    out.yaml({"a\x9b": "\u202e\r", "b": "one\ntwo\n"})
    assert stream.getvalue() == (
        '{"a\\u009b":"\\u202e\\udb40\\udc41"}\n' + '"a\\u009b": "\\u202e\\r"\nb: |\n  one\n  two\n'
    )


def test_a_traceback_is_printable(capsys: pytest.CaptureFixture[str]) -> None:
    error = ValueError("\x1b[2J")
    terminal.show_traceback(ValueError, error, None)
    assert capsys.readouterr().err == "ValueError: \\x1b[2J\n"
