"""Hostile clients: requests that were found to stop a server, sent again and again by many threads.

    python hostile_clients.py URL REVISION CLIENTS SECONDS [NAME…]

Each client is a user of its own, whose token is hostile-0, hostile-1, …. A line of JSON is printed in the end: for each
request the number of answers by status, and the seconds of the slowest one. NAMEs select requests.
"""

from __future__ import annotations

import http.client
import json
import ssl
import sys
import threading
import time
from collections import Counter
from urllib.parse import urlsplit

from kubechronicle.ops.development.hostile.requests import REQUESTS


def connected(address: str) -> http.client.HTTPSConnection:
    """Return a connection to a server whose certificate is not checked."""
    context = ssl._create_unverified_context()
    return http.client.HTTPSConnection(address, timeout=60, context=context)


class Attack:
    """Sends requests from several threads until the time is over."""

    def __init__(self, url: str, names: list[str], revision: str) -> None:
        self.address = urlsplit(url)
        self.names = names
        self.bodies = {name: REQUESTS[name].body() for name in names}
        self.revision = revision
        self.statuses: dict[str, Counter[str]] = {name: Counter() for name in names}
        self.slowest: dict[str, float] = dict.fromkeys(names, 0.0)
        self.end = 0.0

    def run(self, clients: int, seconds: float) -> None:
        self.end = time.monotonic() + seconds
        places = [number * len(self.names) // clients for number in range(clients)]
        threads = [threading.Thread(target=self._client, args=each, daemon=True) for each in enumerate(places)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, self.end + 5 - time.monotonic()))

    def _client(self, number: int, at: int) -> None:
        while time.monotonic() < self.end:
            name = self.names[at % len(self.names)]
            at += 1
            began = time.monotonic()
            try:
                answer = str(self.send(name, f"hostile-{number}"))
            except (OSError, http.client.HTTPException) as error:
                answer = type(error).__name__
            self.statuses[name][answer] += 1
            self.slowest[name] = max(self.slowest[name], time.monotonic() - began)

    def send(self, name: str, token: str) -> int:
        request = REQUESTS[name]
        connection = connected(self.address.netloc)
        headers = {"authorization": f"Bearer {token}", "content-type": request.content_type, **request.headers}
        began = time.monotonic()
        try:
            path = request.path.replace("{revision}", self.revision)
            connection.request(request.method, path, self.bodies[name] or None, headers)
            response = connection.getresponse()
            while response.read(1 << 18) and time.monotonic() < began + request.most:
                pass
            return response.status
        finally:
            connection.close()


def main() -> None:
    url, revision, clients, seconds, *names = sys.argv[1:]
    attack = Attack(url, names or list(REQUESTS), revision)
    print("ready", flush=True)
    attack.run(int(clients), float(seconds))
    answers = {name: [attack.statuses[name], round(attack.slowest[name], 2)] for name in attack.names}
    print(json.dumps(answers), flush=True)


if __name__ == "__main__":
    main()
