"""Errors for objects that cannot be decrypted, in the words of kube-apiserver: a read names the reason, a list also the
object."""

from __future__ import annotations

from kubechronicle.api.errors import status
from kubechronicle.api.errors.field_errors import go_quote
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.records import Key


def unreadable_error(entry: Entry, problem: str = "") -> status.StatusError:
    """Return the 500 for an object. ``problem``: the reason, if it is not the one in the entry."""
    return status.internal_error(problem or str(entry.mark))


def listed_unreadable(key: Key, problem: str) -> status.StatusError:
    """Return the 500 for a list with such an object."""
    path = "/".join(part for part in key if part)
    return status.internal_error(f"unable to transform key {go_quote('/registry/' + path)}: {problem}")
