"""`feed`: JSON lines, files and webhooks; at least once, in order, resumable, and never a silent gap."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from in_process import ADMIN, JOE
from server_in_thread import InThread, Running, server_in_thread

from kubechronicle.eventlog.memory.store import MemoryStore
from kubechronicle.ops import cli
from kubechronicle.ops.client import session
from kubechronicle.ops.client.commands import feed
from kubechronicle.ops.client.feeds import opening, sinks
from kubechronicle.ops.client.feeds.position import FeedPosition, StateFile

Chronicle = Callable[..., Any]


def changes_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def numbers(changes: list[dict[str, Any]]) -> list[int]:
    return [int(change["metadata"]["name"]) for change in changes]


def objects(changes: list[dict[str, Any]]) -> list[str]:
    return [f"{change['operation']} {change['object']['name']}" for change in changes]


@pytest.fixture
def space(running: Running, shop: tuple[str, int]) -> Callable[..., Any]:
    """Return a function that creates a ConfigMap in the shop and returns its revision."""

    def create(name: str) -> int:
        made = running.ask("POST", f"/api/v1/namespaces/{shop[0]}/configmaps", {"metadata": {"name": name}})
        return int(made["metadata"]["resourceVersion"])

    return create


def test_changes_are_lines_of_json_in_order(chronicle: Chronicle, shop: tuple[str, int]) -> None:
    output = chronicle("feed", "-n", shop[0], "--since", "oldest", "--no-follow")
    assert output.code == 0, output.err
    found = changes_of(output.out)
    assert numbers(found) == sorted(numbers(found))
    assert "Create web" in objects(found)
    scaled = next(each for each in found if each.get("summary") == "spec.replicas: 3 → 5")
    assert {"op": "replace", "path": "/spec/replicas", "value": 5, "old": 3} in scaled["diff"]
    assert scaled["who"]["fieldManager"] == "hand"
    after = chronicle("feed", "-n", shop[0], "--after", scaled["metadata"]["name"], "--no-follow", "--batch", "1")
    assert numbers(changes_of(after.out)) == [each for each in numbers(found) if each > numbers([scaled])[0]]


def test_secrets_are_masked_and_filters_apply(chronicle: Chronicle, shop: tuple[str, int]) -> None:
    output = chronicle("feed", "secrets", "-n", shop[0], "--since", "oldest", "--no-follow", "--content", "full")
    assert {change["object"]["resource"] for change in changes_of(output.out)} == {"secrets"}
    assert "***" in output.out
    assert "aHVzaA==" not in output.out
    deleted = chronicle("feed", "-n", shop[0], "--since", "oldest", "--no-follow", "--operation", "delete")
    assert objects(changes_of(deleted.out)) == ["Delete settings"]
    field = chronicle(
        "feed", "deployments", "-n", shop[0], "--since", "oldest", "--no-follow", "--field", "spec.replicas",
        "--verb", "patch",
    )  # fmt: skip
    assert "spec.replicas: 3 → 5" in [change.get("summary") for change in changes_of(field.out)]


def test_a_reader_of_one_namespace_is_told_of_the_list_it_may_not_read(
    chronicle: Chronicle, running: Running, shop: tuple[str, int]
) -> None:
    rules = [{"apiGroups": ["history.kubechronicle.dev"], "resources": ["revisions"], "verbs": ["list", "watch"]}]
    roles = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{shop[0]}"
    running.ask("POST", f"{roles}/roles", {"metadata": {"name": "r"}, "rules": rules})
    group = {"apiGroup": "rbac.authorization.k8s.io"}
    subjects = [{**group, "kind": "User", "name": "joe"}]
    reference = {**group, "kind": "Role", "name": "r"}
    running.ask(
        "POST", f"{roles}/rolebindings", {"metadata": {"name": "r"}, "roleRef": reference, "subjects": subjects}
    )
    output = chronicle("feed", "-n", shop[0], "--since", "oldest", "--no-follow", token=JOE)
    assert output.code == 0, output.err
    assert "Create web" in objects(changes_of(output.out))
    assert all(change.get("redacted") for change in changes_of(output.out))
    assert output.err.count("skipped: clusterrevisions.history.kubechronicle.dev is forbidden") == 1


def test_a_feed_goes_on_from_its_state(
    chronicle: Chronicle, shop: tuple[str, int], space: Callable[..., Any], tmp_path: Path
) -> None:
    state, file = tmp_path / "feed.state", tmp_path / "changes.jsonl"
    flags = ("-n", shop[0], "--state", str(state), "--to", f"file:{file}", "--no-follow")
    assert chronicle("feed", *flags).code == 0  # begins now
    first = space("one")
    assert chronicle("feed", *flags).code == 0
    assert numbers(changes_of(file.read_text())) == [first]
    file.write_bytes(file.read_bytes() + b'{"torn')
    second = space("two")
    assert chronicle("feed", *flags).code == 0
    assert numbers(changes_of(file.read_text())) == [first, second]
    assert chronicle("feed", *flags).code == 0  # nothing new
    assert numbers(changes_of(file.read_text())) == [first, second]


def test_a_state_of_another_log_is_refused(
    chronicle: Chronicle, shop: tuple[str, int], space: Callable[..., Any], tmp_path: Path
) -> None:
    state = tmp_path / "feed.state"
    revision = space("here")
    StateFile(str(state)).write(FeedPosition(revision, "2020-01-01T00:00:00.000000Z"))
    output = chronicle("feed", "-n", shop[0], "--state", str(state), "--no-follow")
    assert (output.code, "the log was restored from a backup, or this is another cluster" in output.err) == (2, True)
    StateFile(str(state)).write(FeedPosition(revision + 10_000_000))
    output = chronicle("feed", "-n", shop[0], "--state", str(state), "--no-follow")
    assert (output.code, "but the feed has reached" in output.err) == (2, True)
    state.write_text("{}")
    assert "is no state of a feed" in chronicle("feed", "-n", shop[0], "--state", str(state), "--no-follow").err


def test_a_feed_follows_until_it_is_interrupted(
    chronicle: Chronicle,
    shop: tuple[str, int],
    space: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """New changes arrive by watches. The second one interrupts the feed, as Ctrl-C does, before it is delivered."""
    sent: list[str] = []

    class Interrupted:
        def send(self, changes: Any) -> None:
            if sent:
                raise KeyboardInterrupt
            sent.extend(objects(list(changes)))
            threading.Thread(target=space, args=("second",)).start()

        def close(self) -> None: ...

    monkeypatch.setattr(feed, "open_sink", lambda *_, **__: Interrupted())
    revision = space("first")
    output = chronicle("feed", "-n", shop[0], "--after", str(revision - 1))
    assert output.code == 0
    assert sent == ["Create first"]
    assert f"stopped after revision {revision}; --after goes on from there" in output.err


class Receiver(BaseHTTPRequestHandler):
    """A webhook. ``answers``: the status codes to give in turn, then 204."""

    answers: list[int]
    received: list[tuple[str, Any]]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        code = self.answers.pop(0) if self.answers else 204
        type(self).received.append((f"{code} {self.headers['Content-Type']} {self.headers.get('X-Token')}", body))
        self.send_response(code)
        if code == 429:
            self.send_header("Retry-After", "7")
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def webhook() -> Iterator[tuple[str, type[Receiver]]]:
    handler = type("Handler", (Receiver,), {"answers": [], "received": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/in", handler
    server.shutdown()
    server.server_close()


def test_a_webhook_gets_cloud_events_until_it_acknowledges_them(
    chronicle: Chronicle,
    shop: tuple[str, int],
    space: Callable[..., Any],
    webhook: tuple[str, type[Receiver]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    url, handler = webhook
    pauses: list[float] = []
    monkeypatch.setattr(feed, "sleep", pauses.append)
    handler.answers = [503, 429, 500, 413]
    config, state = tmp_path / "headers", tmp_path / "state"
    config.write_text("# of the receiver\nX-Token = a=b\nsource = /clusters/one\n")
    revision = space("first")
    space("second")
    flags = ("-n", shop[0], "--after", str(revision - 1), "--no-follow", "--sink-config", str(config))
    output = chronicle("feed", *flags, "--to", url, "--state", str(state))
    assert output.code == 0, output.err
    assert pauses == [0.5, 7.0, 2.0]
    assert [line.split(" ")[0] for line, _ in handler.received] == ["503", "429", "500", "413", "204", "204"]
    assert handler.received[0][0].endswith("application/cloudevents-batch+json; charset=utf-8 a=b")
    assert [len(body) for _, body in handler.received] == [2, 2, 2, 2, 1, 1]
    event = handler.received[4][1][0]
    assert event["data"]["object"]["name"] == "first"
    assert {name: event[name] for name in ("specversion", "id", "source", "type", "subject")} == {
        "specversion": "1.0",
        "id": str(revision),
        "source": "/clusters/one",
        "type": "dev.kubechronicle.history.create",
        "subject": f"{shop[0]}/configmaps/first",
    }
    assert output.err.splitlines() == [
        f"{url} answered 503 Service Unavailable; the feed tries again", "it answers again",
    ]  # fmt: skip
    kept = StateFile(str(state)).read()
    assert kept is not None
    assert kept.revision > revision


def test_a_webhook_that_refuses_ends_the_feed_without_moving_the_position(
    chronicle: Chronicle,
    shop: tuple[str, int],
    space: Callable[..., Any],
    webhook: tuple[str, type[Receiver]],
    tmp_path: Path,
) -> None:
    url, handler = webhook
    handler.answers = [401]
    state = tmp_path / "state"
    revision = space("first")
    StateFile(str(state)).write(FeedPosition(revision - 1))
    output = chronicle("feed", "-n", shop[0], "--state", str(state), "--no-follow", "--to", url)
    assert output.code == 2
    assert f"answered 401 Unauthorized to revision {revision}; it was not delivered" in output.err
    assert StateFile(str(state)).read() == FeedPosition(revision - 1)


def test_a_feed_gives_up_if_it_shall(
    chronicle: Chronicle, shop: tuple[str, int], space: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "sleep", lambda seconds: None)
    revision = space("first")
    output = chronicle(
        "feed", "-n", shop[0], "--after", str(revision - 1), "--no-follow", "--give-up", "0.001",
        "--to", "http://127.0.0.1:1/",
    )  # fmt: skip
    assert output.code == 2
    assert f"delivered up to revision {revision - 1}" in output.err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--to", "ftp://x/y"), "must be -, file:PATH"),
        (("--to", "kafka://broker:9092"), "must be -, file:PATH"),
        (("--sink-config", "/nowhere/at/all"), "cannot read --sink-config"),
        (("--batch", "0"), "--batch must be at least 1"),
        (("--after", "-4"), "--after must not be negative"),
        (("--since", "tag:unknown"), "there is no tag unknown"),
    ],
)
def test_mistakes_are_explained(chronicle: Chronicle, flags: tuple[str, ...], message: str) -> None:
    output = chronicle("feed", "-A", "--no-follow", *flags)
    assert output.code == 2
    assert message in output.err


@pytest.mark.parametrize(("address", "extra"), [("kafka://b:9092/t", "kafka"), ("nats://b:4222/s", "nats")])
def test_a_missing_client_is_named_with_its_mend(
    chronicle: Chronicle, monkeypatch: pytest.MonkeyPatch, address: str, extra: str
) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(sinks.importlib, "import_module", missing)
    with pytest.raises(Exception, match=f"pip install 'kubechronicle\\[{extra}\\]'"):
        opening.open_sink(address)


@pytest.fixture
def aging(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Any]:
    """Return a server of its own, its log, and a function that runs commands against it."""
    store = MemoryStore()
    with server_in_thread(log=store) as running:
        monkeypatch.setattr(session, "make_transport", lambda target: InThread(running, ADMIN))

        def run(*arguments: str) -> tuple[int, str, str]:
            name, *rest = arguments
            code = cli.main([name, "--server", "https://in.process", "--token", ADMIN, *rest])
            printed = capsys.readouterr()
            return code, printed.out, printed.err

        yield running, store, run


def test_dropped_changes_are_never_a_silent_gap(aging: Any, tmp_path: Path) -> None:
    running, store, run = aging

    def create(name: str) -> int:
        made = running.ask("POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": name}})
        return int(made["metadata"]["resourceVersion"])

    state = str(tmp_path / "state")
    flags = ("feed", "-A", "--state", state, "--no-follow")
    assert run(*flags)[0] == 0
    before = create("one")
    create("two")
    dropped = create("three")
    last = create("four")
    running.token.run_sync_soon(store.compact, dropped)
    running.ask("GET", "/api/v1/namespaces/default/configmaps/four")
    code, out, err = run(*flags)
    assert (code, out) == (2, "")
    assert f"changes after revision {before - 1} are lost, of all resources up to" in err
    assert f"(revision {dropped})" in err
    assert run(*flags)[0] == 2  # the position has not moved
    code, out, err = run(*flags, "--accept-loss")
    assert (code, numbers(changes_of(out))) == (0, [last])
    assert "the feed goes on without them" in err
    code, out, err = run("feed", "-A", "--since", "oldest", "--no-follow")
    assert (code, numbers(changes_of(out))) == (0, [last])
