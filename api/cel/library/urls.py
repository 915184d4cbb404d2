"""CEL's ``url()`` and the parts of a URL (library kubernetes.urls)."""

from __future__ import annotations

from typing import Final

from kubechronicle.api.cel.declarations import Library
from kubechronicle.api.cel.errors import EvaluationError
from kubechronicle.api.cel.library import costs
from kubechronicle.api.cel.library.go_url_parser import URL, Url, UrlError, check, parse
from kubechronicle.api.cel.overloads import Function, Overload
from kubechronicle.api.cel.types import BOOL, STRING, list_of, map_of


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
