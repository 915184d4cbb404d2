"""The few requests that starting a cluster needs."""

from __future__ import annotations

import http.client
import json
import ssl
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from kubechronicle.ops import pki

TIMEOUT = 10.0


class Api:
    """A client with the credentials of a kubeconfig. Raises OSError or http.client.HTTPException."""

    def __init__(self, kubeconfig: Path) -> None:
        document = yaml.safe_load(kubeconfig.read_text())
        cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
        url = urlsplit(cluster["server"])
        self._address = url.hostname or "", url.port or 443
        self._context = ssl.create_default_context(
            cadata=pki.decode_data(cluster["certificate-authority-data"]).decode()
        )
        with tempfile.NamedTemporaryFile() as pair:  # the library reads certificates from files only
            for key in ("client-certificate-data", "client-key-data"):
                pair.write(pki.decode_data(user[key]))
            pair.flush()
            self._context.load_cert_chain(pair.name)

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Return the status and the decoded body of an answer."""
        connection = http.client.HTTPSConnection(*self._address, context=self._context, timeout=TIMEOUT)
        try:
            data = json.dumps(body) if body is not None else None
            connection.request(method, path, data, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or b"null")
        finally:
            connection.close()
