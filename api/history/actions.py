"""Requests in the words of people: the creation of an Eviction evicts a Pod, that of a Binding binds it to a node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

CREATIONS: Final = {"eviction": "evict", "binding": "bind"}
"""The actions of requests that create a subresource. Another creation never has it at the end of its path."""
PAST_TENSES: Final = {"evict": "evicted", "bind": "bound"}


def action_of(revision: Mapping[str, Any]) -> str:
    """Return the verb of a revision's request: ``patch``, ``evict``; of its operation, if there was no request."""
    request = revision.get("request") or {}
    verb = str(request.get("verb") or revision["operation"].lower())
    last = str(request.get("uri") or "").partition("?")[0].rpartition("/")[2]
    return CREATIONS.get(last, verb) if verb == "create" else verb


def user_named(user: str, impersonator: str) -> str:
    """Return a user as texts name it, with the user that acted in its name."""
    name = user or "an unknown user"
    return f"{name} (impersonated by {impersonator})" if impersonator else name
