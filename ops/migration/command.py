"""`kubechronicle import`: found an empty log with the objects of another cluster (docs/move-from-etcd.md).

kubechronicle import --from-etcd snapshot.db --encryption-provider-config encryption.yaml
kubechronicle import --from-kubeconfig old-cluster.conf
… --verify        compare only, after an import
"""

from __future__ import annotations

import argparse
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import trio

from kubechronicle.eventlog.encryption.contents import OWN_GROUP
from kubechronicle.eventlog.errors import TransformError
from kubechronicle.eventlog.postgres.connection import migrate, open_session
from kubechronicle.eventlog.transfer.founding import Founder
from kubechronicle.eventlog.transfer.loader import loading
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.migration import cluster_command
from kubechronicle.ops.migration.bbolt import BadFile
from kubechronicle.ops.migration.database import DatabasePlace, finish, founding_of, verify
from kubechronicle.ops.migration.etcd_file import open_etcd_file
from kubechronicle.ops.migration.etcd_import import EtcdImport, expected_of
from kubechronicle.ops.postgres.database import maintenance_database
from kubechronicle.ops.postgres.embedded_postgres import embedded_postgres
from kubechronicle.ops.progress import ProgressLine
from kubechronicle.ops.server.encryption.chains import encryption_plan
from kubechronicle.ops.server.encryption.encryption import Encryption
from kubechronicle.ops.settings.settings import Settings


async def run(settings: Settings, arguments: argparse.Namespace) -> int:
    """Run the command. Exit code 1: some objects could not be imported, or differ. Raise OperatorError."""
    if arguments.report and not arguments.verify:
        _check_report(Path(arguments.report))
    async with _place(settings) as place:
        try:
            if arguments.from_etcd:
                return await _run_etcd(place, arguments)
            return await cluster_command.run(place, arguments)
        except TransformError as error:
            raise OperatorError(f"--encryption-provider-config: {error}") from None


@asynccontextmanager
async def _place(settings: Settings) -> AsyncIterator[DatabasePlace]:
    """Yield the migrated database and the running encryption. An embedded database is made if there is none."""
    encryption = Encryption(encryption_plan(settings))
    embedded = settings.database_url is None
    async with embedded_postgres(Path(settings.data_dir)) if embedded else maintenance_database(settings) as url:
        await migrate(url)
        async with trio.open_nursery() as nursery:
            await nursery.start(encryption.run)
            yield DatabasePlace(url, encryption)
            nursery.cancel_scope.cancel()


async def _run_etcd(place: DatabasePlace, arguments: argparse.Namespace) -> int:
    path = Path(arguments.from_etcd)
    prefix = f"/{arguments.etcd_prefix.strip('/')}/".encode()
    try:
        with open_etcd_file(path) as file:
            work = EtcdImport(file, prefix, place.encryption.contents)
            with ProgressLine("surveying", "values") as progress:
                progress(0, 0)
                await work.survey()
            if not file.verified:
                work.report.notes.append("the file has no checksum: it is no snapshot, but a copy of etcd's database")
            if arguments.verify:
                return await _verify_etcd(place, work)
            return await _import_etcd(place, work, arguments)
    except OSError as error:
        raise OperatorError(f"--from-etcd: cannot read {path}: {error.strerror}") from None
    except BadFile as error:
        raise OperatorError(f"--from-etcd: {path}: {error}") from None


async def _import_etcd(place: DatabasePlace, work: EtcdImport, arguments: argparse.Namespace) -> int:
    started = time.monotonic()
    async with open_session(place.url, application="kubechronicle import") as session, loading(session) as loader:
        founder = Founder(loader, f"etcd snapshot {work.file.path.name}", datetime.now(UTC))
        with ProgressLine("importing", "values") as progress:
            await work.write(founder, progress)
    return finish(work.report, founder, time.monotonic() - started, work.compacted, arguments.report)


async def _verify_etcd(place: DatabasePlace, work: EtcdImport) -> int:
    expected, source = await expected_of(work), str(work.file.path)
    async with open_session(place.url, application="kubechronicle import") as session:
        founding = await founding_of(session)
        live = {row[0] for row in await session.fetch("select distinct resource from kubechronicle.live")}
    if founding is None or founding.last != work.compacted:
        raise OperatorError(f"the database was not founded by an import of {source}")
    resources = (
        live | {key.resource for key in expected.objects} | {key.resource for key, _ in expected.changes.values()}
    )
    resources = {resource for resource in resources if not resource.endswith(OWN_GROUP)}
    return await verify(place, expected, resources=resources, after=work.compacted, until=work.revision, source=source)


def _check_report(path: Path) -> None:
    if not path.parent.is_dir():
        raise OperatorError(f"--report: there is no directory {path.parent}")
