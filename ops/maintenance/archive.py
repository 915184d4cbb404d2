"""`kubechronicle archive list | read`: show archived changes without a database."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from kubechronicle.eventlog.encryption.contents import ENCRYPTED_BODY
from kubechronicle.eventlog.integrity.erasures import is_tombstone
from kubechronicle.eventlog.integrity.verify import ArchivedRow
from kubechronicle.eventlog.records import Operation
from kubechronicle.eventlog.retention.archives import Archive, ArchiveError, archives, rows_of_all
from kubechronicle.ops import terminal
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.maintenance.flags import ARCHIVE_FILTERS

_VERBS = {Operation.CREATE: "created", Operation.UPDATE: "updated", Operation.DELETE: "deleted"}


def run(arguments: argparse.Namespace) -> int:
    """Run the command. Return exit code 1 if an archive is damaged. Raise OperatorError."""
    directory = Path(arguments.directory)
    if not directory.is_dir():
        raise OperatorError(f"there is no directory {directory}; name the one of --history-archive")
    wants = selection(arguments) if arguments.action == "read" else None
    lines: Iterator[str]
    write: Callable[[ArchivedRow], str] = _json if arguments.output == "json" else _text
    try:
        if wants is None:
            lines = _list(archives(directory), arguments.output)
        else:
            lines = map(write, selected(directory, wants))
        for line in lines:
            terminal.stdout().line(line)
    except ArchiveError as error:
        terminal.stderr().line(str(error))
        return 1
    return 0


def _list(files: list[Archive], output: str) -> Iterator[str]:
    if output == "text":
        yield "LOG                                    CLASS   REVISIONS                SIZE         FILE"
    for archive in files:
        size = archive.path.stat().st_size
        if output == "json":
            document = {
                "log": str(archive.log_id),
                "class": archive.retention_class,
                "firstRow": archive.first_row,
                "lastRow": archive.last_row,
                "hashAfter": archive.hash_after.hex(),
                "bytes": size,
                "file": str(archive.path),
            }
            yield terminal.json_text(document, indented=False)
        else:
            revisions = f"{archive.first_row}-{archive.last_row}"
            yield f"{archive.log_id}   {archive.retention_class:5}   {revisions:22}   {size:10}   {archive.path.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedChanges:
    """The changes that the flags ask for. ``filters``: values of columns."""

    bounds: range
    since: datetime | None
    until: datetime | None
    filters: Mapping[str, str]

    def matches(self, columns: Mapping[str, Any]) -> bool:
        when = columns["committed_at"]
        return (
            columns["revision"] in self.bounds
            and (self.since is None or when >= self.since)
            and (self.until is None or when <= self.until)
            and all(columns[column] == value for column, value in self.filters.items())
        )


def selection(arguments: argparse.Namespace) -> ArchivedChanges:
    """Return the selection of the flags. OperatorError."""
    filters = {column: vars(arguments)[flag.replace("-", "_")] for flag, column in ARCHIVE_FILTERS.items()}
    return ArchivedChanges(
        bounds=_bounds(arguments.revisions),
        since=_time("--since", arguments.since),
        until=_time("--until", arguments.until),
        filters={column: value for column, value in filters.items() if value is not None},
    )


def selected(directory: Path, wants: ArchivedChanges) -> Iterator[ArchivedRow]:
    """Yield the selected changes of a directory, in order. ArchiveError, OperatorError."""
    if not directory.is_dir():
        raise OperatorError(f"there is no directory {directory}; name the one of --history-archive")
    bounds = wants.bounds
    files = [each for each in archives(directory) if each.first_row < bounds.stop and each.last_row >= bounds.start]
    if len({archive.log_id for archive in files}) > 1:
        raise OperatorError("there are archives of several logs; move those of other logs away")
    yield from (row for row in rows_of_all(files) if wants.matches(row.columns))


def _text(row: ArchivedRow) -> str:
    columns = row.columns
    name = f"{columns['namespace']}/{columns['name']}" if columns["namespace"] else columns["name"]
    when = columns["committed_at"].astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    verb = _VERBS[Operation(columns["operation"])]
    erased = (
        "  (erased)" if is_tombstone(columns["object"]) else "  (encrypted)" if is_encrypted(columns["object"]) else ""
    )
    return f"{row.revision}  {when}  {columns['user_name']} {verb} {columns['resource']} {name}{erased}"


def _json(row: ArchivedRow) -> str:
    """Return the columns as JSON, with the object as an object, or null if it was erased or is encrypted."""
    document: dict[str, Any] = {**row.columns, "digest": row.digest.hex(), "hash": row.hash.hex()}
    document["operation"] = Operation(document["operation"]).name.lower()
    document["erased"] = is_tombstone(document["object"])
    stored = orjson.loads(document["object"])
    hidden = is_encrypted(row.columns["object"])
    if hidden:
        document["encryption"] = stored["encrypted"]
    document["object"] = None if document["erased"] or hidden else stored
    document["user_extra"] = orjson.loads(document["user_extra"]) if document["user_extra"] is not None else None
    return terminal.json_text(document, indented=False, zulu=True)


def is_encrypted(text: str) -> bool:
    """Tell whether an object is stored encrypted."""
    return text.startswith(ENCRYPTED_BODY.decode())


def _bounds(text: str | None) -> range:
    first, dash, last = (text or "0-").partition("-")
    if not first.isdigit() or not (last.isdigit() if dash and last else True):
        raise OperatorError(f"--revisions: must be N, N-M or N-, got {text!r}")
    return range(int(first), (int(last) if last else 2**63 - 1 if dash else int(first)) + 1)


def _time(flag: str, text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise OperatorError(f"{flag}: must be a time such as 2026-03-02T14:12:00Z, got {text!r}") from None
    return when if when.tzinfo is not None else when.replace(tzinfo=UTC)
