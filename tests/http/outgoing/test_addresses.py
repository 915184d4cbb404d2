"""The judge of addresses, and connections under it: every form of an address, by every kind of client."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import Any

import pytest
import trio

from kubechronicle.http.authentication.credentials import VIA, has_come_back
from kubechronicle.http.headers import via_field
from kubechronicle.http.messages import Headers, Request, Response
from kubechronicle.http.outgoing.addresses import Judge, Reach
from kubechronicle.http.outgoing.client import AskError, Outgoing
from kubechronicle.http.outgoing.networks import Network, Networks, NotAllowed
from kubechronicle.http.outgoing.remote_server import RemoteServer

ROOT = Path(__file__).resolve().parents[3]
OWN = 6443
LOOPBACKS = (
    "127.0.0.1", "127.255.0.9", "0.0.0.0", "0.1.2.3", "::1", "::", "::ffff:127.0.0.1", "::ffff:7f00:1", "::127.0.0.1",
    "::ffff:0:127.0.0.1", "2002:7f00:1::", "2002:7f00:1::5", "64:ff9b::127.0.0.1", "64:ff9b:1::127.0.0.1",
    "64:ff9b:1:7f00:0:100::", "64:ff9b:1:7f:0:1::", "64:ff9b:1:0:7f:0:100:0", "2001:0:1:2:0:0:80ff:fffe",
    "::ffff:0.0.0.0", "64:ff9b::", "64:ff9b:1::", "fd00::5efe:127.0.0.1", "2001:db8::200:5efe:127.0.0.1",
)  # fmt: skip
LINK_LOCAL = (
    "169.254.169.254",
    "fe80::1",
    "fe80::1%lo",
    "::ffff:169.254.169.254",
    "2002:a9fe:a9fe::",
    "64:ff9b::a9fe:a9fe",
)
OTHERS = ("224.0.0.1", "ff02::1", "255.255.255.255", "::ffff:224.0.0.1")
UNICAST = (
    "10.0.0.7", "192.168.1.1", "8.8.8.8", "fd00::7", "2001:db8::1", "::ffff:10.0.0.7", "64:ff9b::8.8.8.8",
    "64:ff9b:1::8.8.8.8", "fd00::5efe:8.8.8.8", "fd00::5eff:127.0.0.1", "64:ff9b:1:808:8:800::", "2002:808:808::1",
)  # fmt: skip
NAMES = ("localhost", "127.1", "0x7f.1", "0177.0.0.1", "2130706433", "0x7f000001", "017700000001", "0", "fe80::1%lo")
"""Texts that getaddrinfo takes for this machine."""


@pytest.mark.parametrize("text", [*LOOPBACKS, *LINK_LOCAL, *OTHERS])
def test_special_addresses_are_no_targets_of_proxies(text: str) -> None:
    assert not Judge().allows(text, 10250, Reach.UNICAST)
    assert Judge().allows(text, 10250, Reach.OTHERS)


@pytest.mark.parametrize("text", UNICAST)
@pytest.mark.parametrize("reach", Reach)
def test_unicast_addresses_are_targets(text: str, reach: Reach) -> None:
    judge = Judge(OWN, [("10.96.0.1", 443)])
    assert judge.allows(text, 443, reach)
    assert judge.allows(text, OWN, reach)


@pytest.mark.parametrize("text", [*LOOPBACKS, "10.96.0.1", "::ffff:10.96.0.1", "2002:a60:1::", "64:ff9b::10.96.0.1"])
def test_own_listeners_are_no_targets(text: str) -> None:
    judge = Judge(OWN, [("10.96.0.1", OWN)])
    for reach in (Reach.OTHERS, Reach.UNICAST):
        assert not judge.allows(text, OWN, reach)
    assert judge.allows(text, OWN, Reach.ANY)
    assert judge.allows(text, OWN + 1, Reach.OTHERS)


def test_an_address_of_an_interface_is_this_machine() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no other address")
        own = probe.getsockname()[0]
    assert not Judge(OWN).allows(own, OWN, Reach.UNICAST)
    assert not Judge(OWN).allows(f"::ffff:{own}", OWN, Reach.OTHERS)
    assert Judge(OWN).allows(own, OWN + 1, Reach.OTHERS)


@pytest.mark.parametrize("host", [*NAMES, "127.0.0.1", "::ffff:127.0.0.1", "::1", ""])
async def test_what_a_name_means_is_judged(host: str) -> None:
    async with trio.open_nursery() as nursery:
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = listener.socket.getsockname()[1]
        for judge, reach in ((Judge(), Reach.UNICAST), (Judge(port), Reach.OTHERS)):
            connect = Networks(judge=judge).connect_to(Network.CLUSTER, reach)
            with pytest.raises(NotAllowed, match="address not allowed"):
                await connect(host, port)
        await listener.aclose()
        nursery.cancel_scope.cancel()


async def test_a_name_is_resolved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name server that answers differently the second time changes nothing: the judged address is connected to."""
    asked: list[Any] = []

    class Resolver(trio.abc.HostnameResolver):
        async def getaddrinfo(self, host: Any, port: Any, *_: Any) -> Any:
            asked.append(host)
            address = "192.0.2.1" if len(asked) == 1 else "127.0.0.1"
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

        async def getnameinfo(self, *_: Any) -> Any:
            raise NotImplementedError

    connected: list[str] = []

    async def open_tcp_stream(host: str, port: int) -> Any:
        connected.append(host)
        raise OSError("not connected")

    monkeypatch.setattr("trio.open_tcp_stream", open_tcp_stream)
    former = trio.socket.set_custom_hostname_resolver(Resolver())
    try:
        with pytest.raises(OSError, match="not connected"):
            await Networks().connect_to(Network.CLUSTER, Reach.UNICAST)("rebinding.example.com", 80)
    finally:
        trio.socket.set_custom_hostname_resolver(former)
    assert (len(asked), connected) == (1, ["192.0.2.1"])


