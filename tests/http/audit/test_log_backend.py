"""The log backend on real files: modes, a full disk, rotation, and files that others move."""

from __future__ import annotations

import gzip
import json
import logging
import os
import resource
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from kubechronicle.api.audit.events import AuditEvent, Line, Payload
from kubechronicle.http.audit import log_backend
from kubechronicle.http.audit.backends import AuditMetrics, BatchSettings, LogSettings, TruncateSettings
from kubechronicle.http.audit.log_backend import LogBackend
from kubechronicle.http.audit.log_file import LogFile

PATIENCE = 30.0


def event(number: int = 0, *, body: bytes = b"") -> AuditEvent | Line:
    values: dict[str, Any] = {
        "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Request", "auditID": f"id-{number}",
        "stage": "ResponseComplete", "requestURI": "/", "verb": "get", "user": {"username": "jane"},
    }  # fmt: skip
    values["requestReceivedTimestamp"] = values["stageTimestamp"] = "1970-01-01T00:00:01.000000Z"
    encoded = json.dumps(values, separators=(",", ":")).encode()
    return AuditEvent(encoded[:-1], b"}", Payload(body)) if body else encoded + b"\n"


@asynccontextmanager
async def backend(settings: LogSettings, metrics: AuditMetrics | None = None) -> AsyncIterator[LogBackend]:
    made = LogBackend(settings, metrics or AuditMetrics())
    async with trio.open_nursery() as nursery:
        await nursery.start(lambda *, task_status: made.run(task_status=task_status))
        with trio.fail_after(PATIENCE):
            yield made
        nursery.cancel_scope.cancel()


def ids(path: Path) -> list[str]:
    return [json.loads(line)["auditID"] for line in path.read_text().splitlines()]


async def test_a_blocking_event_is_in_the_file_when_it_is_delivered(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "audit.log"
    async with backend(LogSettings(path=str(path))) as log:
        for number in range(3):
            delivery = log.offer(event(number))
            assert delivery is not None
            assert await delivery.wait()
            assert ids(path) == [f"id-{each}" for each in range(number + 1)]
        assert log.waiting == 0
    assert path.stat().st_mode & 0o777 == 0o600


async def test_a_full_disk_fails_blocking_events_at_once(caplog: pytest.LogCaptureFixture) -> None:
    metrics = AuditMetrics()
    with caplog.at_level(logging.ERROR):
        async with backend(LogSettings(path="/dev/full", mode="blocking-strict"), metrics) as log:
            deliveries = [log.offer(event(number)) for number in range(2)]
            assert [await each.wait() for each in deliveries if each is not None] == [False, False]
    assert metrics.errors == {"log": 2}
    assert "No space left on device" in caplog.text
    assert 'AUDIT: id="id-1"' in caplog.text  # its main facts are in the server's log


async def test_a_batch_survives_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_backend, "RETRY", 0.01)
    monkeypatch.setattr(log_backend, "GATHER", 0.0)
    metrics, path = AuditMetrics(), tmp_path / "audit.log"
    full = True
    write = os.write

    def writing(fd: int, data: Any) -> int:
        if full and fd == log._file._fd:
            raise OSError(28, "No space left on device")
        return write(fd, data)

    settings = LogSettings(path=str(path), mode="batch", batch=BatchSettings(buffer_size=5))
    async with backend(settings, metrics) as log:
        monkeypatch.setattr(os, "write", writing)
        for number in range(7):
            assert log.offer(event(number)) is None
        assert metrics.errors == {"buffered": 2}  # these did not fit
        full = False
    assert ids(path) == [f"id-{number}" for number in range(5)]
    assert metrics.errors == {"buffered": 2}


