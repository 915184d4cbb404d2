"""ControllerRevision: a recorded state of a DaemonSet or StatefulSet. | Source: Kubernetes' ``registry/apps``."""

from __future__ import annotations

from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.checks import not_negative
from kubechronicle.api.builtin.common.kind import BuiltinKind
from kubechronicle.api.builtin.common.printer import AGE, NAME, Column, Printer, age_of, field_column, name_of
from kubechronicle.api.errors.field_errors import Cause, go_json, invalid_value, required
from kubechronicle.api.meta.metadata import IMMUTABLE
from kubechronicle.api.strategy.strategy import Check, Strategy
from kubechronicle.api.values.objects import Object, ReadOnlyObject


def validate_controller_revision(obj: Object) -> list[Cause]:
    """Check that the revision number is not negative."""
    return not_negative(obj, "", "revision")


def validate_new_controller_revision(api_version: str, new: Object, old: Object | None) -> list[Cause]:
    """Require an object as data of a new ControllerRevision."""
    data = new.get("data")
    if old is not None or isinstance(data, dict):
        return []
    return [required("data", "data is mandatory" if data is None else "data must be a valid JSON object")]


def validate_controller_revision_update(new: Object, old: Object) -> list[Cause]:
    """Reject changes of the recorded data. Kubernetes compares its encodings, so the order of keys counts."""
    data, held = new.get("data"), old.get("data")
    return [] if go_json(data) == go_json(held) else [invalid_value("data", data, IMMUTABLE)]


def _cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    owner = next((owner for owner in obj["metadata"].get("ownerReferences") or () if owner.get("controller")), None)
    controller = "<none>"
    if owner is not None:
        group = owner.get("apiVersion", "").rpartition("/")[0]
        kind = f"{owner.get('kind', '')}.{group}" if group else owner.get("kind", "")
        controller = f"{kind.lower()}/{owner.get('name', '')}"
    return [name_of(obj), controller, obj.get("revision") or 0, age_of(obj, since)]


KIND: Final = BuiltinKind(
    resource="controllerrevisions.apps",
    strategy=Strategy(
        update_checks=(Check.METADATA, Check.OBJECT, Check.METADATA_CHANGE, Check.CHANGE),
        status=False,
        validate=validate_controller_revision,
        validate_as=validate_new_controller_revision,
        validate_update=validate_controller_revision_update,
    ),
    printer=Printer(
        (
            NAME,
            Column("Controller", text="Controller of the object"),
            field_column("Revision", "apps.v1.ControllerRevision.revision"),
            AGE,
        ),
        _cells,
    ),
)
