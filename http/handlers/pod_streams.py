"""pods/exec, pods/attach and pods/portforward: sessions between a client and a container, through the kubelet.

    options → admission (CONNECT) → right to create → pod, container, node → connection to the kubelet → session

An upgrade is passed through to the kubelet: SPDY/3.1 always, WebSockets if the Node declares that its kubelet
translates them. For other kubelets v5.channel.k8s.io is translated to SPDY, and SPDY/3.1+portforward.k8s.io is
unpacked (KEP-4006). Three feature gates can switch this off: then all is passed through.

Source: k8s.io/kubernetes ``pkg/registry/core/pod/rest``.

Port-forward over WebSocket: SPDY between client and kubelet, carried in binary messages (KEP-4006).

The messages have no boundaries of meaning: their bytes are the bytes of the SPDY connection.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import orjson
import trio
from wsproto.frame_protocol import CloseReason

from kubechronicle.actors.external_answers import decide_with_answers
from kubechronicle.actors.writing.targets import Caller, Target
from kubechronicle.api.errors import status
from kubechronicle.api.errors.field_errors import go_quote
from kubechronicle.api.meta.options import refuse_dry_run
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.subresources.pod_streams import REQUIRES_CREATE, TRANSLATES, UNDERSTANDS, place_of, read_options
from kubechronicle.http.authorization.decision import Decision
from kubechronicle.http.context import Context, author_of
from kubechronicle.http.handlers.backend import Backend
from kubechronicle.http.handlers.kubelets import kubelet_of, read_object
from kubechronicle.http.handlers.write_request import showing_warnings
from kubechronicle.http.messages import SWITCHED, ClientDisconnected, Request, Response, Upgrade
from kubechronicle.http.proxying.backend_request import close_now
from kubechronicle.http.proxying.dialing import DialError
from kubechronicle.http.proxying.kubelets import KubeletAddress
from kubechronicle.http.proxying.switching import SwitchedHead, SwitchFailed, read_error, require_switch, switch
from kubechronicle.http.streaming import websocket
from kubechronicle.http.streaming.command_relay import relay_command
from kubechronicle.http.streaming.copying import GONE, Outlet, copy_both, receive_or_end
from kubechronicle.http.streaming.pacing import paced
from kubechronicle.http.streaming.remote_command import PROTOCOLS, V5, CommandStreams
from kubechronicle.http.streaming.translation import KubeletSession, SessionFailed, failed, translate
from kubechronicle.http.streaming.websocket import BINARY, WebSocketSession, message

PREFIX: Final = "SPDY/3.1+"
SUFFIX: Final = ".k8s.io"


def tunnelled_protocols(offers: Iterable[str]) -> list[str]:
    """Return the SPDY subprotocols among the WebSocket subprotocols that a client offers.

    >>> tunnelled_protocols(["SPDY/3.1+portforward.k8s.io", "v4.channel.k8s.io"])
    ['portforward.k8s.io']
    """
    return [each.removeprefix(PREFIX) for each in offers if each.startswith(PREFIX) and each.endswith(SUFFIX)]


async def tunnel(client: trio.abc.Stream, kubelet: trio.abc.Stream, rest: bytes, *, draining: trio.Event) -> None:
    """Carry one session until either side ends it. ``rest``: bytes of the kubelet after its 101 answer.

    Closes the client's connection, with a closing frame.
    """
    session, code = WebSocketSession(client), CloseReason.NORMAL_CLOSURE
    outlet = Outlet(kubelet, client, probe=session.probe)
    async with trio.open_nursery() as nursery:

        async def to_kubelet() -> None:
            nonlocal code
            async for parts in session.receive():
                if any(part.text for part in parts):
                    code = CloseReason.UNSUPPORTED_DATA
                    break
                if not await outlet.send(b"".join([part.data for part in parts])):
                    break
            nursery.cancel_scope.cancel()

        async def to_client() -> None:
            data = rest
            while data or (data := await receive_or_end(kubelet)):
                if not await session.send_frames(message(BINARY, data)):
                    break
                data = b""
            nursery.cancel_scope.cancel()

        async def end_abandoned() -> None:
            await outlet.wait_abandoned()
            nursery.cancel_scope.cancel()

        nursery.start_soon(to_kubelet)
        nursery.start_soon(to_client)
        nursery.start_soon(end_abandoned)
        await draining.wait()
        nursery.cancel_scope.cancel()
    await session.close(code)


SPDY: Final = "SPDY/3.1"
IDLE: Final = 4 * 60 * 60.0
"""Seconds without a byte after which a translated session ends (k8s.io/apiserver: defaultIdleConnectionTimeout)."""
ADMISSION_WAIT: Final = 60.0
NOT_FORWARDED: Final = frozenset({"content-length", "transfer-encoding"})
OWN_FIELDS: Final = frozenset({"connection", "upgrade", "date", "content-length"})
"""Fields of the 101 answer that the connection writes itself."""
WEBSOCKET_FIELDS: Final = frozenset(
    {"connection", "upgrade", "sec-websocket-key", "sec-websocket-version", "sec-websocket-protocol",
     "sec-websocket-extensions", "x-stream-protocol-version"}
)  # fmt: skip


async def stream_pod(backend: Backend, request: Request, context: Context, rt: ResourceType) -> Response:
    """Carry one session, and return when it has ended. Errors before the upgrade are Status answers."""
    info = context.info
    refuse_dry_run(context.query.get_all("dryRun"))
    options = read_options(info.subresource, context.query)
    notes = {} if context.audit is None else context.audit.annotations
    target = Target(rt=rt, namespace=info.namespace, name=info.name, subresource=info.subresource, annotations=notes)
    caller = Caller(who=author_of(request, context), deadline=trio.current_time() + ADMISSION_WAIT)
    with showing_warnings(context, target):
        await backend.store.writes.admit_connect(caller, target, options)
    await _require_create(backend, context)
    look = partial(place_of, subresource=info.subresource, options=options)
    node, path = await read_object(backend, context, "pods", info.namespace, info.name, look)
    # sic: kube-apiserver names the resource of the request.
    address = await kubelet_of(backend, context, node, revision=0, missing=rt)
    translated = _translates(backend, info.subresource, address)
    upgrade = request.upgrade
    if upgrade is None:
        raise status.bad_request("Upgrade request required")
    try:
        session = _Session(request, upgrade, backend, address, path)
        return await session.run(info.subresource, options, translated=translated)
    except* (*GONE, ClientDisconnected):
        pass  # the client or the kubelet is gone, and the other side has been closed
    return SWITCHED


def _translates(backend: Backend, subresource: str, kubelet: KubeletAddress) -> bool:
    """Tell whether this server, not the kubelet, understands WebSockets of a session. Count where it does."""
    if not backend.features.enabled(UNDERSTANDS[subresource]):
        return False
    to_kubelet = TRANSLATES in kubelet.features and backend.features.enabled(TRANSLATES)
    backend.metrics.streams.routed(subresource, to_kubelet=to_kubelet)
    return not to_kubelet


async def _require_create(backend: Backend, context: Context) -> None:
    """Reject a GET by a user without the right to create: WebSockets use GET for what SPDY does with POST."""
    if context.info.verb == "create" or not backend.features.enabled(REQUIRES_CREATE):
        return
    info = replace(context.info, verb="create")
    verdict = await decide_with_answers(partial(backend.authorization.decide, context.user, info))
    if verdict.decision is not Decision.ALLOW:
        if verdict.error:
            raise status.unknown(verdict.error)
        raise status.forbidden(info, info.name, verdict.reason)


class _Session:
    def __init__(
        self, request: Request, upgrade: Upgrade, backend: Backend, address: KubeletAddress, path: str
    ) -> None:
        self._request = request
        self._upgrade = upgrade
        self._kubelets = backend.kubelets
        self._rate = backend.session_rate
        self._metrics = backend.metrics.streams
        self._address = address
        self._path = path

    async def run(self, subresource: str, options: dict[str, Any], *, translated: bool) -> Response:
        offers = self._request.subprotocols
        if translated and subresource != "portforward" and V5 in offers:
            return await self._translate(options)
        if translated and subresource == "portforward" and any(_is_tunnelled(each) for each in offers):
            return await self._tunnel(tunnelled_protocols(offers))
        return await self._pass_through(is_command=subresource != "portforward")

    async def _pass_through(self, *, is_command: bool) -> Response:
        kubelet, head = await self._switch(self._request.method, self._forwarded_fields(frozenset()))
        async with kubelet:
            if head.status != 101:
                return await self._refused(kubelet, head)
            fields = [(name, value) for name, value in head.fields if name.lower() not in OWN_FIELDS]
            client = await self._upgrade.accept(fields)
            draining = self._request.draining
            if is_command and _is_spdy(head):
                # Not for the oldest protocols, which have no name and no Status.
                protocol = head.get("x-stream-protocol-version")
                await relay_command(client, kubelet, head.rest, protocol=protocol, draining=draining)
                return SWITCHED
            if head.rest:
                await client.send_all(head.rest)
            await copy_both(client, kubelet, draining=draining)
        return SWITCHED

    async def _tunnel(self, protocols: Sequence[str]) -> Response:
        fields = self._forwarded_fields(WEBSOCKET_FIELDS)
        fields += [("Connection", "Upgrade"), ("Upgrade", SPDY)]
        fields += [("X-Stream-Protocol-Version", each) for each in protocols]
        asked = websocket.handshake(self._request)
        kubelet, head = await self._switch("POST", fields)
        async with kubelet:
            if head.status != 101:
                self._metrics.tunnelled(head.status)
                return await self._refused(kubelet, head)
            if not _is_spdy(head):
                self._metrics.tunnelled(500)
                return _plain(500, "unable to upgrade: missing upgrade headers in response")
            chosen = head.get("x-stream-protocol-version")
            client = await websocket.accept(self._request, asked, PREFIX + chosen if chosen else None)
            self._metrics.tunnelled(101)
            await tunnel(client, kubelet, head.rest, draining=self._request.draining)
        return SWITCHED

    async def _translate(self, options: dict[str, Any]) -> Response:
        wanted = CommandStreams(*(bool(options.get(name)) for name in CommandStreams._fields))
        try:
            asked = websocket.handshake(self._request)
        except status.StatusError as error:
            self._metrics.translated(error.code)
            raise
        client = await websocket.accept(self._request, asked, V5)
        code = await translate(client, self._connect_spdy, wanted, draining=self._request.draining, idle=IDLE)
        self._metrics.translated(code)
        return SWITCHED

    async def _connect_spdy(self) -> KubeletSession:
        """Open the SPDY connection of a translated session. The failures are those of client-go's SPDY executor."""
        fields = [("User-Agent", "kubechronicle"), ("Connection", "Upgrade"), ("Upgrade", SPDY)]
        fields += [("X-Stream-Protocol-Version", each) for each in PROTOCOLS]
        fields.append(("Content-Length", "0"))
        fields.insert(0, ("Host", str(self._address)))
        try:
            kubelet, head = await switch(self._kubelets.server(self._address), "POST", self._path, fields)
        except (DialError, SwitchFailed) as error:
            raise failed(f"{self._sending}{error}") from None
        if head.status != 101 or not _is_spdy(head):
            try:
                raise _spdy_refused(await read_error(kubelet, head))
            finally:
                close_now(kubelet)
        return KubeletSession(
            paced(kubelet, self._rate), head.get("x-stream-protocol-version") or PROTOCOLS[-1], head.rest
        )

    @property
    def _sending(self) -> str:
        """Return the words before the reason why a request was not sent, those of Go's net/http."""
        url = f"https://{self._address}{self._path}"
        return f"error sending request: Post {go_quote(url)}: "

    async def _switch(self, method: str, fields: list[tuple[str, str]]) -> tuple[trio.abc.Stream, SwitchedHead]:
        """Connect to the kubelet and ask for the upgrade. StatusError 500 if that is not possible."""
        try:
            kubelet, head = await switch(self._kubelets.server(self._address), method, self._path, fields)
        except DialError as error:
            raise status.unknown(f"error dialing backend: {error}") from None
        except SwitchFailed as error:
            raise status.unknown(str(error)) from None
        try:
            require_switch(head)
        except SwitchFailed as error:
            close_now(kubelet)
            raise status.unknown(str(error)) from None
        return paced(kubelet, self._rate), head

    async def _refused(self, stream: trio.abc.Stream, head: SwitchedHead) -> Response:
        """Return the kubelet's answer that is no upgrade."""
        kind = head.get("content-type") or "text/plain; charset=utf-8"
        return Response(head.status, [("content-type", kind)], await read_error(stream, head))

    def _forwarded_fields(self, without: frozenset[str]) -> list[tuple[str, str]]:
        """Return the client's fields for the kubelet. Credentials were removed when they were checked."""
        request = self._request
        dropped = without | NOT_FORWARDED
        fields = [(n, v) for n, v in request.headers if n not in dropped and n != "x-forwarded-for"]
        before = request.headers.get_all("x-forwarded-for")
        return [*fields, ("X-Forwarded-For", ", ".join([*before, request.client[0]]))]


def _is_tunnelled(offer: str) -> bool:
    return bool(tunnelled_protocols((offer,)))


def _is_spdy(head: SwitchedHead) -> bool:
    return "upgrade" in head.get("connection").lower() and SPDY.lower() in head.get("upgrade").lower()


def _spdy_refused(body: bytes) -> SessionFailed:
    """Return the failure that a kubelet's answer means: its own Status, or its text."""
    try:
        sent = orjson.loads(body)
    except orjson.JSONDecodeError:
        sent = None
    if isinstance(sent, dict) and sent.get("kind") == "Status" and sent.get("status") == "Failure":
        return SessionFailed({**sent, "code": sent["code"] if isinstance(sent.get("code"), int) else 500})
    return failed(f"unable to upgrade connection: {body.decode('utf-8', 'replace').strip()}")


def _plain(code: int, text: str) -> Response:
    return Response(code, [("content-type", "text/plain; charset=utf-8")], (text + "\n").encode())
