"""The one reader of answers: framings, connections that are kept, and answers that cannot be read."""

from __future__ import annotations

import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubechronicle.http.outgoing.answers import AnswerEnded, AnswerError, AnswerReader

OK = b"HTTP/1.1 200 OK\r\n"
LENGTH = b"Content-Length: 5\r\n\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("method", "answer", "body", "kept"),
    [
        ("GET", OK + LENGTH + b"hello", b"hello", True),
        ("GET", OK + b"Connection: keep-alive, Close\r\n" + LENGTH + b"hello", b"hello", False),
        ("GET", OK + b"Connection: x\r\nConnection: close\r\n" + LENGTH + b"hello", b"hello", False),
        ("GET", OK + b"Connection: closed\r\n" + LENGTH + b"hello", b"hello", True),
        ("GET", OK.replace(b"1.1", b"1.0") + LENGTH + b"hello", b"hello", False),
        ("GET", OK.replace(b"1.1", b"1.0") + b"Connection: Keep-Alive\r\n" + LENGTH + b"hello", b"hello", True),
        ("GET", OK + LENGTH + b"hello!", b"hello", False),
        ("GET", OK + LENGTH + b"hello" + OK + LENGTH, b"hello", False),
        ("GET", b"HTTP/1.1 103 Early\r\nA: b\r\n\r\n" + OK + LENGTH + b"hello", b"hello", True),
        ("GET", OK + CHUNKED + b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nConnection: close\r\n\r\n", b"abcde", True),
        ("GET", OK + b"\r\nto the end", b"to the end", False),
        ("HEAD", OK + LENGTH, b"", True),
        ("HEAD", OK + CHUNKED, b"", True),
        ("HEAD", OK + b"\r\n", b"", True),
        ("HEAD", OK + LENGTH + b"hello", b"", False),
        ("CONNECT", OK + b"\r\n", b"", True),
        ("GET", b"HTTP/1.1 204 No Content\r\n\r\n", b"", True),
        ("GET", b"HTTP/1.1 304 Not Modified\r\n" + LENGTH, b"", True),
    ],
)
@pytest.mark.parametrize("step", [1, 7, 1000])
def test_framings(method: str, answer: bytes, body: bytes, kept: bool, step: int) -> None:
    reader = AnswerReader(method)
    for at in range(0, len(answer), step):
        reader.feed(answer[at : at + step])
    assert reader.complete or reader.until_end
    assert reader.kept == kept
    reader.end()
    assert (reader.take(), reader.complete, reader.kept) == (body, True, False)
    assert reader.get("a") == "", "the fields of an interim answer are dropped"


def test_equal_fields_are_kept() -> None:
    reader = AnswerReader("GET")
    reader.feed(OK + b"Warning: a\r\nX: y\r\nWARNING: b\r\n" + LENGTH)
    assert reader.fields == [("warning", "a"), ("x", "y"), ("warning", "b"), ("content-length", "5")]
    assert reader.headers() == {"warning": "a, b", "x": "y", "content-length": "5"}


def read(answer: bytes) -> None:
    reader = AnswerReader("GET")
    for at in range(0, len(answer), 1000):
        reader.feed(answer[at : at + 1000])


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "malformed"),
        (OK + CHUNKED + b"zz\r\n", "malformed"),
        (OK + b"Content-Length: 5\r\n" + CHUNKED, "malformed"),
        (OK + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n", "malformed"),
        (OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n", "unsupported transfer encoding"),
        (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", "malformed"),
        (b"HTTP/1.1 200 " + b"x" * 100_000, "too long"),
        (OK + b"X: " + b"x" * 100_000, "too long"),
        (OK + CHUNKED + b"0\r\nX: " + b"x" * 100_000, "too long"),
        (OK + CHUNKED + b"1;x=" + b"x" * 100_000, "too long"),
        (b"HTTP/1.1 102 Processing\r\n\r\n" * 5000, "too long"),
    ],
)
def test_answers_that_cannot_be_read(answer: bytes, why: str) -> None:
    with pytest.raises(AnswerError, match=why):
        read(answer)


@pytest.mark.parametrize(
    ("answer", "begun"),
    [
        (b"", False),
        (OK, True),
        (b"HTTP/1.1 100 Continue\r\n\r\n", True),
        (OK + LENGTH + b"hell", True),
        (OK + CHUNKED + b"2\r\n{}\r\n", True),
    ],
)
def test_answers_that_break_off(answer: bytes, begun: bool) -> None:
    reader = AnswerReader("GET")
    if answer:
        reader.feed(answer)
    with pytest.raises(AnswerEnded) as caught:
        reader.end()
    assert caught.value.begun == begun


@given(rest=st.binary(max_size=20), cut=st.integers(1, 90))
def test_an_upgrade_leaves_the_bytes_of_the_other_protocol(rest: bytes, cut: int) -> None:
    head = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"
    answer = head + rest
    reader, after = AnswerReader("GET"), b""
    for part in filter(None, (answer[:cut], answer[cut:])):
        if reader.status:
            after += part
        else:
            reader.feed(part)
    assert (reader.status, reader.kept) == (101, False)
    assert reader.rest is not None
    assert reader.rest + after == rest


def test_a_complete_answer_is_freed_at_once() -> None:
    reader = AnswerReader("GET")
    reader.feed(OK + LENGTH + b"hello")
    freed = weakref.ref(reader)
    del reader
    assert freed() is None
