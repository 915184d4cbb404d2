"""Links in answers of proxied servers, rewritten to lead through this server (apimachinery util/proxy: Transport)."""

from __future__ import annotations

import posixpath
import re
import zlib
from dataclasses import dataclass
from html import escape, unescape
from typing import Final
from urllib.parse import urlsplit, urlunsplit

LINKS: Final = {
    "a": {"href"}, "applet": {"codebase"}, "area": {"href"}, "audio": {"src"}, "base": {"href"},
    "blockquote": {"cite"}, "body": {"background"}, "button": {"formaction"}, "command": {"icon"}, "del": {"cite"},
    "embed": {"src"}, "form": {"action"}, "frame": {"longdesc", "src"}, "head": {"profile"}, "html": {"manifest"},
    "iframe": {"longdesc", "src"}, "img": {"longdesc", "src", "usemap"}, "input": {"src", "usemap", "formaction"},
    "ins": {"cite"}, "link": {"href"}, "object": {"classid", "codebase", "data", "usemap"}, "q": {"cite"},
    "script": {"src"}, "source": {"src"}, "video": {"poster", "src"},
}  # fmt: skip
"""Attributes with URLs, by element."""
MAX_PAGE: Final = 16 * 1024 * 1024
"""Bytes of a page whose links are rewritten. A longer one is passed on as it is."""

_TAG = re.compile(rb"<!--.*?-->|<([A-Za-z][A-Za-z0-9]*)((?:[^<>\"']|\"[^\"]*\"|'[^']*')*)>", re.DOTALL)
_ATTRIBUTE = re.compile(r"([^\s=\"'/<>]+)(\s*=\s*)(\"[^\"]*\"|'[^']*'|[^\s\"'>]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRewriter:
    """``prefix``: this server's path that stands for the root of the proxied server. ``hosts``: names that it has."""

    prefix: str
    hosts: frozenset[str]

    def url(self, url: str) -> str:
        """Return the URL through this server, if it has an absolute path on the proxied one; else as it is.

        >>> rewriter = LinkRewriter(prefix="/p", hosts=frozenset({"10.0.0.1:80"}))
        >>> rewriter.url("/a/"), rewriter.url("b"), rewriter.url("http://10.0.0.1:80/c"), rewriter.url("http://x/c")
        ('/p/a/', 'b', '/p/c', 'http://x/c')
        """
        try:
            parts = urlsplit(url)
        except ValueError:
            return url
        if (parts.netloc and parts.netloc not in self.hosts) or not parts.path.startswith("/"):
            return url
        path = parts.path
        if not path.startswith(self.prefix):
            joined = posixpath.normpath(f"{self.prefix}/{path.lstrip('/')}")
            path = f"{joined}/" if path.endswith("/") and not joined.endswith("/") else joined
        return urlunsplit(("", "", path, parts.query, parts.fragment))

    def page(self, page: bytes) -> bytes:
        """Return the HTML page (UTF-8) with rewritten links."""
        return _TAG.sub(self._tag, page)

    def _tag(self, tag: re.Match[bytes]) -> bytes:
        if tag[1] is None:
            return tag[0]  # a comment
        wanted = LINKS.get(tag[1].decode("ascii").lower())
        if wanted is None:
            return tag[0]

        def attribute(found: re.Match[str]) -> str:
            if found[1].lower() not in wanted:
                return found[0]
            value = found[3][1:-1] if found[3][:1] in "\"'" else found[3]
            return f'{found[1]}="{escape(self.url(unescape(value)))}"'

        try:
            attributes = tag[2].decode()
        except UnicodeDecodeError:
            return tag[0]
        return b"<%b%b>" % (tag[1], _ATTRIBUTE.sub(attribute, attributes).encode())


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
