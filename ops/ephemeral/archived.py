"""`serve --ephemeral --ephemeral-archive PATH[@N-M]`: history from archives instead of an empty log, to read alone.

PATH is a directory of archives (eventlog/retention/archives.py), or a Parquet file of `kubechronicle archive parquet`.
The server has no loops and takes no writes. So all questions about history are answered by the same code over a log and
over an archive: the commands with --archive start such a server for one command (ops/client/archives.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from kubechronicle.eventlog.integrity.verify import ArchivedRow
from kubechronicle.eventlog.memory.archived import (
    LONG_CLASS,
    NO_CONTENTS,
    SHORT_CLASS,
    ArchivedStore,
    Coverage,
    store_of,
)
from kubechronicle.eventlog.records import Operation
from kubechronicle.eventlog.retention.archives import archives, rows_of_all
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.memory_limit import memory_limit

FLAG: Final = "--ephemeral-archive"
SHARE: Final = 4
"""The objects of archives may take one part of so many of the memory limit: with their views and answers, a half."""
EVERYTHING: Final = range(2**63 - 1)
PARQUET: Final = ".parquet"
BATCH: Final = 2000  # rows of a Parquet file that are decoded at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A store with archived changes. ``text``: what it has, in one line."""

    store: ArchivedStore
    text: str


def load(given: str) -> Loaded:
    """Return the archived changes that PATH[@N-M] names. OperatorError, ArchiveError."""
    path, bounds = _parsed(given)
    most = memory_limit() // SHARE
    if path.is_dir():
        files = archives(path)
        if not files:
            raise OperatorError(f"{FLAG}: there are no archives in {path}; name the directory of --history-archive")
        if len({each.log_id for each in files}) > 1:
            raise OperatorError(f"{FLAG}: there are archives of several logs in {path}; move those of other logs away")
        coverage = Coverage.of(files).within(bounds)
        wanted = [each for each in files if any(each.first_row < one.stop for one in coverage.of_class.values())]
        store = store_of(rows_of_all(wanted), coverage, most_bytes=most)
    elif path.suffix == PARQUET and path.is_file():
        coverage = Coverage(of_class=dict.fromkeys((LONG_CLASS, SHORT_CLASS), bounds))
        store = store_of(_rows_of_parquet(path), coverage, most_bytes=most)
        first = next(store.rows(after=0)).revision
        coverage = coverage.within(range(first, store.revision + 1))
        store.set_marks(coverage)
    else:
        raise OperatorError(f"{FLAG}: {path} is neither a directory of archives nor a file of `archive parquet`")
    return Loaded(store=store, text=_text(path, store, coverage))


def _parsed(given: str) -> tuple[Path, range]:
    """Return path and revisions of PATH[@N-M]."""
    found = re.fullmatch(r"(.+)@(\d+)-(\d*)", given)
    if found is None:
        return Path(given).expanduser().absolute(), EVERYTHING
    last = int(found[3]) if found[3] else EVERYTHING[-1]
    return Path(found[1]).expanduser().absolute(), range(int(found[2]), last + 1)


def _text(path: Path, store: ArchivedStore, coverage: Coverage) -> str:
    parts = {name: f"{each.start}-{each.stop - 1}" for name, each in coverage.of_class.items()}
    long, short = parts.get(LONG_CLASS, "none"), parts.get(SHORT_CLASS, "none")
    text = f"{path}: revisions {long}, from {_time(store.first)} to {_time(store.last)}"
    if short != long:
        text += f"; of events and leases {short}"
    if not coverage.is_whole:
        text += "; objects without a change in them are missing, and so is what an object was before its first one"
    if coverage.left_out:
        left_out = (f"{each.first}-{each.last} of {each.retention_class}" for each in coverage.left_out)
        text += f"; left out, before a gap: {', '.join(left_out)}"
    if path.suffix == PARQUET:
        text += "; what the filters of the export left out is missing"
    return text


def _time(moment: datetime | None) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if moment is not None else "?"


def _rows_of_parquet(path: Path) -> Iterator[ArchivedRow]:
    """Yield the rows of a file of `kubechronicle archive parquet`. OperatorError."""
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise OperatorError("this needs a further package: pip install 'kubechronicle[parquet]'") from None
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=BATCH):
                yield from map(_row, batch.to_pylist())
    except (ArrowException, OSError, KeyError, ValueError) as error:
        raise OperatorError(f"{path} is no file of `kubechronicle archive parquet`: {error}") from None


def _row(row: dict[str, Any]) -> ArchivedRow:
    body = row["object"] if row["object"] is not None else NO_CONTENTS.decode()
    columns = row | {"object": body, "operation": Operation[row["operation"].upper()]}
    return ArchivedRow(
        revision=row["revision"],
        columns=columns,
        digest=row["digest"],
        hash=row["hash"],
        content=row["digest"],
        erased=bool(row["erased"]),
    )
