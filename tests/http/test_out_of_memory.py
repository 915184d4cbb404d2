"""A process that may not grow any more answers 503 or ends: it blames no client, and does not crash."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from ssl import CERT_NONE, create_default_context
from urllib.parse import urlsplit

import pytest

from kubechronicle.api.codecs import budget
from kubechronicle.http.edge import Headroom
from kubechronicle.ops.development.server_process import ServerProcess, running

MIB = 1024 * 1024
DOCUMENTS = {
    "lists": '{"a":[' + ",".join(["[]"] * 190_000) + "]}",
    "objects": "{" + ",".join(f'"key{number}":{{"x":"{number}"}}' for number in range(50_000)) + "}",
    "text": '{"a":"' + "x" * 2_000_000 + '"}',
    "numbers": '{"a":[' + ",".join(f"{number}.5" for number in range(200_000)) + "]}",
}
_DECODE = """
import resource, sys
from pathlib import Path
from kubechronicle.api.codecs import json
data, room = Path(sys.argv[1]).read_bytes(), int(sys.argv[2])
now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (now + room, resource.RLIM_INFINITY))
try:
    json.decode_value(data, strict=True)
except MemoryError:
    sys.exit(7)
"""


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_for_which_there_is_no_memory(name: str, tmp_path: Path) -> None:
    """Without the reservation, orjson crashes for most of these amounts, or reports a syntax error."""
    document = tmp_path / "document"
    document.write_text(DOCUMENTS[name])
    for room in (0, 3 * MIB, 8 * MIB, 20 * MIB):
        done = subprocess.run(
            [sys.executable, "-c", _DECODE, str(document), str(room)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 7, (room, done.stderr)


def test_headroom_is_checked_now_and_then_and_at_each_call_without(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    short = True

    def require(size: int) -> None:
        looks.append(size)
        if short:
            raise MemoryError

    monkeypatch.setattr(budget, "require", require)
    checked = Headroom()
    for _ in range(budget.EVERY - 1):
        checked.check()
    assert looks == []
    for _ in range(3):
        with pytest.raises(MemoryError):
            checked.check()
    short = False
    for _ in range(budget.EVERY):
        checked.check()
    assert len(looks) == 4


def sender(url: str, body: str, seen: Counter[int], number: int) -> Callable[[], None]:
    """Return a function that creates ConfigMaps and lists them, and counts the status codes; 0 for a cut connection."""
    context = create_default_context()
    context.check_hostname, context.verify_mode = False, CERT_NONE
    headers = {"Authorization": "Bearer t", "Content-Type": "application/json"}
    path = "/api/v1/namespaces/default/configmaps"

    def send() -> None:
        for attempt in range(4):
            connection = HTTPSConnection(urlsplit(url).netloc, timeout=60, context=context)
            name = f"c-{number}-{attempt}"
            whole = f'{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}"}},"data":{body}}}'
            try:
                connection.request("POST", path, whole, headers)
                answer = connection.getresponse()
                text = answer.read()
                seen[answer.status] += 1
                if answer.status == 503:
                    assert "out of memory" in json.loads(text)["message"]
                connection.request("GET", path, headers=headers)
                answer = connection.getresponse()
                answer.read()
                seen[answer.status] += 1
            except (OSError, HTTPException):
                seen[0] += 1
            finally:
                connection.close()

    return send


@pytest.mark.parametrize("room", [24, 96])
def test_a_server_without_memory_blames_no_client_and_does_not_crash(room: int) -> None:
    body = json.dumps({f"key-{number}": "x" * 8 for number in range(30_000)})
    with tempfile.TemporaryDirectory(prefix="kubechronicle-test-") as directory:
        tokens = Path(directory) / "tokens.csv"
        tokens.write_text('t,admin,admin,"system:masters"\n')
        with running(ServerProcess(Path(directory) / "data", arguments=["--token-auth-file", str(tokens)])) as server:
            size = int(Path(f"/proc/{server.pid}/statm").read_text().split()[0]) * resource.getpagesize()
            resource.prlimit(server.pid, resource.RLIMIT_AS, (size + room * MIB, resource.RLIM_INFINITY))
            seen: Counter[int] = Counter()
            threads = [threading.Thread(target=sender(server.url, body, seen, number)) for number in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(120)
            process = server._process
            assert process is not None
            assert process.poll() is None or process.returncode > 0, f"killed by a signal: {process.returncode}"
            assert not {400, 422} & seen.keys(), seen
            assert seen.keys() <= {0, 200, 201, 500, 503, 504}, seen
            assert seen[503] or process.poll() is not None, seen  # 503, or the server has ended
            if process.poll() is None:
                resource.prlimit(server.pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
                again: Counter[int] = Counter()
                sender(server.url, "{}", again, 9)()
                assert again.keys() == {200, 201}, again
