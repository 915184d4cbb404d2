"""`kubechronicle convert`: formats lose nothing, versions are converted, and a mistake is reported in one line."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from vectors import VECTORS

from kubechronicle.api.codecs import protobuf
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.exit_codes import MISTAKE
from kubechronicle.ops.maintenance.convert import FORMATS, convert

COMMAND = str(Path(sys.executable).with_name("kubechronicle"))
POD: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": []}}
TARGET = {"kind": "Deployment", "name": "web"}
METRIC = {"type": "Resource", "resource": {"name": "cpu", "targetAverageUtilization": 50}}


def autoscaler(name: str = "web", api_version: str = "autoscaling/v2beta1") -> dict[str, Any]:
    spec = {"scaleTargetRef": TARGET, "maxReplicas": 5, "metrics": [METRIC]}
    return {"apiVersion": api_version, "kind": "HorizontalPodAutoscaler", "metadata": {"name": name}, "spec": spec}


def run(data: bytes, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([COMMAND, "convert", *arguments], input=data, capture_output=True, timeout=60, check=False)


def error_of(data: bytes, target: str = "json", **options: str) -> str:
    """Convert data that is wrong. Return the error."""
    with pytest.raises(OperatorError) as caught:
        convert(data, target=target, **options)
    return str(caught.value)


# -- formats ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", VECTORS, ids=lambda path: path.stem)
def test_a_published_vector_survives_all_formats(path: Path) -> None:
    data, obj = path.read_bytes(), json.loads(path.with_suffix(".json").read_bytes())
    as_json = convert(data, target="json")
    assert json.loads(as_json) == obj
    assert convert(as_json, target="protobuf") == data
    as_yaml = convert(data, target="yaml")
    assert convert(as_yaml, target="protobuf") == data
    assert convert(data, target="protobuf") == data
    assert json.loads(convert(as_yaml, target="json")) == obj


@pytest.mark.parametrize("path", VECTORS[::20], ids=lambda path: path.stem)
def test_a_published_vector_through_the_command(path: Path) -> None:
    data = path.read_bytes()
    there = run(data, "--to", "json")
    assert (there.returncode, there.stderr) == (0, b"")
    assert json.loads(there.stdout) == json.loads(path.with_suffix(".json").read_bytes())
    back = run(there.stdout, "--from", "json", "--to", "protobuf")
    assert (back.returncode, back.stdout) == (0, data)


def test_a_watch_event_has_no_kind() -> None:
    event = {"type": "ADDED", "object": {"apiVersion": "example.com/v1", "kind": "Widget"}}
    data = convert(json.dumps(event).encode(), target="protobuf")
    assert json.loads(convert(data, target="json")) == event


def test_the_format_is_detected() -> None:
    for source in FORMATS:
        data = convert(json.dumps(POD).encode(), target=source)
        converted = json.loads(convert(data, target="json"))
        assert converted == json.loads(convert(data, source=source, target="json"))
    assert json.loads(convert(b"\xef\xbb\xbf  " + json.dumps(POD).encode(), target="json")) == POD
    assert json.loads(convert(b"{kind: Pod, apiVersion: v1}", target="json")) == {"kind": "Pod", "apiVersion": "v1"}


@pytest.mark.parametrize("separator", ["\n---\n", "\n---\n---\n# nothing\n---\n"])
def test_several_documents(separator: str) -> None:
    data = separator.join(f"kind: Pod\napiVersion: v1\nmetadata: {{name: {name}}}" for name in "abc").encode()
    as_yaml = convert(data, target="yaml")
    assert as_yaml.count(b"---\n") == 2
    assert convert(as_yaml, target="yaml") == as_yaml
    listed = json.loads(convert(data, target="json"))
    assert (listed["apiVersion"], listed["kind"]) == ("v1", "List")
    assert [item["metadata"]["name"] for item in listed["items"]] == ["a", "b", "c"]
    stream = b"\n".join(json.dumps(item).encode() for item in listed["items"])
    assert json.loads(convert(stream, target="json")) == listed
    assert json.loads(convert(convert(data, target="protobuf"), target="json")) == listed


def test_an_anchor_is_unknown_in_the_next_document() -> None:
    assert "unknown anchor" in error_of(b"kind: &a Pod\napiVersion: v1\n---\nkind: *a\napiVersion: v1\n")


def test_nothing_is_defaulted_and_nothing_unknown_is_dropped_between_texts() -> None:
    obj = {"apiVersion": "example.com/v1", "kind": "Widget", "spec": {"any": [1, None, {"x": 1.5}], "empty": {}}}
    assert json.loads(convert(convert(json.dumps(obj).encode(), target="yaml"), target="json")) == obj


# -- versions ---------------------------------------------------------------------------------------------------------


def test_an_object_in_another_version() -> None:
    data = json.dumps(autoscaler()).encode()
    new = json.loads(convert(data, target="json", output_version="autoscaling/v2"))
    target = {"type": "Utilization", "averageUtilization": 50}
    assert new["apiVersion"] == "autoscaling/v2"
    assert new["spec"]["metrics"] == [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    assert "minReplicas" not in new["spec"]
    oldest = json.loads(convert(data, target="json", output_version="autoscaling/v1"))
    assert oldest["spec"]["targetCPUUtilizationPercentage"] == 50
    same = json.loads(convert(data, target="json", output_version="autoscaling/v2beta1"))
    assert same == autoscaler()


def test_lists_in_another_version() -> None:
    one = autoscaler()
    bare = {name: value for name, value in one.items() if name not in ("apiVersion", "kind")}
    head = {"apiVersion": "autoscaling/v2beta1", "kind": "HorizontalPodAutoscalerList", "metadata": {}}
    typed = {**head, "items": [bare]}
    new = json.loads(convert(json.dumps(typed).encode(), target="json", output_version="autoscaling/v2"))
    assert (new["apiVersion"], new["kind"]) == ("autoscaling/v2", "HorizontalPodAutoscalerList")
    assert "kind" not in new["items"][0]
    assert "target" in new["items"][0]["spec"]["metrics"][0]["resource"]
    raw = convert(json.dumps(new).encode(), target="protobuf")
    assert json.loads(convert(raw, target="json")) == new
    mixed = {"apiVersion": "v1", "kind": "List", "items": [one, autoscaler("b", "autoscaling/v2beta2")]}
    mixed["items"][1]["spec"]["metrics"] = []  # type: ignore[index]
    converted = json.loads(convert(json.dumps(mixed).encode(), target="json", output_version="autoscaling/v2"))
    assert [item["apiVersion"] for item in converted["items"]] == ["autoscaling/v2"] * 2
    documents = b"---\n".join(json.dumps(autoscaler(name)).encode() + b"\n" for name in "ab")
    written = convert(documents, target="yaml", output_version="autoscaling/v2")
    assert written.count(b"apiVersion: autoscaling/v2\n") == 2


def test_an_old_eviction() -> None:
    data = json.dumps({"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": {"name": "a"}}).encode()
    assert json.loads(convert(data, target="json", output_version="policy/v1"))["apiVersion"] == "policy/v1"


# -- mistakes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (b"", {}, "there is no object"),
        (b"---\n---\n", {}, "there is no object"),
        (b"[]", {}, "cannot unmarshal array"),
        (b"5", {}, "cannot unmarshal number"),
        (b"{}", {}, "an object has no kind"),
        (b'{"kind":"Pod"}', {}, "an object has no apiVersion"),
        (b'{"kind":5,"apiVersion":"v1"}', {}, "cannot unmarshal number"),
        (b'{"kind":"Pod","apiVersion":"v1"', {}, "unexpected end of JSON input"),
        (b"a: b: c", {}, "yaml: "),
        (b"\xff\xfe\x00", {}, "yaml: "),
        (b"k8s\x00", {}, "empty body"),
        (b"k8s\x00\x0a\xff", {}, "unexpected EOF"),
        (protobuf.encode(POD), {"source": "json"}, "invalid character"),
        (json.dumps(POD).encode(), {"source": "protobuf"}, "does not appear to be a protobuf message"),
        (b'{"kind":"Widget","apiVersion":"x.y/v1"}', {"target": "protobuf"}, "does not implement the protobuf"),
        (b'{"kind":"Pod","apiVersion":"v1","metadata":5}', {"target": "protobuf"}, "wrong type"),
        (json.dumps(POD).encode(), {"output_version": "apps/v1"}, "v1 Pod cannot be converted to apps/v1"),
        (json.dumps(POD).encode(), {"output_version": "apps"}, "--output-version: must be GROUP/VERSION"),
        (json.dumps(POD).encode(), {"target": "xml"}, "--to: must be one of json, yaml, protobuf, got 'xml'"),
        (json.dumps(POD).encode(), {"source": "xml"}, "--from: must be one of json, yaml, protobuf, got 'xml'"),
        (json.dumps({**autoscaler(), "spec": 5}).encode(), {"output_version": "autoscaling/v2"}, "cannot unmarshal"),
        (b'{"kind":"List","apiVersion":"v1","items":5}', {"output_version": "v1"}, "must be a list"),
        (b'{"kind":"List","apiVersion":"v1","items":[5]}', {"output_version": "v1"}, "cannot unmarshal"),
        (
            b'{"kind":"CronJobList","apiVersion":"batch/v1","items":[5]}',
            {"output_version": "batch/v1beta1"},
            "is not an object",
        ),
        (
            b'{"kind":"CronJob","apiVersion":"batch/v1","spec":{"":1,"suspend":5}}',
            {"output_version": "batch/v1beta1"},
            "of type bool",
        ),
        (b'{"type":"ADDED","object":{}}', {"output_version": "v1"}, "an event of a watch has no version"),
    ],
)
def test_mistakes(data: bytes, options: dict[str, str], message: str) -> None:
    assert message in error_of(data, **{"target": "json", **options})


def test_mistakes_of_the_command_are_one_line() -> None:
    for data, arguments in (
        (b"nonsense: [", ("--to", "json")),
        (b"", ()),
        (b"{}", ("--to", "xml")),
        (b"k8s\x00\xff\xff", ("--to", "yaml")),
        (b"{}", ("--to", "json", "--nope")),
    ):
        done = run(data, *arguments)
        assert done.returncode == MISTAKE
        assert done.stdout == b""
        assert done.stderr.startswith(b"kubechronicle: ")
        assert done.stderr.count(b"\n") == 1


def test_errors_of_stdin_and_stdout_are_reported() -> None:
    data = json.dumps({**POD, "metadata": {"name": "a" * 500_000}}).encode()
    for shell, message in (
        (f"{COMMAND} convert --to json <&-", "cannot read stdin"),
        (f"{COMMAND} convert --to json > /dev/full", "cannot write to stdout: No space left on device"),
        (f"{COMMAND} convert --to json | head -c 1 > /dev/null", ""),
    ):
        done = subprocess.run(["/bin/sh", "-c", shell], input=data, capture_output=True, timeout=60, check=False)
        assert message in done.stderr.decode()
        assert done.stderr.count(b"\n") == bool(message)
        assert done.returncode == (MISTAKE if message else 0)


def _attempt(data: bytes, target: str, output_version: str) -> None:
    with contextlib.suppress(OperatorError):
        convert(data, target=target, output_version=output_version)


_TARGETS = st.sampled_from(FORMATS)
_OUTPUTS = st.sampled_from(["", "", "v1", "autoscaling/v1", "autoscaling/v2", "autoscaling/v2beta1", "policy/v1beta1"])


@given(st.binary(max_size=120), _TARGETS, _OUTPUTS)
@settings(deadline=None, max_examples=200)
def test_any_bytes_are_converted_or_rejected(data: bytes, target: str, output_version: str) -> None:
    for start in (b"", b"k8s\0", b"{", b"kind: Pod\n"):
        _attempt(start + data, target, output_version)


@given(st.data(), _TARGETS, _OUTPUTS)
@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.too_slow])
def test_damaged_objects_are_converted_or_rejected(data: st.DataObject, target: str, output_version: str) -> None:
    source = data.draw(_TARGETS)
    obj = data.draw(st.sampled_from([POD, autoscaler(), {"apiVersion": "v1", "kind": "List", "items": [autoscaler()]}]))
    body = bytearray(convert(json.dumps(obj).encode(), target=source))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=4))
    _attempt(bytes(body), target, output_version)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["spec", "metadata", "items"]), inner),
    max_leaves=8,
)
_KINDS = st.sampled_from(["HorizontalPodAutoscaler", "HorizontalPodAutoscalerList", "List", "PodDisruptionBudget"])
_VERSIONS = st.sampled_from(
    ["v1", "autoscaling/v1", "autoscaling/v2", "autoscaling/v2beta1", "policy/v1", "policy/v1beta1"]
)


@given(_KINDS, _VERSIONS, _JSON, _TARGETS, _OUTPUTS)
@settings(deadline=None, max_examples=300)
def test_any_values_are_converted_or_rejected(kind: str, version: str, body: Any, target: str, output: str) -> None:
    fields = body if isinstance(body, dict) else {"spec": body}
    _attempt(json.dumps({"apiVersion": version, "kind": kind, **fields}).encode(), target, output)


def test_deeply_nested_input_is_rejected() -> None:
    for deep in (b"[" * 100_000, b'{"a":' * 100_000, b"- " * 50_000, b"{a: " * 50_000):
        _attempt(b'{"kind":"Pod","apiVersion":"v1","x":' + deep, "json", "")
        _attempt(deep, "yaml", "")
