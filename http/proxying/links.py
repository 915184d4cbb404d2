"""Links in answers of proxied servers, rewritten to lead through this server (apimachinery util/proxy: Transport).

All start tags of a page are written anew, as Go's tokenizer of HTML writes them: names in lower case, each value in
double quotes. Everything else stays as it is, and so does the text of elements such as script and title.
"""

from __future__ import annotations

import posixpath
import re
import zlib
from collections.abc import Collection
from dataclasses import dataclass
from html.entities import html5
from typing import Final
from urllib.parse import quote, unquote_to_bytes, urlsplit, urlunsplit

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
