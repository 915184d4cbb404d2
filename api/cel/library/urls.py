"""CEL's ``url()`` and the parts of a URL (library kubernetes.urls)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Final

from kubechronicle.api.cel.declarations import Library
from kubechronicle.api.cel.errors import EvaluationError
from kubechronicle.api.cel.library import costs
from kubechronicle.api.cel.library.address_parser import AddressError
from kubechronicle.api.cel.library.address_parser import parse as parse_address
from kubechronicle.api.cel.types import BOOL, STRING, CelType, Function, Overload, list_of, map_of, object_type
from kubechronicle.api.errors.field_errors import go_quote

# -- go url parser -----------------------------------------------------------------------------------------------------
#
# A URL parser that accepts the same texts as Go's ``net/url`` (1.26), and so as Kubernetes, with Go's errors.
#
# Lives here: ``parse`` (Go's ParseRequestURI followed by Parse), and the parts of a URL. Not here: the functions that
# CEL offers (urls.py).
#
# Texts are processed as UTF-8 bytes. Bytes that are no UTF-8 after unescaping become replacement characters.


URL: Final = object_type("kubernetes.URL", {})

_ALPHANUMERIC: Final = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_UNRESERVED: Final = _ALPHANUMERIC + b"-._~"
PATH: Final = frozenset(_UNRESERVED + b"$&+,/:;=@")
HOST: Final = frozenset(_UNRESERVED + b"!\"$&'()*+,:;<=>[]")
USER: Final = frozenset(_UNRESERVED + b"$&+,;=")
QUERY: Final = frozenset(_UNRESERVED)
FRAGMENT: Final = frozenset(_UNRESERVED + b"!$&()*+,/:;=?@")
"""The bytes without escaping in each part of a URL."""

_KEPT_ENCODED: Final = frozenset(b"!$&'()*+,;=:@[]%")
_ESCAPE: Final = re.compile(rb"%(.?.?)", re.DOTALL)
_SCHEME: Final = re.compile("[a-zA-Z][a-zA-Z0-9+.-]*:")
_USERINFO: Final = re.compile(r"[A-Za-z0-9\-._:~!$&'()*+,;=%@]*")
_PORT: Final = re.compile("(?::[0-9]*)?")
_CONTROL: Final = re.compile("[\x00-\x1f\x7f]")


class UrlError(ValueError):
    """Not a URL. The text is Go's."""


@dataclass(frozen=True, slots=True, eq=False)
class Url:
    """The parts of a URL. URLs are equal if their texts (``str()``) are.

    ``path`` and ``fragment`` are unescaped; ``raw_path`` and ``raw_fragment`` are in the original spelling."""

    cel_type: ClassVar[CelType] = URL

    scheme: str = ""
    opaque: str = ""
    user: str | None = None
    host: str = ""
    path: bytes = b""
    raw_path: str = ""
    query: str = ""
    bare_query: bool = False
    fragment: bytes = b""
    raw_fragment: str = ""
    no_host: bool = False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Url) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def hostname(self) -> str:
        """Return the host without port and brackets."""
        return self._host_and_port()[0]

    def port(self) -> str:
        """Return the port as digits, empty if there is none."""
        return self._host_and_port()[1]

    def _host_and_port(self) -> tuple[str, str]:
        host, colon, port = self.host.rpartition(":")
        if not colon or _PORT.fullmatch(f":{port}") is None:
            host, port = self.host, ""
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        return host, port

    def escaped_path(self) -> str:
        """Return the path in its original spelling if that is validly encoded, else re-encoded."""
        if self.raw_path and _well_encoded(self.raw_path, PATH):
            return self.raw_path
        return "*" if self.path == b"*" else escape(self.path, PATH)

    def parameters(self) -> dict[str, list[str]]:
        """Return the query's values by name, without pairs that are not validly encoded."""
        found: dict[str, list[str]] = {}
        for pair in self.query.split("&"):
            if not pair or ";" in pair:
                continue
            name, _, value = pair.partition("=")
            try:
                key, text = unescape(name, QUERY), unescape(value, QUERY)
            except UrlError:
                continue
            found.setdefault(_text(key), []).append(_text(text))
        return found

    def __str__(self) -> str:
        start = f"{self.scheme}:" if self.scheme else ""
        if self.opaque:
            start += self.opaque
        else:
            if (self.scheme or self.host or self.user is not None) and not (
                self.no_host and not self.host and self.user is None
            ):
                if self.host or self.path or self.user is not None:
                    start += "//"
                if self.user is not None:
                    start += f"{self.user}@"
                start += escape(self.host.encode(), HOST)
            path = self.escaped_path()
            if path and not path.startswith("/") and self.host:
                start += "/"
            if not start and ":" in path.partition("/")[0]:
                start = "./"  # otherwise a first part with a colon would be a scheme
            start += path
        query = f"?{self.query}" if self.query or self.bare_query else ""
        return f"{start}{query}{self._escaped_fragment()}"

    def _escaped_fragment(self) -> str:
        if not self.fragment:
            return ""
        if self.raw_fragment and _well_encoded(self.raw_fragment, FRAGMENT):
            return f"#{self.raw_fragment}"
        return f"#{escape(self.fragment, FRAGMENT)}"