async def test_a_name_with_a_dead_address_leads_to_the_next() -> None:
    class Resolver(trio.abc.HostnameResolver):
        async def getaddrinfo(self, host: Any, port: Any, *_: Any) -> Any:
            kind = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
            return [(*kind, ("127.0.0.9", port)), (*kind, ("127.0.0.1", port))]

        async def getnameinfo(self, *_: Any) -> Any:
            raise NotImplementedError

    [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    former = trio.socket.set_custom_hostname_resolver(Resolver())
    try:
        connect = Networks().connect_to(Network.DIRECT)
        stream = await connect("two.example.com", listener.socket.getsockname()[1])
        assert stream.socket.getpeername()[0] == "127.0.0.1"
        await stream.aclose()
        await listener.aclose()
    finally:
        trio.socket.set_custom_hostname_resolver(former)


async def test_proxies_are_not_asked_for_own_listeners() -> None:
    """A literal address is judged before it goes to an egress proxy; names of proxied nodes are resolved here."""
    asked: list[str] = []

    async def proxy(host: str, port: int) -> trio.SocketStream:
        asked.append(host)
        raise OSError("not connected")

    networks = Networks({Network.CLUSTER: proxy}, Judge(OWN))
    for host, reach in (("0x7f.1", Reach.OTHERS), ("::ffff:127.0.0.1", Reach.OTHERS), ("localhost", Reach.UNICAST)):
        with pytest.raises(NotAllowed):
            await networks.connect_to(Network.CLUSTER, reach)(host, OWN)
    with pytest.raises(OSError, match="not connected"):
        await networks.connect_to(Network.CLUSTER)("known.to.the.proxy", 443)
    assert asked == ["known.to.the.proxy"]


async def serve(request: Request) -> Response:
    return Response(200, [], b"reached")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0x7f.1", "2130706433"])
@pytest.mark.parametrize("way", ["of its own", "another origin", "plain HTTP"])
async def test_requests_do_not_reach_own_listeners(wire: Any, nursery: trio.Nursery, host: str, way: str) -> None:
    """The client behind webhooks of all kinds, providers, audit and tracing."""
    own = await wire(serve)
    outgoing = Outgoing(networks=Networks(judge=Judge(own.server.port)))
    await nursery.start(outgoing.run)
    url = f"https://{host}:{own.server.port}/a"
    if way == "another origin":
        client = outgoing.client(RemoteServer(url="https://elsewhere.example.com", insecure=True))
    elif way == "plain HTTP":
        url = url.replace("https", "http")
        client = outgoing.client(RemoteServer(url=url, http_allowed=True))
    else:
        client = outgoing.client(RemoteServer(url=url, insecure=True))
    with pytest.raises(AskError) as raised:
        await client.ask("POST", url, body=b"{}")
    assert raised.value.why == "address not allowed"


async def test_the_service_of_this_server_may_be_a_webhook(wire: Any, nursery: trio.Nursery) -> None:
    own = await wire(serve)
    outgoing = Outgoing(networks=Networks(judge=Judge(own.server.port)))
    await nursery.start(outgoing.run)
    client = outgoing.client(RemoteServer(url=f"https://127.0.0.1:{own.server.port}", insecure=True), reach=Reach.ANY)
    assert (await client.ask(body=b"{}")).body == b"reached"


def test_a_request_that_comes_back_is_recognised() -> None:
    own, other = b"one certificate", b"another"
    assert has_come_back(Headers([(VIA, "1.0 fred"), via_field(own)]), own)
    assert has_come_back(Headers([(VIA, f"1.1 a, {via_field(own)[1]}, 1.1 b")]), own)
    assert not has_come_back(Headers([via_field(other)]), own)
    assert not has_come_back(Headers([(VIA, "1.1 kubechronicle-")]), own)
    assert not has_come_back(Headers([]), own)


def test_sockets_are_opened_in_one_place() -> None:
    """A connection that is opened elsewhere is not judged. An egress proxy's address is the operator's."""
    opening = re.compile(r"open_tcp_stream|open_ssl_over_tcp|create_connection\(|\.connect\(\(")
    found = {
        str(path.relative_to(ROOT)) for path in (ROOT / "http").rglob("*.py") if opening.search(path.read_text("utf-8"))
    }
    assert found == {"http/outgoing/networks.py", "http/proxying/egress.py"}
