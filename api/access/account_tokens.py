"""Service account tokens in Secrets of type kubernetes.io/service-account-token.

A user creates the Secret, and names the account in an annotation (docs: "Manually create a long-lived API token").

    annotations    kubernetes.io/service-account.name: robot      set by the user
                   kubernetes.io/service-account.uid: …           set by the server, like all of data
    data           token, namespace, ca.crt

Pure; after kube-controller-manager's serviceaccount-token-controller. Such a token never expires: it is valid as long
as its Secret and its account exist.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any, Final

from kubechronicle.api.values.objects import Object

SECRET_TYPE: Final = "kubernetes.io/service-account-token"
NAME: Final = "kubernetes.io/service-account.name"
UID: Final = "kubernetes.io/service-account.uid"
ISSUER: Final = "kubernetes/serviceaccount"
CLAIM: Final = "kubernetes.io/serviceaccount/"

Sign = Callable[[Mapping[str, Any]], str]
"""Signs claims; returns the token."""


def account_name(secret: Mapping[str, Any]) -> str:
    """Return the name of a Secret's service account; "" for none."""
    name: str = (secret["metadata"].get("annotations") or {}).get(NAME, "")
    return name if secret.get("type") == SECRET_TYPE else ""


def is_for(secret: Mapping[str, Any], account_uid: str) -> bool:
    """Return True if a Secret belongs to the account with this uid, not to an earlier one of the same name."""
    return (secret["metadata"].get("annotations") or {}).get(UID, "") in ("", account_uid)


def claims(namespace: str, secret_name: str, account: str, account_uid: str) -> Object:
    """Return the claims of the token in a Secret."""
    return {
        "iss": ISSUER,
        "sub": f"system:serviceaccount:{namespace}:{account}",
        f"{CLAIM}namespace": namespace,
        f"{CLAIM}secret.name": secret_name,
        f"{CLAIM}service-account.name": account,
        f"{CLAIM}service-account.uid": account_uid,
    }


def is_complete(secret: Mapping[str, Any], root_ca: bytes) -> bool:
    """Return True if the Secret has all of its data."""
    data = secret.get("data") or {}
    return bool(data.get("token") and data.get("namespace") and (data.get("ca.crt") or not root_ca))


def completed(secret: Object, account_uid: str, *, root_ca: bytes, sign: Sign) -> Object:
    """Return the Secret with its missing data. ``root_ca``: the CA of the server's certificate, PEM; may be empty."""
    if is_complete(secret, root_ca):
        return secret
    meta, name = secret["metadata"], account_name(secret)
    data = dict(secret.get("data") or {})
    if root_ca and not data.get("ca.crt"):
        data["ca.crt"] = _encoded(root_ca)
    if not data.get("namespace"):
        data["namespace"] = _encoded(meta["namespace"].encode())
    if not data.get("token"):
        data["token"] = _encoded(sign(claims(meta["namespace"], meta["name"], name, account_uid)).encode())
    annotations = {**(meta.get("annotations") or {}), NAME: name, UID: account_uid}
    return {**secret, "metadata": {**meta, "annotations": annotations}, "data": data}


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()
