"""Reasons of changes: a text that the client of a write gives, kept with the change in the log.

    Kubechronicle-Reason: roll back, ticket 42              a header of the request
    /because/roll%20back,%20ticket%2042/api/v1/…            the same in the URL, for clients that send no such header
    kubernetes.io/change-cause: roll back                   an annotation, which `kubectl rollout history` shows, too

The header and the URL belong to the request: their reason is a column of the log, which the digest of the row covers.
The annotation belongs to the object. So the change that sets it shows it as its reason, if the request has none.
Nothing is copied, and a reader without the right to the object does not see it.

A percent sign in the text of a URL is written %2525, and a slash %252F: client-go decodes the path of the server's URL
once, and sends it encoded anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, unquote

HEADER: Final = "kubechronicle-reason"
CAUSE_HEADER: Final = "kubechronicle-cause"
"""The revision that the change is a consequence of, as a client gives it that restores or reverts."""
PREFIX: Final = "/because/"
CHANGE_CAUSE: Final = "kubernetes.io/change-cause"
MAX_REASON: Final = 1024
"""Bytes of UTF-8. The log keeps a reason as long as its change."""


def parse_reason(text: str) -> str:
    """Return a reason without the blanks around it. ValueError: it is too long, or not printable."""
    text = text.strip(" \t")
    if (length := len(text.encode(errors="replace"))) > MAX_REASON:
        raise ValueError(f"must have at most {MAX_REASON:,} bytes, not {length:,}")
    if not text.isprintable() or "\ufffd" in text:
        raise ValueError("must be printable text in UTF-8, on one line")
    return text


def parse_cause(text: str) -> int:
    """Return the revision that a request gives as its cause. ValueError."""
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise ValueError("must be a revision, such as 12345")
    return int(text)


def split_reason(path: str) -> tuple[str, str]:
    """Split a path as it was sent: ``/because/ticket%2042/api/v1`` into ``ticket 42``, ``/api/v1``. A path without a
    reason is returned with ""."""
    reason, slash, rest = path[len(PREFIX) :].partition("/")
    if not path.startswith(PREFIX) or not reason:
        return "", path
    return unquote(unquote(reason, errors="replace"), errors="replace"), slash + rest or "/"


def reason_prefix(reason: str) -> str:
    """Return the beginning of the paths of a server's URL for a reason, without a slash at its end."""
    text = reason.replace("%", "%25").replace("/", "%2F")
    return PREFIX + quote(text, safe="")


def change_cause(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> str:
    """Return the change-cause that a change sets, up to MAX_REASON bytes; "": it sets none, or leaves it as it is."""
    cause = _annotation(after)
    if not cause or cause == _annotation(before):
        return ""
    return cause.encode(errors="replace")[:MAX_REASON].decode(errors="ignore")


def _annotation(obj: Mapping[str, Any] | None) -> str:
    annotations = ((obj or {}).get("metadata") or {}).get("annotations") or {}
    cause = annotations.get(CHANGE_CAUSE)
    return cause if isinstance(cause, str) else ""


def has_text(reason: str, text: str) -> bool:
    """Tell whether a text is part of a reason, in upper or lower case."""
    return text.lower() in reason.lower()
