"""/metrics: kube-apiserver's names and labels for the same metrics, and no series that clients can multiply."""

from __future__ import annotations

import random
import re
import string

import pytest
import trio
from in_process import MAPS, PODS, PROTOBUF, InProcess, configmap, open_server, pod
from prometheus_client.parser import text_string_to_metric_families
from trio.testing import MockClock

from kubechronicle.api.features.gates import FeatureGates
from kubechronicle.eventlog.measures import MOST_NOTED
from kubechronicle.eventlog.memory.memory_log import Fault
from kubechronicle.http import edge, slow_requests
from kubechronicle.http.request_metrics import Requests

OURS = {"component": "apiserver"}
LABELS = {"verb", "dry_run", "group", "version", "resource", "subresource", "scope", "component", "code"}


async def series(server: InProcess) -> dict[str, list[dict[str, str]]]:
    """Return the label sets of every sample, by the sample's name."""
    answer = await server.ask("GET", "/metrics")
    assert answer.status == 200
    assert answer.header("content-type") == "text/plain; version=0.0.4; charset=utf-8"
    found: dict[str, list[dict[str, str]]] = {}
    for family in text_string_to_metric_families(answer.body.decode()):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(dict(sample.labels))
    return found


async def test_names_and_labels_are_kube_apiservers(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        await server.post(MAPS, configmap("a"))
        async with server.watch(f"{MAPS}?watch=1") as watch:
            await watch.event()
            found = await series(server)
    for name in (
        "apiserver_request_total",
        "apiserver_request_duration_seconds_bucket",
        "apiserver_response_sizes_sum",
        "apiserver_current_inflight_requests",
        "apiserver_registered_watchers",
        "apiserver_watch_events_total",
        "apiserver_longrunning_requests",
        "apiserver_resource_objects",
        "kubechronicle_applied_revision",
        "kubechronicle_view_events",
        "kubechronicle_actor_decisions_total",
    ):
        assert name in found, name
    assert all(set(labels) == LABELS for labels in found["apiserver_request_total"])
    assert {
        "verb": "POST",
        "dry_run": "",
        "group": "",
        "version": "v1",
        "resource": "configmaps",
        "subresource": "",
        "scope": "resource",
        "component": "apiserver",
        "code": "201",
    } in found["apiserver_request_total"]
    assert {"request_kind": "readOnly"} in found["apiserver_current_inflight_requests"]


async def test_requests_are_counted(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        await server.post(MAPS, configmap("a"))
        for _ in range(3):
            await server.get(f"{MAPS}/a")
        await server.post(f"{MAPS}?dryRun=All", configmap("b"))
        labels = {"group": "", "version": "v1", "resource": "configmaps", "subresource": "", "dry_run": "", **OURS}
        got = await server.metric("apiserver_request_total", verb="GET", scope="resource", code="200", **labels)
        assert got == 3
        labels["dry_run"] = "All"
        dry = await server.metric("apiserver_request_total", verb="POST", scope="resource", code="201", **labels)
        assert dry == 1
        assert await server.metric("apiserver_resource_objects", group="", resource="configmaps") == 1
        assert await server.metric("kubechronicle_applied_revision") == 2
        assert await server.metric("apiserver_current_inflight_requests", request_kind="readOnly") == 0
        await series(server)


async def test_database_errors_are_counted(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        server.log.fail_next("head", Fault.UNAVAILABLE)
        (await server.ask("GET", f"{MAPS}/a")).refused(503)
        labels = {"group": "", "version": "v1", "resource": "configmaps", "subresource": "", "dry_run": "", **OURS}
        assert await server.metric("apiserver_request_total", verb="GET", scope="resource", code="503", **labels) == 1


async def test_watches_are_counted_while_they_last_and_when_they_end(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        await server.post(PODS, pod("p"))
        watchers = {"group": "", "version": "v1", "kind": "Pod"}
        async with server.watch(f"{PODS}?watch=1&timeoutSeconds=5") as watch:
            await watch.event()
            assert await server.metric("apiserver_registered_watchers", **watchers) == 1
            assert await watch.rest() == []
        assert await server.metric("apiserver_registered_watchers", **watchers) == 0
        events = await server.metric("apiserver_watch_events_total", group="", version="v1", resource="pods")
        assert events == 1
        sizes = {"group": "", "version": "v1", "resource": "pods"}
        assert await server.metric("apiserver_watch_events_sizes_count", **sizes) == 1
        assert await server.metric("apiserver_watch_events_sizes_bucket", le="8192.0", **sizes) == 1
        assert 200 < (await server.metric("apiserver_watch_events_sizes_sum", **sizes) or 0) < 8192
        labels = {"group": "", "version": "v1", "resource": "pods", "subresource": "", "dry_run": "", **OURS}
        total = await server.metric("apiserver_request_total", verb="WATCH", scope="namespace", code="200", **labels)
        assert total == 1


async def test_a_series_begins_with_its_first_request(autojump_clock: MockClock) -> None:
    async with open_server(namespaces=()) as server:
        first, second = await series(server), await series(server)
        assert not first.get("apiserver_request_total")
        assert not first.get("apiserver_request_duration_seconds_count")
        assert len(second["apiserver_request_total"]) == len(second["apiserver_request_duration_seconds_count"]) == 1
        assert len(second["apiserver_response_sizes_count"]) == 1


@pytest.mark.parametrize("size", [0, 1 << 20])
async def test_the_size_of_the_encoding_cache(size: int, autojump_clock: MockClock) -> None:
    async with open_server(encoding_cache=size) as server:
        for number in range(70):
            await server.post(MAPS, configmap(f"m-{number}"))
        answers = [
            await server.ask("GET", target, headers={"accept": accept})
            for target, accept in ((MAPS, PROTOBUF), (MAPS, "application/json"))
            for _ in range(4)
        ]
        assert len({answer.body for answer in answers}) == 2
        used = await server.metric("kubechronicle_encoding_cache_bytes")
        assert used is not None
        assert (0 < used <= size) if size else not used
        counts = [
            await server.metric(f"kubechronicle_encoding_cache_{result}_total", kind=kind)
            for kind in ("object", "list")
            for result in ("hits", "misses")
        ]
        # Objects are looked up until the list is cached, at its second request.
        assert counts == ([70, 70, 4, 4] if size else [0, 280, 0, 8])


async def test_garbage_makes_no_series(autojump_clock: MockClock) -> None:
    """No client, even an anonymous one, must be able to fill the server's memory with label sets."""
    rng = random.Random(1)

    def word() -> str:
        return "".join(rng.choices(string.ascii_lowercase, k=8))

    async def garbage(token: str) -> None:
        for _ in range(30):
            one, two, three = word(), word(), word()
            for target in (
                f"/{one}",
                f"/{one}/{two}",
                f"/api/v1/{one}",
                f"/api/{one}/{two}",
                f"/apis/{one}/{two}/{three}",
                f"/apis/apps/v1/{one}/{two}",
                f"/apis/apps/{one}/{two}",
                f"/apis/apps/v1/namespaces/{one}/{two}",
                f"{PODS}/{one}/{two}",
                f"{PODS}/{one}",
                f"/api/v1/namespaces/{one}/pods",
                f"{MAPS}?dryRun={one}",
                f"/api/v1/watch/{one}",
                f"/api/v1/{one}?watch=1",
                f"/api/v1/proxy/{one}/{two}",
                f"/healthz/{one}",
                f"/openapi/v3/{one}",
                f"/api/v1/{one}/{two}/{three}/log",
                f"/api/v1/namespaces/{one}/finalize",
            ):
                for method in ("GET", "POST", one.upper()):
                    response = await server.respond(method, target, token=token)
                    if not isinstance(response.body, bytes):
                        await response.body.aclose()  # type: ignore[attr-defined]

    async with open_server() as server:
        for token in ("", "token-of-joe", "token-of-admin", "wrong"):
            await garbage(token)
            await series(server)  # this request is counted, too
            before = {name: len(found) for name, found in (await series(server)).items()}
            await garbage(token)
            after = {name: len(found) for name, found in (await series(server)).items()}
            assert after == before, token
        assert max(before.values()) < 2000


async def test_the_wait_in_queues_is_no_part_of_the_service_level_indicator() -> None:
    requests = Requests()
    series = requests.of(("GET", "", "", "v1", "pods", "", "cluster", "apiserver"))
    series.observe(200, 3.5, 100, 3.0)
    series.observe(200, 0.1, 100, 0.0)
    [durations] = [one for one in requests.collect() if one.name == "apiserver_request_duration_seconds"]
    [indicators] = [one for one in requests.collect() if one.name == "apiserver_request_sli_duration_seconds"]
    for metric, slow, total in ((durations, 1, 3.6), (indicators, 2, 0.6)):
        values = {(one.name[len(metric.name) :], one.labels.get("le", "")): one.value for one in metric.samples}
        assert (values["_bucket", "1.0"], values["_count", ""]) == (slow, 2)
        assert values["_sum", ""] == pytest.approx(total)


async def test_the_measures_of_few_requests_wait_to_be_counted(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        metrics = server.assembly.application.metrics
        for number in range(2 * MOST_NOTED + 10):
            await server.ask("GET", f"{MAPS}/a{number}")
            assert metrics.noted < MOST_NOTED
        series = metrics.requests(("GET", "", "", "v1", "configmaps", "", "resource", "apiserver"))
        assert len(series.durations._noted) < MOST_NOTED
        assert len(series._ended) < MOST_NOTED
        assert series.codes == {404: 2 * MOST_NOTED + 10}
        labels = {"result": "allowed"}
        assert (await server.metric("authorization_attempts_total", **labels) or 0) >= 2 * MOST_NOTED + 10


async def test_lists_and_validated_writes_are_counted(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        for name in "abc":
            await server.post(f"{MAPS}?fieldValidation=Strict", configmap(name))
        await server.get(MAPS)
        await server.get(f"{MAPS}?limit=2")
        configmaps = {"group": "", "resource": "configmaps"}
        assert await server.metric("apiserver_cache_list_total", index="", **configmaps) == 2
        assert await server.metric("apiserver_cache_list_returned_objects_total", **configmaps) == 5
        count = "field_validation_request_duration_seconds_count"
        assert await server.metric(count, field_validation="Strict") == 3
        assert await server.metric("apiserver_current_inqueue_requests", request_kind="mutating") == 0


async def test_bodies_and_terminations_are_counted(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_server() as server:
        await server.ask("POST", MAPS, configmap("a"), headers={"content-length": "70000"})
        labels = {"group": "", "resource": "configmaps"}
        bucket = "apiserver_request_body_size_bytes_bucket"
        assert await server.metric(bucket, verb="create", le="50000.0", **labels) == 0
        assert await server.metric(bucket, verb="create", le="150000.0", **labels) == 1
        monkeypatch.setattr(server.log, "head", trio.sleep_forever)
        assert (await server.ask("GET", f"{MAPS}/a?timeout=1s")).status == 504
        labels |= {"version": "v1", "subresource": "", "scope": "resource", **OURS}
        assert await server.metric("apiserver_request_terminations_total", verb="GET", code="504", **labels) == 1


async def test_initial_events_and_gates_are_measured(autojump_clock: MockClock) -> None:
    labels = {"group": "", "version": "v1", "resource": "configmaps", "scope": "namespace"}
    name = "apiserver_watch_list_duration_seconds_count"
    initial = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    async with open_server(other={"features": FeatureGates(given={"MutablePVNodeAffinity": True})}) as server:
        await server.post(MAPS, configmap("a"))
        async with server.watch(f"{MAPS}?watch=1&{initial}") as watch:
            assert (await watch.event())[0] == "ADDED"
            assert await server.metric(name, **labels) == 0
            assert (await watch.event())[0] == "BOOKMARK"
            assert await server.metric(name, **labels) == 1
        async with server.watch(f"{MAPS}?watch=1") as watch:
            assert (await watch.event())[0] == "ADDED"
        assert await server.metric(name, **labels) == 1
        enabled = "kubernetes_feature_enabled"
        assert await server.metric(enabled, name="MutablePVNodeAffinity", stage="ALPHA") == 1
        assert await server.metric(enabled, name="CBORServingAndStorage", stage="ALPHA") == 0
        assert await server.metric(enabled, name="WatchList", stage="BETA") == 1


async def test_slow_requests_are_in_the_log(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    traces: list[str] = []

    def note(message: str, *, extra: dict[str, object]) -> None:
        assert extra == {"unquoted": True}
        traces.append(message)

    monkeypatch.setattr(edge, "SLOW", -1.0)
    monkeypatch.setattr(slow_requests, "SHOWN", -1.0)
    monkeypatch.setattr(slow_requests.log, "info", note)
    async with open_server() as server:
        await server.post(MAPS, configmap("b"))
        for _ in range(30):
            await server.ask("GET", f"{MAPS}/a?token=secret", headers={"user-agent": "kubectl\nI1123 forged"})
    assert len(traces) < 3 * slow_requests.MOST_TRACES
    create = next(one for one in traces if '"Create" ' in one).splitlines()
    number = create[0].partition(":")[0]
    assert re.fullmatch(r"Trace\[\d+\]", number)
    assert all(line.startswith(f"{number}: ") for line in create)
    times = r"\(\d\d-\w{3}-\d{4} [\d:]{8}\.\d{3}\) \(total time: \d+ms\):"
    assert re.search(rf"verb:CREATE,resp:201 {times}$", create[0])
    assert re.fullmatch(r'.*: ---"etcd" \d+ms', next(line for line in create if "etcd" in line))
    assert re.fullmatch(r".*: \[[\d.]+[µm]?s\] \[[\d.]+[µm]?s\] END", create[-1])
    get = next(one for one in traces if '"Get" ' in one)
    assert f"url:{MAPS}/a?token=REDACTED" in get
    assert ",resp:404 " in get
    assert "api-group:,api-version:v1,name:a,subresource:,namespace:default,protocol:HTTP/1.1,resource:configm" in get
    assert r"user-agent:kubectl\nI1123 forged,verb:GET" in get


async def test_the_text_is_that_of_go() -> None:
    async with open_server() as server:
        lines = (await server.ask("GET", "/metrics")).body.decode().splitlines()
    families = [line.split()[2] for line in lines if line.startswith("# TYPE ")]
    assert families == sorted(families)
    numbers = [line.rpartition(" ")[2] for line in lines if not line.startswith("#")]
    assert not [number for number in numbers if number.endswith(".0")]
