"""Normal forms: values of one server become ordinals, and ordinals become each server's values again."""

from __future__ import annotations

import datetime
from typing import Any

from kubechronicle.ops.development.differential.normalise import Normaliser

UIDS = ("0a0a0a0a-1111-2222-3333-444444444444", "0b0b0b0b-1111-2222-3333-444444444444")
NAMES = {"d-abc": "$NS"}


def answer(uid: str, revision: str, **more: Any) -> dict[str, Any]:
    return {"kind": "ConfigMap", "metadata": {"uid": uid, "resourceVersion": revision, "namespace": "d-abc", **more}}


def test_two_servers_have_the_same_form() -> None:
    first, second = Normaliser(), Normaliser()
    forms = (first.answer(answer(UIDS[0], "17"), NAMES), second.answer(answer(UIDS[1], "4711"), NAMES))
    assert forms[0] == forms[1]
    assert forms[0]["metadata"]["namespace"] == "$NS"
    token = forms[0]["metadata"]["uid"]
    assert (first.value_of(token), second.value_of(token)) == UIDS


def test_a_value_of_one_server_does_not_shift_later_ones() -> None:
    first, second = Normaliser(), Normaliser()
    first.answer(answer(UIDS[0], "17"), NAMES)
    second.answer({}, NAMES)
    assert first.answer(answer(UIDS[1], "18"), NAMES) == second.answer(answer(UIDS[1], "5"), NAMES)


def test_the_order_of_fields_does_not_count() -> None:
    forms = [
        Normaliser().answer(data, NAMES)
        for data in ({"a": UIDS[0], "b": UIDS[1]}, {"b": UIDS[1], "a": UIDS[0]})
    ]  # fmt: skip
    assert forms[0] == forms[1]


def test_times_of_now_are_hidden_and_given_ones_stay() -> None:
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    form = Normaliser().answer({"created": now, "given": "2024-01-02T03:04:05Z"}, {})
    assert form == {"created": "<time>", "given": "2024-01-02T03:04:05Z"}


def test_values_that_were_asked_for_stay() -> None:
    normaliser = Normaliser()
    normaliser.given = f'{{"nodePort": 30001, "clusterIP": "10.96.0.9", "uid": "{UIDS[0]}"}}'
    ports = {"ports": [{"nodePort": 30001}, {"nodePort": 30002}], "ips": ["10.96.0.9", "10.96.0.10"], "uid": UIDS[0]}
    form = normaliser.answer(ports, {})
    assert form["ports"][0]["nodePort"] == 30001
    assert form["ports"][1]["nodePort"].startswith("<port:")
    assert form["ips"][0] == "10.96.0.9"
    assert form["ips"][1].startswith("<ip:")
    assert form["uid"] == UIDS[0]


def test_generated_names_become_one_token() -> None:
    normaliser = Normaliser()
    normaliser.generated({"metadata": {"generateName": "web-"}}, "web-x1y2z")
    form = normaliser.answer({"metadata": {"name": "web-x1y2z"}, "message": 'pods "web-x1y2z" is forbidden'}, {})
    assert form["message"] == f'pods "{form["metadata"]["name"]}" is forbidden'
    assert form["metadata"]["name"].startswith("<generated:")


def test_revisions_of_lists_and_bookmarks_are_hidden() -> None:
    normaliser = Normaliser()
    assert normaliser.answer({"kind": "PodList", "metadata": {"resourceVersion": "5"}}, {})["metadata"] == {
        "resourceVersion": "<rv>"
    }
    end = {"k8s.io/initial-events-end": "true"}
    bookmarks = [
        {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9", "annotations": end}}},
        {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}},
    ]
    assert [event["object"]["metadata"] for event in normaliser.answer(bookmarks, {})] == [
        {"resourceVersion": "<rv>", "annotations": end}
    ]


def test_discovery_is_compared_without_our_own_groups() -> None:
    form = Normaliser().answer({"groups": [{"name": "apps"}, {"name": "history.kubechronicle.dev"}]}, {})
    assert form == {"groups": [{"name": "apps"}]}
    assert Normaliser().answer({"paths": ["/api/v1", "/healthz/log"]}, {}) == {"paths": ["/api/v1"]}


def test_revisions_within_texts_are_hidden() -> None:
    texts = {
        "a": 'Invalid value: "{\\"resourceVersion\\":\\"17\\"}"',
        "b": "Too large resource version: 99, current: 5",
    }
    form = Normaliser().answer(texts, {})
    assert form["a"] == 'Invalid value: "{\\"resourceVersion\\":\\"<rv>\\"}"'
    assert form["b"] == "Too large resource version: <rv>, current: <rv>"


def test_a_short_prefix_does_not_replace_letters() -> None:
    normaliser = Normaliser()
    normaliser.generated({"metadata": {"generateName": "A"}}, "A")
    assert normaliser.answer({"kind": "IPAddress"}, {}) == {"kind": "IPAddress"}


def test_the_managers_of_conflicts_have_no_order() -> None:
    causes = [{"reason": "FieldManagerConflict", "message": f"conflict with {name}"} for name in ("b", "a")]
    forms = [Normaliser().answer({"details": {"causes": order}}, {}) for order in (causes, causes[::-1])]
    assert forms[0] == forms[1]


def test_the_place_of_a_scheme_is_hidden() -> None:
    text = 'no kind "X" is registered for version "v1" in scheme "pkg/runtime/scheme.go:111"'
    assert Normaliser().answer({"message": text}, {})["message"].endswith("in scheme <scheme>")
