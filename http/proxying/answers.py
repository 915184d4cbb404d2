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

import posixpath
import re
import zlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from html.entities import html5
from typing import Final
from urllib.parse import quote, unquote_to_bytes, urlsplit, urlunsplit

from kubechronicle.actors.fair_share import FairThreads
from kubechronicle.http.messages import Response
from kubechronicle.http.outgoing.answers import BODILESS
from kubechronicle.http.proxying.backend_request import BackendDrain, BackendFailed, BackendHead, BackendRequest

# -- links -------------------------------------------------------------------------------------------------------------
#
# Links in answers of proxied servers, rewritten to lead through this server (apimachinery util/proxy: Transport).
#
# All start tags of a page are written anew, as Go's tokenizer of HTML writes them: names in lower case, each value in
# double quotes. Everything else stays as it is, and so does the text of elements such as script and title.


LINKS: Final = {
    "a": {"href"}, "applet": {"codebase"}, "area": {"href"}, "audio": {"src"}, "base": {"href"},
    "blockquote": {"cite"}, "body": {"background"}, "button": {"formaction"}, "command": {"icon"}, "del": {"cite"},
    "embed": {"src"}, "form": {"action"}, "frame": {"longdesc", "src"}, "head": {"profile"}, "html": {"manifest"},
    "iframe": {"longdesc", "src"}, "img": {"longdesc", "src", "usemap"}, "input": {"src", "usemap", "formaction"},
    "ins": {"cite"}, "link": {"href"}, "object": {"classid", "codebase", "data", "usemap"}, "q": {"cite"},
    "script": {"src"}, "source": {"src"}, "video": {"poster", "src"},
}  # fmt: skip
"""Attributes with URLs, by element."""
RAW_TEXT: Final = frozenset(
    ("iframe", "noembed", "noframes", "noscript", "plaintext", "script", "style", "textarea", "title", "xmp")
)
"""Elements whose content is text, up to their end tag."""
MAX_PAGE: Final = 16 * 1024 * 1024
"""Bytes of a page whose links are rewritten. A longer one is passed on as it is."""
PATH_CHARACTERS: Final = "$&+,/:;=@~-_."
"""Characters that Go's net/url does not escape in a path."""

