"""The ConfigMap that tells extension API servers how clients are known: made, completed, never narrowed."""

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


async def test_without_a_proxy_the_clients_authorities_are_told(autojump_clock: MockClock) -> None:
    async with running(trusting(CLIENTS)) as server:
        assert await data(server) == {"client-ca-file": pem(CLIENTS)}
        hook = "/readyz/poststarthook/start-cluster-authentication-info-controller"
        assert (await server.ask("GET", hook)).status == 200
        quiet = server.log.store.revision
        await trio.sleep(50)
        assert server.log.store.revision == quiet


async def test_all_of_a_proxy_is_told(autojump_clock: MockClock) -> None:
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


async def test_it_is_made_again_and_put_right(autojump_clock: MockClock) -> None:
    async with running(trusting(CLIENTS)) as server:
        before = await data(server)
        await server.delete(MAP)
        assert await data(server) == before
        await server.patch(MAP, {"data": {"client-ca-file": "nonsense", "requestheader-client-ca-file": "{"}})
        assert await data(server) == before
        await server.patch(MAP, {"data": None})
        assert await data(server) == before


async def test_what_another_server_trusts_stays_until_it_expires(autojump_clock: MockClock) -> None:
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
        found = await data(server)
        assert found["client-ca-file"] == pem(OTHERS, CLIENTS)
        assert json.loads(found["requestheader-allowed-names"]) == ["other", "front"]
        assert json.loads(found["requestheader-group-headers"]) == ["X-Remote-Group"]


async def test_new_authorities_are_told_without_a_restart(autojump_clock: MockClock) -> None:
    trusted = [CLIENTS]
    trust = Trust(client_ca=lambda: [ca.certificate for ca in trusted])
    async with running(trust) as server:
        assert await data(server) == {"client-ca-file": pem(CLIENTS)}
        trusted[:] = [OTHERS]
        assert await data(server) == {"client-ca-file": pem(CLIENTS, OTHERS)}


async def test_two_servers_agree(autojump_clock: MockClock) -> None:
    async with running(trusting(CLIENTS)) as first, running(trusting(OTHERS), first.log.store) as second:
        found = await data(first)
        assert set(x509.load_pem_x509_certificates(found["client-ca-file"].encode())) == {
            CLIENTS.certificate,
            OTHERS.certificate,
        }
        quiet = first.log.store.revision
        assert await data(second) == found
        assert first.log.store.revision == quiet


def test_too_much_of_others_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    held = {"client-ca-file": pem(OTHERS, PROXIES)}
    assert trusting(CLIENTS).data(held) == {"client-ca-file": pem(OTHERS, PROXIES, CLIENTS)}
    monkeypatch.setattr(authentication_trust, "MAX_BYTES", len(pem(CLIENTS)) + 1)
    assert trusting(CLIENTS).data(held) == {"client-ca-file": pem(CLIENTS)}


def test_nobody_is_trusted() -> None:
    assert Trust().data({}) == {}
