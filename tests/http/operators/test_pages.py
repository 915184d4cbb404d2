"""The pages for operators: texts and objects, the results of health checks, and profiles that pprof can read."""

from __future__ import annotations

import gzip

import pytest
import trio
import trio.lowlevel
from in_process import JOE, MAPS, configmap, open_server
from trio.testing import MockClock

from kubechronicle.api.features.gates import FeatureGates
from kubechronicle.http.operators import PROFILE
from kubechronicle.ops.settings.settings import load
from kubechronicle.ops.settings.shown import configuration, shown

STATUSZ = "application/json;v=v1beta1;g=config.k8s.io;as=Statusz"
FLAGZ = "application/json;v=v1beta1;g=config.k8s.io;as=Flagz"


async def test_statusz_and_flagz(autojump_clock: MockClock) -> None:
    async with open_server(flags={"secure-port": "6443", "v": "0"}) as server:
        await trio.lowlevel.checkpoint()
        text = (await server.ask("GET", "/statusz")).body.decode()
        assert "apiserver statusz" in text
        assert "Up: 0 hr 00 min" in text
        document = (await server.ask("GET", "/statusz", headers={"accept": STATUSZ})).ok()
        assert (document["kind"], document["metadata"]["name"]) == ("Statusz", "apiserver")
        assert document["emulationVersion"] == "1.37"
        assert "/statusz" in document["paths"]
        flags = (await server.ask("GET", "/flagz", headers={"accept": FLAGZ})).ok()["flags"]
        assert flags == {"secure-port": "6443", "v": "0"}
        assert "secure-port 6443" in (await server.ask("GET", "/flagz")).body.decode()
        yaml = await server.ask("GET", "/flagz", headers={"accept": FLAGZ.replace("json", "yaml")})
        assert "\nflags:\n  secure-port:" in yaml.body.decode()
        assert not yaml.header_all("warning")
        former = await server.ask("GET", "/flagz", headers={"accept": FLAGZ.replace("v1beta1", "v1alpha1")})
        assert former.ok()["apiVersion"] == "config.k8s.io/v1alpha1"
        warning = '299 - "This version of the flagz endpoint is deprecated. Please use a newer version."'
        assert former.header_all("warning") == [warning]
        for accept in ("*/*", "text/*", "application/json, text/plain"):
            answer = await server.ask("GET", "/flagz", headers={"accept": accept})
            assert answer.header("content-type") == "text/plain; charset=utf-8"
        for accept in ("application/json", FLAGZ.replace("v1beta1", "v9"), STATUSZ, "image/png", "application/cbor"):
            problem = (await server.ask("GET", "/flagz", headers={"accept": accept})).refused(406)
            assert problem["message"] == (
                "only the following media types are accepted: application/json, application/yaml, text/plain"
            )
        for page in ("/statusz", "/flagz", "/configz", "/metrics/slis", PROFILE):
            (await server.ask("GET", page, token=JOE)).refused(403)


async def test_gates_switch_both_pages(autojump_clock: MockClock) -> None:
    for gate, path in (("ComponentFlagz", "/flagz"), ("ComponentStatusz", "/statusz")):
        async with open_server(features=FeatureGates(given={gate: False})) as server:
            assert (await server.ask("GET", path)).status == 404
            assert path not in (await server.get("/"))["paths"]


async def test_health_checks_are_metrics(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_server() as server:
        await server.ask("GET", "/readyz")
        text = (await server.ask("GET", "/metrics/slis")).body.decode()
        assert 'kubernetes_healthcheck{name="log",type="readyz"} 1' in text
        assert 'kubernetes_healthchecks_total{name="ping",status="success",type="readyz"} 2' in text
        monkeypatch.setattr(type(server.assembly.tail), "healthy", False)
        text = (await server.ask("GET", "/metrics/slis")).body.decode()
        assert 'kubernetes_healthcheck{name="log",type="readyz"} 0' in text
        assert 'kubernetes_healthchecks_total{name="log",status="error",type="readyz"} 1' in text


async def test_a_profile_shows_where_time_goes() -> None:
    async with open_server() as server, trio.open_nursery() as nursery:

        async def work() -> None:
            while True:
                sum(range(10_000))
                await trio.lowlevel.checkpoint()

        nursery.start_soon(work)
        text = (await server.ask("GET", f"{PROFILE}?seconds=0.5&debug=1")).body.decode()
        assert "work" in text
        answer = await server.ask("GET", f"{PROFILE}?seconds=0.3")
        assert b"work" in gzip.decompress(answer.body)
        nursery.cancel_scope.cancel()
    async with open_server() as server:
        for seconds in ("0", "-1", "61", "x", "nan"):
            assert (await server.ask("GET", f"{PROFILE}?seconds={seconds}")).status == 400


async def test_profiling_can_be_off(autojump_clock: MockClock) -> None:
    async with open_server(profiling=False) as server:
        assert (await server.ask("GET", PROFILE)).status == 404


async def test_storage_and_queues_are_measured(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        await server.post(MAPS, configmap("a"))
        labels = {"group": "", "resource": "configmaps"}
        assert await server.metric("etcd_requests_total", operation="create", **labels) == 1
        assert await server.metric("apiserver_storage_objects", resource="configmaps") == 1
        assert await server.metric("apiserver_watch_cache_events_received_total", **labels) == 1
        assert await server.metric("apiserver_watch_cache_resource_version", **labels) == server.store.reads.applied
        assert await server.metric("process_resident_memory_bytes") is not None
        queue = server.store.queue("some-loop")
        queue.added("key")
        assert await server.metric("workqueue_depth", name="some-loop") == 1
        queue.taken("key")
        await trio.sleep(2)
        assert await server.metric("workqueue_unfinished_work_seconds", name="some-loop") == 2
        queue.given_back("key")
        assert await server.metric("workqueue_work_duration_seconds_sum", name="some-loop") == 2


def test_flags_are_shown_without_secrets() -> None:
    url = "postgresql://chronicle:secret@db.example:5432/log?password=hidden"
    values = shown(load({"database-url": url, "request-timeout": "90s", "enable-ui": True}, environment={}))
    assert values["database-url"] == "postgresql://REDACTED@db.example:5432/log?password=REDACTED"
    assert (values["request-timeout"], values["enable-ui"]) == ("1m30s", "true")
    assert values["service-node-port-range"] == "30000-32767"
    assert "secret" not in str(values)


async def test_configz_has_the_flags_as_json(autojump_clock: MockClock) -> None:
    url = "postgresql://chronicle:secret@db.example:5432/log?password=hidden"
    settings = load({"database-url": url, "request-timeout": "90s", "enable-ui": True}, environment={})
    async with open_server(configuration=configuration(settings)) as server:
        values = (await server.get("/configz"))["kubechronicle"]
        assert values["database-url"] == "postgresql://REDACTED@db.example:5432/log?password=REDACTED"
        assert (values["request-timeout"], values["enable-ui"]) == ("1m30s", True)
        assert (values["max-requests-inflight"], values["audit-policy-file"]) == (400, None)
        assert values["service-account-issuer"] == ["https://kubernetes.default.svc.cluster.local"]
        assert values.keys() == shown(settings).keys()
