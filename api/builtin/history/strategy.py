"""The strategies of Tags, which never come to name another moment of history, and of Branches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kubechronicle.api.builtin.history import validation
from kubechronicle.api.history import branches
from kubechronicle.api.strategy.strategy import Check, Strategy
from kubechronicle.api.strategy.write_context import Requester
from kubechronicle.api.values.objects import Object


def record_creator(new: Object, requester: Requester) -> None:
    """Set the user to the authenticated one."""
    spec = new.setdefault("spec", {})
    spec.pop("user", None)
    if requester.user:
        spec["user"] = requester.user


def keep_omitted(new: Object, old: Object) -> None:
    """Keep the fields that the request omits: its sender may know only those that it set."""
    new["spec"] = {**old["spec"], **(new.get("spec") or {})}


STRATEGIES: Final[Mapping[str, Strategy]] = {
    "tags.history.kubechronicle.dev": Strategy(
        update_checks=(Check.METADATA_CHANGE, Check.CHANGE),
        status=False,
        requested=record_creator,
        prepare_update=keep_omitted,
        validate=validation.tag,
        validate_update=validation.tag_update,
    ),
    branches.RESOURCE: Strategy(
        status=False,
        update_checks=(Check.METADATA_CHANGE, Check.CHANGE),
        validate=branches.validate,
        validate_update=branches.validate_update,
    ),
}
