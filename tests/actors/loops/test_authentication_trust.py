"""The ConfigMap by which extension API servers authenticate clients: created, completed, never narrowed."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
from certificates import CA
from cryptography import x509
from in_process import InProcess, open_server
from trio.testing import MockClock

from kubechronicle.actors.loops.bootstrap import authentication_trust
from kubechronicle.actors.loops.bootstrap.authentication_trust import Trust
from kubechronicle.eventlog.memory.store import MemoryStore

MAP = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
CLIENTS, PROXIES, OTHERS, EXPIRED = CA("clients"), CA("proxies"), CA("others"), CA("expired", days=-0.5)
LISTS = {
    "requestheader-allowed-names": ["front"],
    "requestheader-username-headers": ["X-Remote-User"],
    "requestheader-uid-headers": ["X-Remote-Uid"],
    "requestheader-group-headers": ["X-Remote-Group"],
    "requestheader-extra-headers-prefix": ["X-Remote-Extra-"],
}
LONG = 100.0  # virtual seconds


def trusting(*clients: CA, proxies: tuple[CA, ...] = (), **lists: Any) -> Trust:
    return Trust(
        client_ca=lambda: [ca.certificate for ca in clients],
        proxy_ca=(lambda: [ca.certificate for ca in proxies]) if proxies else None,
        proxy_lists={**LISTS, **lists} if proxies else None,
    )


def pem(*cas: CA) -> str:
    return b"".join(ca.pem for ca in cas).decode()


def running(trust: Trust, store: MemoryStore | None = None) -> Any:
    return open_server(store, loops=True, other={"trust": trust})


async def data(server: InProcess) -> Any:
    await trio.sleep(LONG)
    return (await server.get(MAP))["data"]


async def test_without_a_proxy_only_client_authorities_are_published(autojump_clock: MockClock) -> None:
    async with running(trusting(CLIENTS)) as server:
        assert await data(server) == {"client-ca-file": pem(CLIENTS)}
        hook = "/readyz/poststarthook/start-cluster-authentication-info-controller"
        assert (await server.ask("GET", hook)).status == 200
        quiet = server.log.store.revision
        await trio.sleep(50)
        assert server.log.store.revision == quiet


async def test_all_settings_of_a_proxy_are_published(autojump_clock: MockClock) -> None:
    async with running(trusting(CLIENTS, proxies=(PROXIES,))) as server:
        assert await data(server) == {
            "client-ca-file": pem(CLIENTS),
            "requestheader-client-ca-file": pem(PROXIES),
            "requestheader-allowed-names": '["front"]',
            "requestheader-username-headers": '["X-Remote-User"]',
            "requestheader-uid-headers": '["X-Remote-Uid"]',
            "requestheader-group-headers": '["X-Remote-Group"]',
            "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
        }


async def test_a_deleted_or_changed_map_is_restored(autojump_clock: MockClock) -> None:
    async with running(trusting(CLIENTS)) as server:
        before = await data(server)
        await server.delete(MAP)
        assert await data(server) == before
        await server.patch(MAP, {"data": {"client-ca-file": "nonsense", "requestheader-client-ca-file": "{"}})
        assert await data(server) == before
        await server.patch(MAP, {"data": None})
        assert await data(server) == before


async def test_authorities_of_another_server_stay_until_they_expire(autojump_clock: MockClock) -> None:
    ours = trusting(CLIENTS, proxies=(PROXIES,))
    async with running(ours) as server:
        held = await data(server)
        theirs = {
            **held,
            "client-ca-file": pem(EXPIRED, OTHERS, OTHERS),
            "requestheader-allowed-names": '["other","front"]',
            "requestheader-group-headers": "no list",
        }
        await server.patch(MAP, {"data": theirs})
        published = await data(server)
        assert published["client-ca-file"] == pem(OTHERS, CLIENTS)
        assert json.loads(published["requestheader-allowed-names"]) == ["other", "front"]
        assert json.loads(published["requestheader-group-headers"]) == ["X-Remote-Group"]


async def test_new_authorities_are_published_without_a_restart(autojump_clock: MockClock) -> None:
    trusted = [CLIENTS]
    trust = Trust(client_ca=lambda: [ca.certificate for ca in trusted])
    async with running(trust) as server:
        assert await data(server) == {"client-ca-file": pem(CLIENTS)}
        trusted[:] = [OTHERS]
        assert await data(server) == {"client-ca-file": pem(CLIENTS, OTHERS)}


async def test_two_servers_agree(autojump_clock: MockClock) -> None:
    async with running(trusting(CLIENTS)) as first, running(trusting(OTHERS), first.log.store) as second:
        published = await data(first)
        assert set(x509.load_pem_x509_certificates(published["client-ca-file"].encode())) == {
            CLIENTS.certificate,
            OTHERS.certificate,
        }
        quiet = first.log.store.revision
        assert await data(second) == published
        assert first.log.store.revision == quiet


def test_too_many_bytes_of_others_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    held = {"client-ca-file": pem(OTHERS, PROXIES)}
    assert trusting(CLIENTS).data(held) == {"client-ca-file": pem(OTHERS, PROXIES, CLIENTS)}
    monkeypatch.setattr(authentication_trust, "MAX_BYTES", len(pem(CLIENTS)) + 1)
    assert trusting(CLIENTS).data(held) == {"client-ca-file": pem(CLIENTS)}


def test_without_authorities_the_map_is_empty() -> None:
    assert Trust().data({}) == {}
