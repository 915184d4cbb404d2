"""docs/authentication.md: its file is valid and works as the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from certificates import CA

from kubechronicle.http.authentication.oidc.claims import Mapper, TokenRejected
from kubechronicle.http.authentication.oidc.configuration import parse
from kubechronicle.http.authentication.oidc.validation import compile_configuration
from kubechronicle.http.authentication.user import User

PAGE = (Path(__file__).resolve().parents[4] / "docs" / "authentication.md").read_text()


def documented() -> bytes:
    """Return the page's file, with a real certificate."""
    block = re.search(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert block is not None
    pem = CA("the provider's").pem.decode().strip().replace("\n", "\n      ")
    return re.sub(r"-----BEGIN.*END CERTIFICATE-----", pem, block[1], flags=re.DOTALL).encode()


@pytest.fixture(scope="module")
def staff() -> Mapper:
    config = parse(documented())
    assert config.anonymous is not None
    assert (config.anonymous.enabled, config.anonymous.paths) == (True, ("/livez", "/readyz", "/healthz"))
    mappers = compile_configuration(config)
    assert [mapper.config.issuer.url for mapper in mappers] == [
        "https://id.example.com/realms/staff",
        "https://ci.example.com",
    ]
    return mappers[0]


CLAIMS = {
    "hd": "example.com",
    "nbf": 1000,
    "exp": 5000,
    "sub": "7",
    "email": "jane@example.com",
    "email_verified": True,
}


def test_accepted_claims(staff: Mapper) -> None:
    user = staff.user_of({**CLAIMS, "roles": "dev,ops", "tenant": "blue"})
    extra = {"example.com/tenant": ("blue",)}
    assert user == User(name="jane@example.com", uid="7", groups=("oidc:dev", "oidc:ops"), extra=extra)
    assert staff.user_of({**CLAIMS, "email_verified": False}).name == "unverified:7"


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"hd": "example.org"}, "the hosted domain must be example.com"),
        ({"exp": 1_000_000}, "a token may last a day at most"),
        ({"email": "system:admin"}, "user names of the system are reserved"),
        ({"nbf": None}, "no such overload"),
    ],
)
def test_rejected_claims(staff: Mapper, claims: dict[str, object], why: str) -> None:
    with pytest.raises(TokenRejected, match=why):
        staff.user_of({**CLAIMS, **claims})
