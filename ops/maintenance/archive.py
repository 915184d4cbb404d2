"""`kubechronicle archive list | read`: what was archived, without a database."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from kubechronicle.eventlog.integrity.erasures import is_tombstone
from kubechronicle.eventlog.integrity.verify import ArchivedRow
from kubechronicle.eventlog.records import Operation
from kubechronicle.eventlog.retention.archives import Archive, ArchiveError, archives, rows_of_all
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.maintenance.archive_flags import FILTERS

_DONE = {Operation.CREATE: "created", Operation.UPDATE: "updated", Operation.DELETE: "deleted"}


def run(given: argparse.Namespace) -> int:
    """Exit code 1: an archive is damaged. OperatorError."""
    directory = Path(given.directory)
    if not directory.is_dir():
        raise OperatorError(f"there is no directory {directory}; name the one of --history-archive")
    bounds = _bounds(given) if given.what == "read" else None
    try:
        found = archives(directory)
        lines = _listed(found, given.output) if bounds is None else _read(found, given, bounds)
        for line in lines:
            print(line)
    except ArchiveError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _listed(found: list[Archive], output: str) -> Iterator[str]:
    if output == "text":
        yield "LOG                                    CLASS   REVISIONS                SIZE         FILE"
    for archive in found:
        size = archive.path.stat().st_size
        if output == "json":
            told = {
                "log": str(archive.log_id),
                "class": archive.retention_class,
                "firstRow": archive.first_row,
                "lastRow": archive.last_row,
                "hashAfter": archive.hash_after.hex(),
                "bytes": size,
                "file": str(archive.path),
            }
            yield orjson.dumps(told).decode()
        else:
            revisions = f"{archive.first_row}-{archive.last_row}"
            yield f"{archive.log_id}   {archive.retention_class:5}   {revisions:22}   {size:10}   {archive.path.name}"


def _read(found: list[Archive], given: argparse.Namespace, bounds: range) -> Iterator[str]:
    wanted = [archive for archive in found if archive.first_row < bounds.stop and archive.last_row >= bounds.start]
    if len({archive.log_id for archive in wanted}) > 1:
        raise OperatorError("there are archives of several logs; move those of others away")
    since, until = _time("--since", given.since), _time("--until", given.until)
    equal = {column: vars(given)[flag.replace("-", "_")] for flag, column in FILTERS.items()}
    asked = {column: value for column, value in equal.items() if value is not None}
    write: Callable[[ArchivedRow], str] = _json if given.output == "json" else _text
    for row in rows_of_all(wanted):
        columns, when = row.columns, row.columns["committed_at"]
        if (
            row.revision in bounds
            and (since is None or when >= since)
            and (until is None or when <= until)
            and all(columns[column] == value for column, value in asked.items())
        ):
            yield write(row)


def _text(row: ArchivedRow) -> str:
    told = row.columns
    what = (
        f"{told['resource']} {told['namespace']}/{told['name']}"
        if told["namespace"]
        else (f"{told['resource']} {told['name']}")
    )
    when = told["committed_at"].astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    erased = "  (erased)" if is_tombstone(told["object"]) else ""
    return f"{row.revision}  {when}  {told['user_name']} {_DONE[Operation(told['operation'])]} {what}{erased}"


def _json(row: ArchivedRow) -> str:
    """The columns, the object as an object (null: erased), who it was as the log has it."""
    told: dict[str, Any] = dict(row.columns)
    told["operation"] = Operation(told["operation"]).name.lower()
    told["erased"] = is_tombstone(told["object"])
    told["object"] = None if told["erased"] else orjson.loads(told["object"])
    told["user_extra"] = orjson.loads(told["user_extra"]) if told["user_extra"] is not None else None
    return orjson.dumps({**told, "digest": row.digest.hex(), "hash": row.hash.hex()}, option=orjson.OPT_UTC_Z).decode()


def _bounds(given: argparse.Namespace) -> range:
    first, dash, last = (given.revisions or "0-").partition("-")
    if not first.isdigit() or not (last.isdigit() if dash and last else True):
        raise OperatorError(f"--revisions: must be N, N-M or N-, got {given.revisions!r}")
    return range(int(first), (int(last) if last else 2**63 - 1 if dash else int(first)) + 1)


def _time(flag: str, text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise OperatorError(f"{flag}: must be a time such as 2026-03-02T14:12:00Z, got {text!r}") from None
    return when if when.tzinfo is not None else when.replace(tzinfo=UTC)
