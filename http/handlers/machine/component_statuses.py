"""componentstatuses: whether the scheduler, the controller manager and the store answer, asked at each request.

    scheduler, controller-manager    GET https://127.0.0.1:PORT/healthz at their default ports
    etcd-0                           the log in Postgres, under the name by which clients know the store

Nothing is stored. Source: k8s.io/kubernetes ``pkg/registry/core/componentstatus``, ``pkg/probe/http``.
"""

from __future__ import annotations

from typing import Any, Final

import orjson
import trio

from kubechronicle.actors.reading.reads import Listing, Reads, Selection, Watching
from kubechronicle.api.errors import status
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.errors import LogError
from kubechronicle.eventlog.records import Key
from kubechronicle.http.proxying.backend_request import BackendFailed, BackendHead, BackendRequest, close_now
from kubechronicle.http.proxying.dialing import BackendServer, ClientFiles, ClientTls, DialError

RESOURCE: Final = "componentstatuses"
PORTS: Final = {"controller-manager": 10257, "scheduler": 10259}
STORE: Final = "etcd-0"
HOST: Final = "127.0.0.1"
WAIT: Final = 20.0
"""Seconds for one answer."""
MOST_TEXT: Final = 10 * 1024
"""Bytes of an answer that are shown."""

_INSECURE = ClientTls(ClientFiles())
"""The certificates of these components are not verified, as in kube-apiserver."""


class ComponentStatuses:
    """An ObjectReads of the components. ``reads``: of the store."""

    def __init__(self, reads: Reads) -> None:
        self._reads = reads

    async def get(self, rt: ResourceType, namespace: str, name: str, *, revision: int | None = None) -> Entry | None:
        return await self._entry(name) if name in (*PORTS, STORE) else None

    async def list(
        self,
        rt: ResourceType,
        selection: Selection,
        *,
        limit: int = 0,
        continue_token: str = "",
        revision: int | None = None,
        exact: bool = False,
    ) -> Listing:
        """List all components in the order of their names, on one page. Each is asked at the same time."""
        found: dict[str, Entry] = {}

        async def ask(name: str) -> None:
            found[name] = await self._entry(name)

        async with trio.open_nursery() as nursery:
            for name in (*PORTS, STORE):
                nursery.start_soon(ask, name)
        entries = await selection.select([found[name] for name in sorted(found)])
        return Listing(entries=entries, revision=self._reads.applied)

    async def watch(
        self,
        rt: ResourceType,
        selection: Selection,
        *,
        revision: int | None,
        initial: bool | None = None,
        bookmarks: bool = False,
    ) -> Watching:
        raise status.method_not_supported(rt, "watch")

    async def _entry(self, name: str) -> Entry:
        condition = await (self._store() if name == STORE else _component(PORTS[name]))
        found = {
            "kind": "ComponentStatus",
            "apiVersion": "v1",
            "metadata": {"name": name},
            "conditions": [{"type": "Healthy", **condition}],
        }
        return Entry(Key(RESOURCE, "", name), "", 0, 0, 1, orjson.dumps(found), {}, {"metadata.name": name})

    async def _store(self) -> dict[str, Any]:
        try:
            with trio.fail_after(WAIT):
                await self._reads.wait_consistent()
        except (LogError, StatusError) as error:
            return {"status": "False", "error": str(error)}
        except trio.TooSlowError:
            return {"status": "False", "error": "context deadline exceeded"}
        return {"status": "True", "message": "ok"}


async def _component(port: int) -> dict[str, Any]:
    url = f"https://{HOST}:{port}/healthz"
    try:
        with trio.fail_after(WAIT):
            head, text = await _healthz(port)
    except (DialError, BackendFailed) as error:
        return {"status": "False", "message": f'Get "{url}": {error}'}
    except trio.TooSlowError:
        return {"status": "False", "message": f'Get "{url}": context deadline exceeded'}
    if 200 <= head.status < 400:
        return {"status": "True", "message": text}
    return {"status": "False", "message": f"HTTP probe failed with statuscode: {head.status}"}


async def _healthz(port: int) -> tuple[BackendHead, str]:
    stream = await BackendServer(host=HOST, port=port, tls=_INSECURE.context(), wait=WAIT).dial()
    try:
        asked = BackendRequest(stream, method="GET")
        await asked.send_head("/healthz", [("host", f"{HOST}:{port}"), ("user-agent", "kube-probe"), ("accept", "*/*")])
        head, text = await asked.receive_head(), b""
        while len(text) < MOST_TEXT and (part := await asked.next_part()):
            text += part
        return head, text[:MOST_TEXT].decode("utf-8", "replace")
    finally:
        close_now(stream)
