"""The status of definitions: accepted names, and conditions."""

from __future__ import annotations

from typing import Any

from kubechronicle.api.builtin.apiextensions.conditions import condition, reconciled, with_condition

NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"
WIDGETS = {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"}
NOBODY = {"plural": "", "kind": ""}


def definition(names: dict[str, Any], status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "widgets.example.com", "annotations": spec.pop("annotations", {})},
        "spec": {"group": "example.com", "names": names, "versions": [], **spec},
        "status": status if status is not None else {"acceptedNames": NOBODY, "storedVersions": ["v1"]},
    }


def states(status: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(one["type"], one["status"], one["reason"]) for one in status["conditions"]]


def test_free_names_are_accepted_and_establish_the_definition() -> None:
    status = reconciled(definition(WIDGETS), [NOBODY], now=NOW)
    assert status["acceptedNames"] == WIDGETS
    assert status["storedVersions"] == ["v1"]
    assert status["conditions"] == [
        {
            "type": "NamesAccepted",
            "status": "True",
            "lastTransitionTime": NOW,
            "reason": "NoConflicts",
            "message": "no conflicts found",
        },
        {
            "type": "Established",
            "status": "True",
            "lastTransitionTime": NOW,
            "reason": "InitialNamesAccepted",
            "message": "the initial names have been accepted",
        },
    ]
    assert reconciled(definition(WIDGETS, status), [WIDGETS], now=LATER) == status


def test_a_conflict_keeps_the_definition_from_being_established() -> None:
    gadgets = {"plural": "gadgets", "singular": "gadget", "kind": "Widget", "listKind": "GadgetList"}
    status = reconciled(definition(gadgets), [NOBODY, WIDGETS], now=NOW)
    assert states(status) == [("NamesAccepted", "False", "KindConflict"), ("Established", "False", "NotAccepted")]
    assert condition(status, "NamesAccepted")["message"] == '"Widget" is already in use'
    assert status["acceptedNames"] == {**gadgets, "kind": ""}
    freed = reconciled(definition(gadgets, status), [status["acceptedNames"]], now=LATER)
    assert states(freed) == [("NamesAccepted", "True", "NoConflicts"), ("Established", "True", "InitialNamesAccepted")]
    assert freed["acceptedNames"] == gadgets


def test_the_last_conflict_is_reported_and_free_names_are_accepted() -> None:
    wanted = {**WIDGETS, "shortNames": ["wd", "w", "w"], "singular": "gadget", "categories": ["all"]}
    others = [NOBODY, {"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "shortNames": ["w", "wd"]}]
    status = reconciled(definition(wanted), others, now=NOW)
    assert condition(status, "NamesAccepted")["reason"] == "ShortNamesConflict"
    assert condition(status, "NamesAccepted")["message"] == '["wd" is already in use, "w" is already in use]'
    assert status["acceptedNames"] == {
        "plural": "widgets",
        "kind": "Widget",
        "listKind": "WidgetList",
        "categories": ["all"],
    }


def test_a_later_conflict_leaves_it_established() -> None:
    status = reconciled(definition(WIDGETS), [NOBODY], now=NOW)
    renamed = reconciled(
        definition({**WIDGETS, "shortNames": ["g"]}, status), [WIDGETS, {"plural": "g", "kind": "G"}], now=LATER
    )
    assert states(renamed)[0] == ("NamesAccepted", "False", "ShortNamesConflict")
    assert condition(renamed, "Established") == condition(status, "Established")


def test_own_names_are_no_conflict_but_may_not_swap() -> None:
    status = reconciled(definition(WIDGETS), [NOBODY], now=NOW)
    more = {**WIDGETS, "shortNames": ["wd"]}
    assert reconciled(definition(more, status), [WIDGETS], now=LATER)["acceptedNames"] == more
    swapped = reconciled(definition({**WIDGETS, "singular": "widgets"}, status), [WIDGETS], now=LATER)
    assert condition(swapped, "NamesAccepted")["reason"] == "SingularConflict"


def test_an_invalid_bundle_keeps_it_from_being_established() -> None:
    conversion = {"strategy": "Webhook", "webhook": {"clientConfig": {"caBundle": "bm9uZQ=="}}}
    status = reconciled(definition(WIDGETS, conversion=conversion), [NOBODY], now=NOW)
    assert states(status)[1] == ("Established", "False", "InvalidCABundle")


def test_protected_groups_say_whether_they_are_approved() -> None:
    def approval(**annotations: str) -> tuple[str, str]:
        annotated = {key.replace("_", "-").replace("--", "."): value for key, value in annotations.items()}
        obj = definition(WIDGETS, group="x.k8s.io", annotations=annotated)
        held = condition(reconciled(obj, [NOBODY], now=NOW), "KubernetesAPIApprovalPolicyConformant")
        return held["status"], held["reason"]

    key = "api_approved__kubernetes__io"
    assert approval() == ("False", "MissingAnnotation")
    assert approval(**{key: "unapproved, an experiment"}) == ("False", "UnapprovedAnnotation")
    assert approval(**{key: "https://github.com/kubernetes/kubernetes/pull/1"}) == ("True", "ApprovedAnnotation")
    assert approval(**{key: "yes"}) == ("False", "InvalidAnnotation")


def test_a_definition_that_keeps_unknown_fields_is_not_structural() -> None:
    status = reconciled(definition(WIDGETS, preserveUnknownFields=True), [NOBODY], now=NOW)
    held = condition(status, "NonStructuralSchema")
    assert (held["status"], held["reason"]) == ("True", "Violations")
    assert held["message"] == "spec.preserveUnknownFields: Invalid value: true: must be false"
    mended = reconciled(definition(WIDGETS, status), [WIDGETS], now=LATER)
    assert condition(mended, "NonStructuralSchema") == {}


def test_the_time_of_a_condition_is_that_of_its_status() -> None:
    status = with_condition({}, "Terminating", ("True", "A", "a"), now=NOW)
    status = with_condition(status, "Terminating", ("True", "B", "b"), now=LATER)
    assert condition(status, "Terminating")["lastTransitionTime"] == NOW
    status = with_condition(status, "Terminating", ("False", "C", "c"), now=LATER)
    assert condition(status, "Terminating")["lastTransitionTime"] == LATER
