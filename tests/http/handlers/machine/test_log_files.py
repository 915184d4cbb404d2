"""/logs: files, listings, and paths that lead elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubechronicle.http.handlers.machine import answer_logs, is_log_path
from kubechronicle.http.messages import Request, Response


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "a&b.log").write_bytes(b"x" * 600_000)
    (tmp_path / "syslog").write_text("line\n")
    return tmp_path


async def asked(folder: Path, path: str, **headers: str) -> tuple[Response, bytes]:
    assert is_log_path(path)
    answer = await answer_logs(Request.of("GET", path, headers=headers), folder)
    body = answer.body
    if isinstance(body, bytes):
        return answer, body
    return answer, b"".join([part async for part in body])  # type: ignore[union-attr]


async def test_a_file(folder: Path) -> None:
    answer, body = await asked(folder, "/logs/syslog")
    assert (answer.status, body) == (200, b"line\n")
    headers = dict(answer.headers)
    assert headers["content-type"] == "text/plain; charset=utf-8"
    again, _ = await asked(folder, "/logs/syslog", **{"if-modified-since": headers["last-modified"]})
    assert again.status == 304
    answer, body = await asked(folder, "/logs/app/a&b.log")
    assert (len(body), dict(answer.headers)["content-length"]) == (600_000, "600000")


@pytest.mark.parametrize(
    ("field", "status", "body", "content_range"),
    [
        ("bytes=1-2", 206, b"in", "bytes 1-2/5"),
        ("bytes=3-", 206, b"e\n", "bytes 3-4/5"),
        ("bytes=-2", 206, b"e\n", "bytes 3-4/5"),
        ("bytes=0-99", 206, b"line\n", "bytes 0-4/5"),
        ("bytes=9-,1-1", 206, b"i", "bytes 1-1/5"),
        ("bytes=0-0,2-2", 200, b"line\n", None),  # several
        ("bytes=5-", 416, b"invalid range: failed to overlap\n", "bytes */5"),
        ("bytes=2-1", 416, b"invalid range\n", "bytes */5"),
        ("bytes=-", 416, b"invalid range\n", "bytes */5"),
        ("bytes=1-" + "9" * 30, 416, b"invalid range\n", "bytes */5"),
        ("lines=1-2", 416, b"invalid range\n", "bytes */5"),
    ],
)
async def test_ranges(folder: Path, field: str, status: int, body: bytes, content_range: str | None) -> None:
    answer, received = await asked(folder, "/logs/syslog", range=field)
    assert (answer.status, received) == (status, body)
    headers = dict(answer.headers)
    assert headers.get("content-range") == content_range
    assert headers.get("content-length", str(len(body))) == str(len(body))


async def test_a_range_of_a_file_that_has_changed_is_the_whole_file(folder: Path) -> None:
    answer, _ = await asked(folder, "/logs/syslog")
    modified = dict(answer.headers)["last-modified"]
    same = {"range": "bytes=0-0", "if-range": modified}
    assert (await asked(folder, "/logs/syslog", **same))[1] == b"l"
    assert (await asked(folder, "/logs/syslog", **same | {"if-range": '"tag"'}))[1] == b"line\n"
    (folder / "empty.log").touch()
    assert (await asked(folder, "/logs/empty.log", range="bytes=0-"))[0].status == 200


async def test_listings(folder: Path) -> None:
    answer, body = await asked(folder, "/logs/")
    assert dict(answer.headers)["content-type"] == "text/html; charset=utf-8"
    assert body.endswith(b'<pre>\n<a href="app/">app/</a>\n<a href="syslog">syslog</a>\n</pre>\n')
    _, body = await asked(folder, "/logs/app/")
    assert b'<a href="a&b.log">a&amp;b.log</a>' in body


@pytest.mark.parametrize(
    ("path", "status", "location"),
    [
        ("/logs", 301, "logs/"),
        ("/logs/app", 301, "app/"),
        ("/logs/syslog/", 301, "../syslog"),
        ("/logs/none", 404, None),
        ("/logs/syslog/x", 404, None),
        ("/logs/../etc/passwd", 400, None),
    ],
)
async def test_other_paths(folder: Path, path: str, status: int, location: str | None) -> None:
    answer, _ = await asked(folder, path)
    assert (answer.status, dict(answer.headers).get("location")) == (status, location)


async def test_other_methods(folder: Path) -> None:
    assert (await answer_logs(Request.of("POST", "/logs/syslog"), folder)).status == 405