def check(text: str) -> None:
    """Raise UrlError if ``text`` is no absolute URL or absolute path (Go's ParseRequestURI)."""
    try:
        _parse(text, absolute=True)
    except UrlError as problem:
        raise UrlError(f"parse {go_quote(text)}: {problem}") from None


def parse(text: str) -> Url:
    """Return the parts of an absolute URL or an absolute path. UrlError if it is neither."""
    check(text)
    return parse_reference(text)


def parse_reference(text: str) -> Url:
    """Return the parts of a URL, which may be relative (Go's Parse). UrlError if it is none."""
    whole, _, fragment = text.partition("#")
    try:
        url = _parse(whole, absolute=False)
    except UrlError as problem:
        raise UrlError(f"parse {go_quote(whole)}: {problem}") from None
    if not fragment:
        return url
    try:
        plain = unescape(fragment, FRAGMENT)
    except UrlError as problem:
        raise UrlError(f"parse {go_quote(text)}: {problem}") from None
    parts = {name: getattr(url, name) for name in Url.__slots__}
    return Url(**parts | {"fragment": plain, "raw_fragment": fragment})


def _text(raw: bytes) -> str:
    return raw.decode(errors="replace")


def _parse(text: str, *, absolute: bool) -> Url:
    if _CONTROL.search(text) is not None:
        raise UrlError("net/url: invalid control character in URL")
    if not text and absolute:
        raise UrlError("empty url")
    if text == "*":
        return Url(path=b"*")
    if text.startswith(":"):
        raise UrlError("missing protocol scheme")
    found = _SCHEME.match(text)
    scheme = found.group()[:-1].lower() if found is not None else ""
    rest = text[len(scheme) + 1 :] if scheme else text
    bare_query = rest.endswith("?") and rest.count("?") == 1
    rest, _, query = rest.partition("?")
    if not rest.startswith("/"):
        if scheme:
            return Url(scheme=scheme, opaque=rest, query=query, bare_query=bare_query)
        if absolute:
            raise UrlError("invalid URI for request")
        if ":" in rest.partition("/")[0]:
            raise UrlError("first path segment in URL cannot contain colon")
    user, host, no_host = None, "", False
    if rest.startswith("//") and (scheme or (not absolute and not rest.startswith("///"))):
        authority, slash, path = rest[2:].partition("/")
        rest = slash + path
        user, host = _authority(scheme, authority)
    elif scheme and rest.startswith("/"):
        no_host = True
    path_bytes = unescape(rest, PATH)
    raw_path = "" if escape(path_bytes, PATH) == rest else rest
    return Url(scheme, "", user, host, path_bytes, raw_path, query, bare_query, no_host=no_host)


def _authority(scheme: str, authority: str) -> tuple[str | None, str]:
    user, at, host = authority.rpartition("@")
    host = _read_host(scheme, host)
    if not at:
        return None, host
    if _USERINFO.fullmatch(user) is None:
        raise UrlError("net/url: invalid userinfo")
    name, colon, password = user.partition(":")
    encoded = escape(unescape(name, USER), USER)
    return f"{encoded}:{escape(unescape(password, USER), USER)}" if colon else encoded, host