# Possessive quantifiers: a page of any kind is read in linear time.
_ATTRIBUTE = re.compile(
    r"""[\s/]*+([^\s/>][^\s/>=]*+)(?:\s*+=\s*+("[^"]*+"|'[^']*+'|(?!["'])[^\s>]++)?+)?+""", re.ASCII
)
_TAG = re.compile(
    rf"<!--.*?(?:-->|\Z)|<[!?/][^>]*+>|<([A-Za-z][^\s/>]*+)((?:{_ATTRIBUTE.pattern})*+)([\s/]*+)>|<(?=[A-Za-z])",
    re.DOTALL | re.ASCII,
)
_ENTITY = re.compile(r"&(?:#([xX][0-9a-fA-F]+|[0-9]+);?|([A-Za-z0-9]+;?)(=?))")
_ESCAPES: Final = str.maketrans({"&": "&amp;", "'": "&#39;", "<": "&lt;", ">": "&gt;", '"': "&#34;", "\r": "&#13;"})
_WRONG_ESCAPE = re.compile(r"%(?![0-9a-fA-F]{2})")
_PLAIN_PATH = re.compile(r"(?:[A-Za-z0-9$&+,/:;=@~\-_.!'()*\[\]]|%[0-9a-fA-F]{2})*")


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRewriter:
    """``prefix``: this server's path that stands for the root of the proxied server.

    ``server``: the proxied server's host and port. ``request_host``: the host that the client asked for.
    ``origin``: scheme and host for rewritten links; empty: they have none.
    """

    prefix: str
    server: str
    request_host: str
    origin: tuple[str, str] = ("", "")

    def url(self, url: str) -> str:
        """Return the URL through this server, if it has an absolute path on the proxied one.

        >>> rewriter = LinkRewriter(prefix="/p", server="10.0.0.1:80", request_host="api")
        >>> rewriter.url("/a/"), rewriter.url("b"), rewriter.url("http://10.0.0.1:80/c"), rewriter.url("http://x/c")
        ('/p/a/', 'b', '/p/c', 'http://x/c')
        >>> rewriter.url("http://api/c")
        'http://api/p/c'
        """
        try:
            scheme, host, path, query, fragment = urlsplit(url)
        except ValueError:
            return url
        if _WRONG_ESCAPE.search(path):
            return url
        decoded = unquote_to_bytes(path).decode("utf-8", "surrogateescape")
        is_other = bool(host) and host not in (self.server, self.request_host)
        if not decoded.startswith("/") or is_other:
            is_opaque = bool(scheme) and not host and not path.startswith("/")
            return url if is_opaque else urlunsplit((scheme, host, _escaped(path), query, fragment))
        if host != self.request_host or any(self.origin):
            scheme, host = self.origin
        if not decoded.startswith(self.prefix):
            joined = posixpath.normpath(f"{self.prefix}/{decoded.lstrip('/')}")
            slash = "/" if decoded.endswith("/") and not joined.endswith("/") else ""
            path = quote((joined + slash).encode("utf-8", "surrogateescape"), safe=PATH_CHARACTERS)
        return urlunsplit((scheme, host, _escaped(path), query, fragment))

    def page(self, page: bytes) -> bytes:
        """Return the HTML page (UTF-8) with rewritten links. A tag without an end, and all after it, is dropped."""
        text = page.decode("utf-8", "surrogateescape")
        parts: list[str] = []
        at = 0
        while (tag := _TAG.search(text, at)) is not None:
            parts.append(text[at : tag.start()])
            at = tag.end()
            if tag[0] == "<":
                return "".join(parts).encode("utf-8", "surrogateescape")
            if tag[1] is None:
                parts.append(tag[0])
                continue
            name, is_closed = tag[1].lower(), tag[tag.lastindex or 0].endswith("/")
            parts.append(self._tag(name, tag[2], "/>" if is_closed else ">"))
            if name in RAW_TEXT and not is_closed:
                end = re.compile(rf"</{name}[\s/>]", re.IGNORECASE).search(text, at)
                stop = len(text) if end is None else end.start()
                parts.append(text[at:stop])
                at = stop
        parts.append(text[at:])
        return "".join(parts).encode("utf-8", "surrogateescape")

    def _tag(self, name: str, attributes: str, end: str) -> str:
        wanted: Collection[str] = LINKS.get(name, ())
        parts = [f"<{name}"]
        for key, value in _ATTRIBUTE.findall(attributes):
            key = key.lower()
            value = _unescaped(value[1:-1] if value[:1] in ('"', "'") else value)
            if key in wanted:
                value = self.url(value)
            parts.append(f' {key}="{value.translate(_ESCAPES)}"')
        return "".join(parts) + end


def _escaped(path: str) -> str:
    """Return a path with all characters escaped that no URL may have."""
    if _PLAIN_PATH.fullmatch(path):
        return path
    return quote(unquote_to_bytes(path.encode("utf-8", "surrogateescape")), safe=PATH_CHARACTERS)


def _unescaped(value: str) -> str:
    """Return the value of an attribute without entities."""
    if "&" not in value:
        return value

    def entity(found: re.Match[str]) -> str:
        number, name, equals = found.groups()
        if number:
            code = int(number[1:], 16) if number[0] in "xX" else int(number)
            return chr(code) if 0 < code < 0x110000 and not 0xD800 <= code < 0xE000 else "\ufffd"
        if equals and not name.endswith(";"):
            return found[0]  # a query such as ?a=1&copy=2
        return html5[name] + equals if name in html5 else found[0]

    return _ENTITY.sub(entity, value)


def unpacked(page: bytes, encoding: str) -> bytes | None:
    """Return the page without its content encoding; None for one that is unknown, damaged or too long."""
    if not encoding:
        return page
    bits = {"gzip": 31, "deflate": -15}.get(encoding)
    if bits is None:
        return None
    try:
        unpacker = zlib.decompressobj(bits)
        text = unpacker.decompress(page, MAX_PAGE)
    except zlib.error:
        return None
    return text if unpacker.eof else None


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
