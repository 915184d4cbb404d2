"""The answer of another server as one of this server: for nodes, pods, Services and extension API servers.

Lives here: which fields pass, and the framing of the body. Invariant: fields of one connection and of framing never
pass (RFC 9110 §7.6.1, §8.6): the length is declared once, by the connection that sends the body, or here for a body
that is passed on in parts.

    204, 304             no body, no length
    HEAD                 no body; the length that the server has declared
    all has arrived      the body, whose length the connection declares
    others               the parts as they come, with the declared length if there is one
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kubechronicle.actors.fair_share import FairThreads
from kubechronicle.http.messages import Response
from kubechronicle.http.proxying.backend_request import (
    BODILESS,
    BackendDrain,
    BackendFailed,
    BackendHead,
    BackendRequest,
)
from kubechronicle.http.proxying.links import MAX_PAGE, LinkRewriter, unpacked

# -- pages -------------------------------------------------------------------------------------------------------------
#
# HTML pages of proxied servers: read whole, and their links rewritten. Long ones are rewritten in a thread.

MOST_AT_ONCE: Final = 32 * 1024
"""Bytes of a page that is rewritten on the event loop: a millisecond."""
PAGES: Final = FairThreads(1)
"""The thread that rewrites longer ones. More would compete with the event loop for the interpreter's lock."""


def is_page(head: BackendHead) -> bool:
    """Tell whether the links of an answer's body are to be rewritten."""
    return head.get("content-type").partition(";")[0].strip() == "text/html" and not head.get("location")


async def rewritten_page(asked: BackendRequest, head: BackendHead, rewriter: LinkRewriter) -> bytes | None:
    """Return the page with rewritten links; None if it is in an unknown encoding or too long, and nothing is read.

    Raises BackendFailed. The request is over, unless the result is None.
    """
    encoding = head.get("content-encoding")
    if encoding not in ("", "gzip", "deflate") or (head.length or 0) > MAX_PAGE:
        return None
    page = bytearray()
    try:
        while part := await asked.next_part():
            page += part
            if len(page) > MAX_PAGE:
                raise BackendFailed(f"the page is longer than {MAX_PAGE} bytes")
    finally:
        asked.release()
    if len(page) <= MOST_AT_ONCE and not encoding:
        return rewriter.page(bytes(page))
    return await PAGES.run(_rewritten, bytes(page), encoding, rewriter)


def _rewritten(page: bytes, encoding: str, rewriter: LinkRewriter) -> bytes:
    text = unpacked(page, encoding)
    if text is None:
        raise BackendFailed("the page is damaged or too long")
    return rewriter.page(text)


# -- answers -----------------------------------------------------------------------------------------------------------

HOP_BY_HOP: Final = frozenset(
    ("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer",
     "transfer-encoding", "upgrade")
)  # fmt: skip
"""Fields of one connection (RFC 9110 §7.6.1)."""
OWN_FIELDS: Final = HOP_BY_HOP | {"content-length", "date", "audit-id"}
"""Fields of an answer that this server sets itself."""
CACHE_CONTROL: Final = ("cache-control", "no-cache, private")
"""A field of every answer of kube-apiserver, even beside one of the proxied server."""
CROSS_ORIGIN: Final = "access-control-"


def named_by_connection(values: Iterable[str]) -> set[str]:
    """Return the fields that a message's Connection fields name: they are of that connection, too.

    >>> sorted(named_by_connection(["close, X-Trace", "keep-alive"]))
    ['close', 'keep-alive', 'x-trace']
    """
    return {name.strip().lower() for value in values for name in value.split(",")}


def passed_fields(fields: Iterable[tuple[str, str]], rewriter: LinkRewriter | None = None) -> list[tuple[str, str]]:
    """Return the fields for the client, names in lower case. ``rewriter``: of the place of a redirection."""
    named = [(name.lower(), value) for name, value in fields]
    dropped = OWN_FIELDS | named_by_connection(value for name, value in named if name == "connection")
    return [
        CACHE_CONTROL,
        *(
            (name, rewriter.url(value) if rewriter is not None and name == "location" else value)
            for name, value in named
            if name not in dropped and not name.startswith(CROSS_ORIGIN)
        ),
    ]


async def answer_of(
    asked: BackendRequest, head: BackendHead, rewriter: LinkRewriter, drain: BackendDrain, *, cleanly: bool = False
) -> Response:
    """Return the answer for the client, which owns the request. Raises BackendFailed for an HTML page that is cut.

    ``drain``: ends the body when the server stops; ``cleanly``: as if it were complete.
    """
    fields, page = passed_fields(head.fields, rewriter), is_page(head)
    if page and asked.method != "HEAD":
        text = await rewritten_page(asked, head, rewriter)
        if text is not None:
            return Response(head.status, [field for field in fields if field[0] != "content-encoding"], text)
    if asked.method != "HEAD" or head.status in BODILESS:
        whole = asked.whole_body()
        if whole is not None:
            return Response(head.status, fields, whole)
    if head.length is not None and not (page and asked.method == "HEAD"):  # the page has other links and another length
        fields.append(("content-length", str(head.length)))
    body = asked.body()
    body.end_with(drain, cleanly=cleanly)
    return Response(head.status, fields, body)
