"""Log lines have klog's format: severity, time, process, file and line, quoted message, key=value."""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Iterator

import pytest

from kubechronicle.ops import klog

LINE = re.compile(r'([IWEF])\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ test_klog\.py:\d+\] ("(?:[^"\\]|\\.)*")(.*)')


@pytest.fixture
def output() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = io.StringIO()
    klog.set_up(verbosity=2, stream=stream)
    yield stream
    root.handlers[:] = handlers
    root.setLevel(level)


def test_a_line_with_values(output: io.StringIO) -> None:
    logging.getLogger("kubechronicle.x").warning("Said %s", 'a "word"', extra={"pid": 3, "dir": "/a b", "ok": True})
    match = LINE.fullmatch(output.getvalue().rstrip("\n"))
    assert match
    assert match.groups() == ("W", r'"Said a \"word\""', ' pid=3 dir="/a b" ok=true')


def test_a_line_break_cannot_forge_a_line(output: io.StringIO) -> None:
    logging.getLogger("kubechronicle.x").info("a\nE1121 forged", extra={"value": "b\nc"})
    assert output.getvalue().count("\n") == 1


def test_texts_of_clients_are_printable(output: io.StringIO) -> None:
    hostile = "\x1b[2J\x9b31m\u202e\u2028\x7f\r\nI1121 forged"
    logging.getLogger("kubechronicle.x").info("a %s", hostile, extra={"agent": hostile})
    text = output.getvalue()
    assert text.count("\n") == 1
    assert text.rstrip("\n").isprintable()


def test_a_traceback_cannot_forge_a_line(output: io.StringIO) -> None:
    try:
        raise RuntimeError("why\nI1121 forged\r\x1b[2J")
    except RuntimeError:
        logging.getLogger("kubechronicle.x").exception("It failed")
    first, *lines = output.getvalue().removesuffix("\n").split("\n")
    assert all(line.startswith("    ") for line in lines)
    assert all(map(str.isprintable, [first, *lines]))


def test_verbosity_shows_down_to_info_minus_v(output: io.StringIO) -> None:
    log = logging.getLogger("kubechronicle.x")
    log.log(logging.INFO - 2, "shown")
    log.log(logging.INFO - 3, "not shown")
    assert '"shown"' in output.getvalue()
    assert "not shown" not in output.getvalue()


def test_a_traceback_follows_its_line(output: io.StringIO) -> None:
    try:
        raise RuntimeError("why")
    except RuntimeError:
        logging.getLogger("kubechronicle.x").exception("It failed")
    assert output.getvalue().startswith("E")
    assert output.getvalue().rstrip().endswith("RuntimeError: why")


def test_a_message_may_have_lines_of_its_own(output: io.StringIO) -> None:
    logging.getLogger("x").info("Trace[1]: a\x1b\nTrace[1]: END", extra={"unquoted": True})
    first, second = output.getvalue().splitlines()
    assert first.endswith("] Trace[1]: a\\x1b")
    assert second == "Trace[1]: END"