async def test_what_waits_is_written_when_the_server_stops(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    async with backend(LogSettings(path=str(path), mode="batch")) as log:
        for number in range(1000):
            log.offer(event(number))
    assert ids(path) == [f"id-{number}" for number in range(1000)]


async def test_a_request_that_gives_up_leaves_its_event(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    async with backend(LogSettings(path=str(path))) as log:
        delivery = log.offer(event(1))
        assert delivery is not None
        with trio.CancelScope() as scope:
            scope.cancel()
            await delivery.wait()
        later = log.offer(event(2))
        assert later is not None
        assert await later.wait()
    assert ids(path) == ["id-1", "id-2"]


async def test_long_events_are_truncated_or_dropped(tmp_path: Path) -> None:
    metrics, path = AuditMetrics(), tmp_path / "audit.log"
    for limit, expected in ((400, ["id-1"]), (100, [])):
        settings = LogSettings(path=str(path), truncate=TruncateSettings(enabled=True, max_event_size=limit))
        path.unlink(missing_ok=True)
        async with backend(settings, metrics) as log:
            delivery = log.offer(event(1, body=b'"' + b"x" * 1000 + b'"'))
            assert delivery is not None
            await delivery.wait()
        assert ids(path) == expected
    assert metrics.errors == {"truncate": 1}


async def test_the_legacy_format_is_one_line_an_event(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    async with backend(LogSettings(path=str(path), format="legacy")) as log:
        delivery = log.offer(event(1))
        assert delivery is not None
        await delivery.wait()
    (line,) = path.read_text().splitlines()
    assert line.startswith('1970-01-01T00:00:01Z AUDIT: id="id-1" stage="ResponseComplete"')


# -- the file ---------------------------------------------------------------------------------------------------------


def backups(path: Path) -> list[Path]:
    return sorted(each for each in path.parent.iterdir() if each.name.startswith(f"{path.stem}-"))


def test_a_full_file_is_rotated(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    file = LogFile(str(path), max_size=100, max_backups=3, compress=True)
    for number in range(8):
        assert file.write([b"%d" % number * 60 + b"\n"]) == 1
    file.close()
    assert path.read_bytes() == b"7" * 60 + b"\n"
    assert [gzip.decompress(each.read_bytes())[:1] for each in backups(path)] == [b"4", b"5", b"6"]
    assert all(each.name.endswith(".log.gz") for each in backups(path))


def test_old_backups_are_removed_by_the_time_in_their_names(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    for name in ("audit-2020-01-01T00-00-00.000.log", "audit-2020-01-01T00-00-00.000.log.gz", "audit-other.log"):
        (tmp_path / name).write_text("old")
    recent = time.strftime("audit-%Y-%m-%dT%H-%M-%S.000.log", time.gmtime())
    (tmp_path / recent).write_text("new")
    file = LogFile(str(path), max_age=86400.0)
    file.open()
    file.close()
    assert [each.name for each in backups(path)] == sorted([recent, "audit-other.log"])


def test_two_processes_rotate_one_file_without_loss(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    files = [LogFile(str(path), max_size=1000) for _ in range(2)]
    for number in range(100):
        assert files[number % 2].write([b"%030d\n" % number]) == 1
    written = b"".join(each.read_bytes() for each in (*backups(path), path))
    assert sorted(written.split()) == [b"%030d" % number for number in range(100)]


def test_a_file_that_was_moved_away_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    file = LogFile(str(path))
    file.write([b"a\n"])
    path.rename(tmp_path / "moved")
    file.write([b"b\n"])
    assert ((tmp_path / "moved").read_bytes(), path.read_bytes()) == (b"a\n", b"b\n")


def test_a_line_that_a_full_disk_has_cut_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, write = tmp_path / "audit.log", os.write
    room = [5]

    def writing(fd: int, data: Any) -> int:
        if not room[0]:
            raise OSError(28, "No space left on device")
        taken = write(fd, bytes(data)[: room[0]])
        room[0] -= taken
        return taken

    file = LogFile(str(path))
    file.open()
    monkeypatch.setattr(os, "write", writing)
    assert file.write([b"aa\n", b"bbbb\n"]) == 1
    with pytest.raises(OSError, match="No space"):
        file.write([b"bbbb\n"])
    room[0] = 100
    assert file.write([b"bbbb\n", b"c\n"]) == 2
    assert path.read_bytes() == b"aa\nbb\nbbbb\nc\n"


def test_standard_output_is_never_rotated(capfd: pytest.CaptureFixture[str]) -> None:
    file = LogFile("-", max_size=1)
    file.write([b"a\n"])
    file.write([b"b\n"])
    file.close()
    assert capfd.readouterr().out == "a\nb\n"


async def test_a_real_limit_of_the_disk_costs_a_batch_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit of the size of files stands for a full disk: the system refuses the bytes beyond it."""
    monkeypatch.setattr(log_backend, "RETRY", 0.01)
    path, metrics = tmp_path / "audit.log", AuditMetrics()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, hard))
    try:
        async with backend(LogSettings(path=str(path), mode="batch"), metrics) as log:
            for number in range(50):
                assert log.offer(event(number)) is None  # no request waits
            await until(lambda: path.exists() and path.stat().st_size == 3000)
            assert log.waiting
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            await until(lambda: not log.waiting)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not metrics.errors
    lines = path.read_text().splitlines()
    whole = [json.loads(line)["auditID"] for line in lines if line.endswith("}")]
    assert whole == [f"id-{number}" for number in range(50)]  # in order, each once
    assert len(lines) <= 51  # a line that was cut is ended


async def test_a_disk_that_hangs_delays_only_those_who_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs, write = threading.Event(), os.write
    answered: list[int] = []

    def writing(fd: int, data: Any) -> int:
        if fd == log._file._fd:
            hangs.wait(PATIENCE)
        return write(fd, data)

    async with backend(LogSettings(path=str(tmp_path / "audit.log"))) as log:
        log.open()
        monkeypatch.setattr(os, "write", writing)

        async def recorded(number: int) -> None:
            delivery = log.offer(event(number))
            assert delivery is not None
            assert await delivery.wait()
            answered.append(number)

        async with trio.open_nursery() as nursery:
            for number in range(3):
                nursery.start_soon(recorded, number)
            for _ in range(100):
                await trio.lowlevel.checkpoint()  # others run
            assert not answered
            hangs.set()
    assert sorted(answered) == [0, 1, 2]


async def test_requests_that_come_together_share_a_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[int] = []
    write = os.write

    def writing(fd: int, data: Any) -> int:
        if fd == log._file._fd:
            writes.append(bytes(data).count(b"\n"))
        return write(fd, data)

    async with backend(LogSettings(path=str(tmp_path / "audit.log"))) as log:
        log.open()
        monkeypatch.setattr(os, "write", writing)
        deliveries = [log.offer(event(number)) for number in range(20)]
        assert all([await each.wait() for each in deliveries if each is not None])
    assert writes == [20]


async def until(condition: Callable[[], object]) -> None:
    """Wait for a state that the thread brings about."""
    with trio.fail_after(PATIENCE):
        while not condition():  # noqa: ASYNC110
            await trio.sleep(0.01)
