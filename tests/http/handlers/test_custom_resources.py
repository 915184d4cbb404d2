"""Custom resources over HTTP: paths, discovery, and watches that end with their definition."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from custom.definitions import definition, version
from custom.serving import CRDS, WIDGETS, define, serving, until_gone
from trio.testing import MockClock

from kubechronicle.actors.companion_changes import CompanionChange
from kubechronicle.actors.store import system_caller
from kubechronicle.api.custom.version import CustomVersion
from kubechronicle.eventlog.memory.memory_log import MemoryLog
from kubechronicle.eventlog.memory.store import MemoryStore

NAME = "widgets.example.com"
AGGREGATED = {"accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}
SUBRESOURCES = {"status": {}, "scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}}


def widget(name: str) -> dict[str, Any]:
    return {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}}


async def test_objects_are_created_read_watched_and_deleted(autojump_clock: MockClock) -> None:
    async with serving() as server:
        await define(server, definition())
        created = await server.post(WIDGETS, widget("a"))
        assert (await server.get(f"{WIDGETS}/a"))["metadata"] == created["metadata"]
        async with server.watch(f"{WIDGETS}?watch=1") as stream:
            assert (await stream.event())[:2] == ("ADDED", "a")
            await server.delete(f"{WIDGETS}/a")
            assert (await stream.event())[:2] == ("DELETED", "a")
        listed = await server.get("/apis/example.com/v1/widgets")
        assert (listed["kind"], listed["apiVersion"], listed["items"]) == ("WidgetList", "example.com/v1", [])


@pytest.mark.parametrize("verb", ["create", "apply"])
async def test_the_first_write_compiles_a_large_definition_in_the_thread(
    verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []
    compile_parts = CustomVersion.compile

    def noted(version: CustomVersion) -> None:
        threads.append(threading.get_ident())
        compile_parts(version)

    monkeypatch.setattr(CustomVersion, "compile", noted)
    fields = {f"field{number}": {"type": "string", "description": "a field " * 10} for number in range(200)}
    async with serving() as server:
        await define(server, definition(version(schema={"openAPIV3Schema": {"type": "object", "properties": fields}})))
        assert threads == []
        for name in ("a", "b"):
            if verb == "create":
                await server.post(WIDGETS, widget(name))
            else:
                headers = {"content-type": "application/apply-patch+yaml"}
                answer = await server.ask("PATCH", f"{WIDGETS}/{name}?fieldManager=test", widget(name), headers=headers)
                assert answer.status == 201
    (thread,) = threads
    assert thread != threading.get_ident()


async def test_discovery_follows_the_definitions(autojump_clock: MockClock) -> None:
    async with serving() as server:
        before = await server.ask("GET", "/apis", headers=AGGREGATED)
        obj = definition(version(subresources=SUBRESOURCES), version("v1beta1"), shortNames=["wd"], categories=["all"])
        await define(server, obj)
        group = await server.get("/apis/example.com")
        assert [one["version"] for one in group["versions"]] == ["v1", "v1beta1"]
        assert (await server.get("/apis"))["groups"][-1] == {
            key: value for key, value in group.items() if key not in ("kind", "apiVersion")
        }
        listed = (await server.get("/apis/example.com/v1"))["resources"]
        assert [one["name"] for one in listed] == ["widgets", "widgets/status", "widgets/scale"]
        assert (listed[0]["shortNames"], listed[0]["categories"]) == (["wd"], ["all"])
        assert (listed[2]["group"], listed[2]["version"], listed[2]["kind"]) == ("autoscaling", "v1", "Scale")
        after = await server.ask("GET", "/apis", headers={**AGGREGATED, "if-none-match": before.header("etag")})
        assert after.status == 200
        assert after.header("etag") != before.header("etag")
        found = after.json()["items"][-1]["versions"][0]["resources"][0]
        assert found["responseKind"] == {"group": "example.com", "version": "v1", "kind": "Widget"}
        assert [one["responseKind"] for one in found["subresources"]] == [
            {"group": "example.com", "version": "v1", "kind": "Widget"},
            {"group": "autoscaling", "version": "v1", "kind": "Scale"},
        ]
        await server.delete(f"{CRDS}/{NAME}")
        await until_gone(server, NAME)
        assert (await server.ask("GET", "/apis", headers=AGGREGATED)).body == before.body
        assert (await server.ask("GET", "/apis/example.com/v1")).status == 404


@pytest.mark.parametrize(
    ("method", "path", "code", "text"),
    [
        ("GET", "/apis/example.com/v1/gadgets", 404, "404 page not found\n"),
        ("GET", "/apis/example.com/v2/widgets", 404, "404 page not found\n"),
        ("GET", "/apis/example.com/v1/widgets/a", 404, "404 page not found\n"),
        ("POST", "/apis/example.com/v1/widgets", 404, "404 page not found\n"),
        ("GET", f"{WIDGETS}/a/nothing", 404, 'widgets.example.com "a" not found'),
        ("DELETE", f"{WIDGETS}/a/status", 405, 'delete is not supported on resources of kind "widgets.example.com"'),
        ("POST", f"{WIDGETS}/a/status", 405, 'create is not supported on resources of kind "widgets.example.com"'),
        ("PUT", WIDGETS, 400, "name must be provided"),
        ("PATCH", WIDGETS, 400, "name must be provided"),
    ],
)
async def test_paths_that_are_not_served(
    method: str, path: str, code: int, text: str, autojump_clock: MockClock
) -> None:
    async with serving() as server:
        await define(server, definition(version(subresources={"status": {}})))
        answer = await server.ask(method, path, widget("a") if method != "GET" else None)
        assert answer.status == code
        assert (answer.body.decode() if text.endswith("\n") else answer.json()["message"]) == text


async def test_a_cluster_scoped_resource_has_no_path_below_a_namespace(autojump_clock: MockClock) -> None:
    async with serving() as server:
        await define(server, definition(scope="Cluster"))
        await server.post("/apis/example.com/v1/widgets", widget("a"))
        assert await server.names("/apis/example.com/v1/widgets") == ["a"]
        assert (await server.ask("GET", WIDGETS)).body == b"404 page not found\n"


async def test_a_deprecated_version_warns_also_at_its_subresources(autojump_clock: MockClock) -> None:
    async with serving() as server:
        await define(server, definition(version(deprecated=True, subresources={"status": {}})))
        for path in (WIDGETS, f"{WIDGETS}/a/status", f"{WIDGETS}/a/nothing"):
            warnings = (await server.ask("GET", path)).header_all("warning")
            assert warnings == ['299 - "example.com/v1 Widget is deprecated"']


async def test_a_watch_ends_when_its_definition_changes(autojump_clock: MockClock) -> None:
    async with serving() as server:
        await define(server, definition(version(), version("v1beta1")))
        await define(server, definition(plural="gadgets"))
        await server.post(WIDGETS, widget("a"))
        path = "/apis/example.com/{}/{}?watch=1"
        async with (
            server.watch(path.format("v1", "widgets")) as widgets,
            server.watch(path.format("v1beta1", "widgets")) as old,
            server.watch(path.format("v1", "gadgets")) as gadgets,
        ):
            assert (await widgets.event())[:2] == ("ADDED", "a")
            assert (await old.event())[:2] == ("ADDED", "a")
            await server.patch(f"{CRDS}/{NAME}", {"metadata": {"labels": {"a": "b"}}})
            await server.patch(f"{WIDGETS}/a", {"metadata": {"labels": {"a": "b"}}})
            assert (await widgets.event())[:2] == ("MODIFIED", "a")
            assert (await old.event())[:2] == ("MODIFIED", "a")
            held = await server.get(f"{CRDS}/{NAME}")
            held["spec"]["versions"][1]["served"] = False
            await server.put(f"{CRDS}/{NAME}", held)
            assert await widgets.rest() == []
            assert await old.rest() == []
            gadget = {"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": "g"}}
            await server.post(WIDGETS.replace("widgets", "gadgets"), gadget)
            assert (await gadgets.event())[:2] == ("ADDED", "g")
        assert (await server.ask("GET", "/apis/example.com/v1beta1/widgets")).status == 404
        assert await server.names(WIDGETS) == ["a"]


async def test_openapi_lists_the_group_version(autojump_clock: MockClock) -> None:
    async with serving() as server:
        before = await server.get("/openapi/v3")
        await define(server, definition())
        after = await server.get("/openapi/v3")
        assert set(after["paths"]) - set(before["paths"]) == {"apis/example.com/v1"}
        changed = await server.get(f"{CRDS}/{NAME}")
        changed["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["description"] = "Something"
        await server.put(f"{CRDS}/{NAME}", changed)
        again = await server.get("/openapi/v3")
        moved = [path for path in after["paths"] if after["paths"][path] != again["paths"][path]]
        assert moved == ["apis/example.com/v1"]


async def test_the_index_of_openapi_has_another_date_for_each_registry(autojump_clock: MockClock) -> None:
    """kubectl keeps the index by its date in seconds, and explains a kind that was defined in the same second."""
    async with serving() as server:
        dates = []
        for plural in ("widgets", "gadgets"):
            before = (await server.ask("GET", "/openapi/v3")).header("last-modified")
            await define(server, definition(plural=plural))
            again = await server.ask("GET", "/openapi/v3", headers={"if-modified-since": before})
            assert again.status == 200
            dates += [before, again.header("last-modified")]
        assert len(set(dates)) == 3


async def test_the_past_has_the_resources_of_its_moment(autojump_clock: MockClock) -> None:
    async with serving() as server:
        columns = [{"name": "Size", "type": "string", "jsonPath": ".size"}]
        await define(server, definition(version(additionalPrinterColumns=columns), version("v1beta1")))
        created = await server.post(WIDGETS, widget("a") | {"size": "L"})
        moment = f"/history/at/{created['metadata']['resourceVersion']}"
        await server.delete(f"{CRDS}/{NAME}")
        await until_gone(server, NAME)
        await define(server, definition(scope="Cluster"))
        gone = f"/history/at/{server.store.reads.applied}"
        for forgotten in (False, True):
            if forgotten:
                server.assembly.views["customresourcedefinitions.apiextensions.k8s.io"].window.reset(
                    server.store.reads.applied
                )
            assert await server.names(f"{moment}{WIDGETS}") == ["a"]
            table = {"accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}
            shown = await server.get(f"{moment}{WIDGETS}", headers=table)
            assert shown["rows"][0]["cells"][:2] == ["a", "L"]
            assert [one["version"] for one in (await server.get(f"{moment}/apis/example.com"))["versions"]] == [
                "v1",
                "v1beta1",
            ]
            assert "apis/example.com/v1beta1" in (await server.get(f"{moment}/openapi/v3"))["paths"]
            assert (await server.ask("GET", f"{gone}{WIDGETS}")).status == 404
            assert [one["version"] for one in (await server.get("/apis/example.com"))["versions"]] == ["v1"]
            assert await server.names("/apis/example.com/v1/widgets") == []


async def test_definitions_are_read_once_for_all_moments_between_two_changes_of_them(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving() as server:
        resource = "customresourcedefinitions.apiextensions.k8s.io"
        log, listed = server.store.reads.log, list[str]()
        list_at = log.list_at

        async def counted(of: str, **selection: Any) -> Any:
            listed.append(of)
            return await list_at(of, **selection)

        monkeypatch.setattr(log, "list_at", counted)

        async def names_of_the_past() -> list[list[str]]:
            server.assembly.views[resource].window.reset(server.store.reads.applied)
            return [await server.names(f"/history/at/{moment}{WIDGETS}") for moment in (one, two, one)]

        await define(server, definition())
        one = (await server.post(WIDGETS, widget("a")))["metadata"]["resourceVersion"]
        two = (await server.post(WIDGETS, widget("b")))["metadata"]["resourceVersion"]
        assert await names_of_the_past() == [["a"], ["a", "b"], ["a"]]
        assert listed.count(resource) == 0  # those of the present have not changed since
        await define(server, definition(plural="gadgets"))
        assert await names_of_the_past() == [["a"], ["a", "b"], ["a"]]
        assert listed.count(resource) == 1
        await server.delete(f"{CRDS}/{NAME}")
        await until_gone(server, NAME)
        assert await names_of_the_past() == [["a"], ["a", "b"], ["a"]]
        assert listed.count(resource) == 1
        gone = server.store.reads.applied
        await server.post("/api/v1/namespaces/default/configmaps", {"metadata": {"name": "later"}})
        server.assembly.views[resource].window.reset(server.store.reads.applied)
        assert (await server.ask("GET", f"/history/at/{gone}{WIDGETS}")).status == 404
        assert listed.count(resource) == 1


@pytest.mark.parametrize(
    "selector", ["object.kind=Widget", "object.resource=widgets.example.com", "object.apiVersion=example.com/v1"]
)
async def test_changes_of_a_deleted_kind_are_found(selector: str, autojump_clock: MockClock) -> None:
    revisions = "/apis/history.kubechronicle.dev/v1/namespaces/default/revisions"
    async with serving() as server:
        await define(server, definition())
        await server.post(WIDGETS, widget("a"))
        for _ in range(2):
            found = await server.get(f"{revisions}?fieldSelector={selector}")
            operations = [item["operation"] for item in found["items"]]
            assert operations == (["Create"] if not operations[1:] else ["Delete", "Create"])
            if len(operations) == 1:
                await server.delete(f"{CRDS}/{NAME}")
                await until_gone(server, NAME)
        assert operations == ["Delete", "Create"]
        # A kind that never existed is a mistake.
        (await server.ask("GET", f"{revisions}?fieldSelector={selector.partition('=')[0]}=nothing")).refused(400)


async def test_lists_have_the_form_of_an_untyped_list(autojump_clock: MockClock) -> None:
    async with serving() as server:
        await define(server, definition(version(), version("v1beta1")))
        await server.post(WIDGETS, widget("a"))
        for path in (WIDGETS, WIDGETS.replace("v1", "v1beta1"), f"{WIDGETS}?pretty=true"):
            listed = await server.get(path)
            assert listed["metadata"]["continue"] == ""
            (item,) = listed["items"]
            assert (item["apiVersion"], item["kind"]) == (listed["apiVersion"], "Widget")
        partial = {"accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}
        assert "continue" not in (await server.get(WIDGETS, headers=partial))["metadata"]


async def test_media_types_are_refused_without_a_route(autojump_clock: MockClock) -> None:
    scaled = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"n": {"type": "integer"}}}}}
    async with serving() as server:
        await define(server, definition(version(schema={"openAPIV3Schema": scaled}, subresources=SUBRESOURCES)))
        await server.post(WIDGETS, {**widget("a"), "spec": {"n": 1}})
        for target in (WIDGETS, f"{WIDGETS}/a"):
            refusal = (await server.ask("GET", target, headers={"accept": "text/html"})).refused(406)
            assert refusal["message"].startswith("only the following media types are accepted: application/json,")
            assert "details" not in refusal
        protobuf = {"accept": "application/vnd.kubernetes.protobuf"}
        assert (await server.ask("GET", f"{WIDGETS}/a/scale", headers=protobuf)).status == 406
        partials = {"accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}
        refusal = (await server.ask("GET", f"{WIDGETS}/a", headers=partials)).refused(500)
        assert refusal["message"] == "content is not a list"


async def test_a_scale_is_shown_with_columns_of_its_own(autojump_clock: MockClock) -> None:
    scaled = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"n": {"type": "integer"}}}}}
    async with serving() as server:
        await define(server, definition(version(schema={"openAPIV3Schema": scaled}, subresources=SUBRESOURCES)))
        await server.post(WIDGETS, {**widget("a"), "spec": {"n": 3}})
        table = {"accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}
        shown = await server.get(f"{WIDGETS}/a/scale", headers=table)
        columns = [(one["name"], one["type"], one["format"]) for one in shown["columnDefinitions"]]
        assert columns == [
            ("Name", "string", "name"), ("Desired", "integer", ""), ("Available", "integer", ""), ("Age", "date", "")
        ]  # fmt: skip
        assert shown["columnDefinitions"][1]["description"] == "Number of desired replicas"
        assert shown["rows"][0]["cells"][:3] == ["a", 3, 0]
        await server.post(WIDGETS, {**widget("b"), "spec": {"n": 0}})  # Go omits 0 replicas
        shown = await server.get(f"{WIDGETS}/b/scale", headers=table)
        assert shown["rows"][0]["cells"][:3] == ["b", None, 0]


async def test_selectable_fields_also_select_objects_that_are_older(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    async with serving(MemoryLog(store)) as server:
        await define(server, definition())
        for name, color in (("a", "red"), ("b", "blue")):
            await server.post(WIDGETS, widget(name) | {"spec": {"color": color}})
        selected = f"{WIDGETS}?fieldSelector=spec.color=red"
        (await server.ask("GET", selected)).refused(400)
        held = await server.get(f"{CRDS}/{NAME}")
        schema = {
            "type": "object",
            "properties": {"spec": {"type": "object", "properties": {"color": {"type": "string"}}}},
        }
        held["spec"]["versions"][0] |= {
            "schema": {"openAPIV3Schema": schema},
            "selectableFields": [{"jsonPath": ".spec.color"}],
        }
        await server.put(f"{CRDS}/{NAME}", held)
        assert await server.names(selected) == ["a"]
        async with server.watch(f"{selected}&watch=1") as stream:
            assert (await stream.event())[:2] == ("ADDED", "a")
            await server.patch(f"{WIDGETS}/b", {"spec": {"color": "red"}})
            assert (await stream.event())[:2] == ("ADDED", "b")
            await server.patch(f"{WIDGETS}/a", {"spec": {"color": "blue"}})
            assert (await stream.event())[:2] == ("DELETED", "a")
    async with serving(MemoryLog(store)) as again:
        assert await again.names(selected) == ["b"]


async def test_selectable_fields_have_the_defaults_of_the_present_schema(autojump_clock: MockClock) -> None:
    def colored(**color: Any) -> dict[str, Any]:
        spec = {"type": "object", "properties": {"color": {"type": "string", **color}}}
        if color:
            spec["default"] = {}
        schema = {"type": "object", "properties": {"spec": spec}}
        return version(schema={"openAPIV3Schema": schema}, selectableFields=[{"jsonPath": ".spec.color"}])

    async with serving() as server:
        await define(server, definition(colored()))
        await server.post(WIDGETS, widget("a"))
        await server.post(WIDGETS, widget("b") | {"spec": {"color": "blue"}})
        selected = f"{WIDGETS}?fieldSelector=spec.color=red"
        assert await server.names(selected) == []
        held = await server.get(f"{CRDS}/{NAME}")
        held["spec"]["versions"] = [colored(default="red")]
        held = await server.put(f"{CRDS}/{NAME}", held)
        assert await server.names(selected) == ["a"]
        async with server.watch(f"{selected}&watch=1") as stream:
            assert (await stream.event())[:2] == ("ADDED", "a")
            await server.patch(f"{WIDGETS}/a", {"spec": {"color": "blue"}})
            assert (await stream.event())[:2] == ("DELETED", "a")
        await server.post(WIDGETS, widget("c"))
        assert await server.names(selected) == ["c"]
        held["spec"]["versions"] = [colored()]
        await server.put(f"{CRDS}/{NAME}", held)
        assert await server.names(selected) == ["c"]


async def test_objects_older_than_their_schema_are_read_with_it(autojump_clock: MockClock) -> None:
    def sized(**size: Any) -> dict[str, Any]:
        schema = {
            "type": "object",
            "properties": {"size": {"type": "string", **size}, "old": {"type": "string"}},
        }
        columns = [{"name": "Size", "type": "string", "jsonPath": ".size"}]
        return version(schema={"openAPIV3Schema": schema}, additionalPrinterColumns=columns)

    async with serving() as server:
        await define(server, definition(sized()))
        await server.post(WIDGETS, widget("a") | {"old": "o"})
        held = await server.get(f"{CRDS}/{NAME}")
        held["spec"]["versions"] = [sized(default="L")]
        del held["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["old"]
        await server.put(f"{CRDS}/{NAME}", held)
        await server.post(WIDGETS, widget("b"))
        assert (await server.get(f"{WIDGETS}/a"))["size"] == "L"
        listed = (await server.get(WIDGETS))["items"]
        assert [(one["metadata"]["name"], one["size"], "old" in one) for one in listed] == [
            ("a", "L", False),
            ("b", "L", False),
        ]
        table = {"accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}
        assert [row["cells"][1] for row in (await server.get(WIDGETS, headers=table))["rows"]] == ["L", "L"]
        async with server.watch(f"{WIDGETS}?watch=1") as stream:
            for _ in range(2):
                event = await stream.next()
                assert event is not None
                assert event["object"]["size"] == "L"


async def test_a_late_write_by_the_former_schema_is_read_with_the_present_one(autojump_clock: MockClock) -> None:
    """Another replica may commit it after the change of the definition."""
    text: dict[str, Any] = {"type": "string"}

    def with_size(**size: Any) -> dict[str, Any]:
        return version(schema={"openAPIV3Schema": {"type": "object", "properties": {"size": {**text, **size}}}})

    async with serving() as server:
        await define(server, definition(with_size()))
        await server.post(WIDGETS, widget("a"))
        held = await server.get(f"{CRDS}/{NAME}")
        held["spec"]["versions"] = [with_size(default="L")]
        await server.put(f"{CRDS}/{NAME}", held)
        entry = server.store.reads.peek(NAME, "default", "a")
        assert entry is not None
        late = CompanionChange(key=entry.key, old=entry, object=entry.object() | {"gone": "g"})
        async with server.watch(f"{WIDGETS}?watch=1&resourceVersion={entry.revision}") as stream:
            assert await server.store.writes.commit_own_changes(system_caller("test", "update", cause=0), [late])
            event = await stream.next()
        assert event is not None
        for found in (event["object"], await server.get(f"{WIDGETS}/a"), (await server.get(WIDGETS))["items"][0]):
            assert (found["size"], "gone" in found) == ("L", False)
        patched = await server.patch(f"{WIDGETS}/a", {"metadata": {}})
        assert patched["metadata"]["resourceVersion"] != event["object"]["metadata"]["resourceVersion"]
        stored = server.store.reads.peek(NAME, "default", "a")
        assert stored is not None
        assert stored.object()["size"] == "L"
        again = await server.patch(f"{WIDGETS}/a", {})
        assert again["metadata"]["resourceVersion"] == patched["metadata"]["resourceVersion"]
        deleted = await server.delete(f"{WIDGETS}/a")
        assert deleted["status"] == "Success"