def _read_host(scheme: str, host: str) -> str:
    opened = host.rfind("[")
    if opened > 0:
        raise UrlError("invalid IP-literal")
    if opened == 0:
        return _bracketed(host)
    first, last = host.find(":"), host.rfind(":")
    if first >= 0:
        # Only http and https are limited to one colon; other schemes allow lists of hosts.
        _check_port(host[first if scheme in ("http", "https") else last :])
    return _text(unescape(host, HOST))


def _bracketed(host: str) -> str:
    closed = host.rfind("]")
    if closed < 0:
        raise UrlError("missing ']' in host")
    port = host[closed + 1 :]
    _check_port(port)
    inside = host[1:closed]
    start = inside.find("%25")
    if start >= 0:
        name = unescape(inside[:start], HOST) + unescape(inside[start:], HOST, zone=True)
    else:
        name = unescape(inside, HOST)
    try:
        address = parse_address(_text(name))
    except AddressError as problem:
        raise UrlError(f"invalid host: {problem}") from None
    if address.family == 4:
        raise UrlError("invalid IP-literal")
    return f"[{_text(name)}]{port}"


def _check_port(text: str) -> None:
    if _PORT.fullmatch(text) is None:
        raise UrlError(f"invalid port {go_quote(text)} after host")


def unescape(text: str, part: frozenset[int], *, zone: bool = False) -> bytes:
    """Return the bytes of an escaped text of that part of a URL. UrlError if it is not validly escaped."""
    raw = text.encode(errors="replace")
    position = 0
    while position < len(raw):
        if raw[position] == 0x25:
            _check_escape(raw[position : position + 3], part, zone)
            position += 3
            continue
        if part is HOST and raw[position] < 0x80 and raw[position] not in HOST:
            raise UrlError(f"invalid character {go_quote(chr(raw[position]))} in host name")
        position += 1
    if part is QUERY:
        raw = raw.replace(b"+", b" ")
    return _ESCAPE.sub(lambda found: bytes([int(found[1], 16)]), raw) if b"%" in raw else raw


def _check_escape(found: bytes, part: frozenset[int], zone: bool) -> None:
    hexadecimal = re.fullmatch(b"%[0-9a-fA-F]{2}", found) is not None
    if hexadecimal and part is HOST and found != b"%25":
        value = int(found[1:], 16)
        hexadecimal = (value == 0x20 or value in HOST) if zone else value >= 0x80
    if not hexadecimal:
        raise UrlError(f"invalid URL escape {go_quote(_text(found))}")


def escape(raw: bytes, part: frozenset[int]) -> str:
    """Return the bytes as text, with escapes where that part of a URL requires them."""
    return "".join(chr(each) if each in part else f"%{each:02X}" for each in raw)


def _well_encoded(text: str, part: frozenset[int]) -> bool:
    return all(each in part or each in _KEPT_ENCODED for each in text.encode(errors="replace"))


def to_url(text: str) -> Url:
    """Return the URL. EvaluationError if it is neither an absolute URL nor an absolute path."""
    try:
        return parse(text)
    except UrlError as problem:
        raise EvaluationError(f"URL parse error during conversion from string: {problem}") from None


def is_url(text: str) -> bool:
    """Return whether ``text`` is an absolute URL or an absolute path."""
    try:
        check(text)
    except UrlError:
        return False
    return True


def _scheme(url: Url) -> str:
    return url.scheme


def _host(url: Url) -> str:
    return url.host


_PARTS: Final = (
    ("getScheme", "url_get_scheme", _scheme),
    ("getHost", "url_get_host", _host),
    ("getHostname", "url_get_hostname", Url.hostname),
    ("getPort", "url_get_port", Url.port),
    ("getEscapedPath", "url_get_escaped_path", Url.escaped_path),
)
_QUERY: Final = map_of(STRING, list_of(STRING))

LIBRARY: Final = Library(
    "kubernetes.urls",
    0,
    (
        Function("url", (Overload("string_to_url", (STRING,), URL, to_url, cost=costs.traversal()),)),
        Function("isURL", (Overload("is_url_string", (STRING,), BOOL, is_url),)),
        Function("getQuery", (Overload("url_get_query", (URL,), _QUERY, Url.parameters, member=True),)),
        *(Function(name, (Overload(id_, (URL,), STRING, call, member=True),)) for name, id_, call in _PARTS),
    ),
)
