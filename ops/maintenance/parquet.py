"""`kubechronicle archive parquet`: changes as a Parquet file, for DuckDB, pandas and Spark.

    kubechronicle archive parquet /srv/history -o old.parquet          of the archives in a directory
    kubechronicle archive parquet --data-dir data -o now.parquet       of the log itself

Both have the columns of COLUMNS, so one query reads both. Objects are JSON texts; contents that were erased, or are
encrypted, are null. The writer is pyarrow, which is optional: this module is imported when the command is given.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final

from kubechronicle.eventlog.integrity.erasures import is_tombstone
from kubechronicle.eventlog.integrity.verify import CHUNK
from kubechronicle.eventlog.postgres.connection import open_session
from kubechronicle.eventlog.postgres.migrate import check_schema
from kubechronicle.eventlog.records import Operation
from kubechronicle.ops import terminal
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.maintenance.archive import is_encrypted, selected, selection
from kubechronicle.ops.maintenance.databases import tell_of_others
from kubechronicle.ops.postgres.database import maintenance_database
from kubechronicle.ops.settings.settings import Settings

try:
    import pyarrow
    from pyarrow import parquet
except ImportError:
    raise OperatorError("this needs a further package: pip install 'kubechronicle[parquet]'") from None

TEXTS: Final = (
    "resource", "namespace", "name", "uid", "user_name", "user_uid", "impersonator", "verb", "request_uri",
    "user_agent", "source_address", "field_manager", "audit_id", "reason", "class", "user_extra", "object",
)  # fmt: skip
NUMBERS: Final = ("create_revision", "previous_revision", "version", "cause")
SCHEMA: Final = pyarrow.schema(
    [
        ("revision", pyarrow.int64()),
        ("committed_at", pyarrow.timestamp("us", tz="UTC")),
        ("operation", pyarrow.string()),
        *((name, pyarrow.int64()) for name in NUMBERS),
        *((name, pyarrow.string()) for name in TEXTS),
        ("user_groups", pyarrow.list_(pyarrow.string())),
        ("erased", pyarrow.bool_()),
        ("digest", pyarrow.binary()),
        ("hash", pyarrow.binary()),
    ]
)
MOST_ROWS, MOST_BYTES = 20_000, 32 * 1024 * 1024
"""Of a row group, which is held in memory."""
_LOG: Final = "select * from kubechronicle.log where revision between $1 and $2 order by revision"
Row = Mapping[str, Any]


async def run(settings: Settings, arguments: argparse.Namespace) -> int:
    """Write the file. Raise OperatorError; ArchiveError: an archive is damaged."""
    wants = selection(arguments)
    path = Path(arguments.output)
    with _Writer(path) as writer:
        if arguments.directory:
            for row in selected(Path(arguments.directory), wants):
                writer.add(row.columns | {"digest": row.digest, "hash": row.hash})
        else:
            await _add_log(settings, writer, wants.bounds, wants.matches)
    terminal.stdout().line(f"wrote {writer.count} changes to {path}")
    return 0


async def _add_log(settings: Settings, writer: _Writer, bounds: range, matches: Callable[[Row], bool]) -> None:
    async with (
        maintenance_database(settings) as url,
        open_session(url, application="kubechronicle archive") as session,
    ):
        await check_schema(session)
        async with session.snapshot():
            await session.execute("set local statement_timeout = 0")
            rows = session.rows(
                _LOG, bounds.start, bounds.stop - 1, chunk=CHUNK, size=lambda row: len(row["object"] or "")
            )
            async with aclosing(rows) as chunks:
                async for chunk in chunks:
                    for row in chunk:
                        if matches(row):
                            writer.add(row)
        await tell_of_others(session)


class _Writer:
    """Writes rows in groups. A file that is not finished is removed."""

    def __init__(self, path: Path) -> None:
        self.count = 0
        self._path = path
        self._unfinished = path.with_name(f".{path.name}.unfinished")
        self._rows: list[dict[str, Any]] = []
        self._bytes = 0

    def __enter__(self) -> _Writer:
        try:
            self._file = self._unfinished.open("wb")
        except OSError as error:
            raise OperatorError(f"--output: cannot write {self._path}: {error.strerror}") from None
        self._parquet = parquet.ParquetWriter(self._file, SCHEMA, compression="zstd")
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._write()
        self._parquet.close()
        self._file.close()
        if kind is None:
            self._unfinished.replace(self._path)
        else:
            self._unfinished.unlink()

    def add(self, row: Row) -> None:
        body = row["object"]
        erased = body is not None and is_tombstone(body)
        hidden = body is None or erased or is_encrypted(body)
        made = {name: row[name] for name in (*NUMBERS, *TEXTS, "revision", "committed_at")}
        made |= {
            "operation": Operation(row["operation"]).name.lower(),
            "user_groups": list(row["user_groups"] or ()),
            "object": None if hidden else body,
            "erased": erased,
            "digest": bytes(row["digest"]),
            "hash": bytes(row["hash"]),
        }
        self._rows.append(made)
        self._bytes += len(body or "")
        self.count += 1
        if len(self._rows) >= MOST_ROWS or self._bytes >= MOST_BYTES:
            self._write()

    def _write(self) -> None:
        if self._rows:
            self._parquet.write_table(pyarrow.Table.from_pylist(self._rows, schema=SCHEMA))
            self._rows, self._bytes = [], 0
