"""Settings: precedence, conversion, and one line for every mistake that names its flag."""

from __future__ import annotations

import ipaddress
from pathlib import Path

import pytest

from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.settings import settings
from kubechronicle.ops.settings.types import Controllers, Pairs


def load(flags: dict[str, str], *, config: Path | None = None, **environment: str) -> settings.Settings:
    return settings.load(flags, config_file=config, environment=environment)


def test_defaults() -> None:
    loaded = load({})
    assert (str(loaded.bind_address), loaded.secure_port, loaded.request_timeout) == ("0.0.0.0", 6443, 60.0)
    assert loaded.database_url is None
    assert loaded.data_dir == Path.cwd() / "data"
    assert loaded.controllers.chosen_from(["a", "b"]) == ["a", "b"]


def test_the_ttl_of_events() -> None:
    for flag, seconds in (({}, 3600.0), ({"event-ttl": "0s"}, 0.0), ({"event-ttl": "3h"}, 10800.0)):
        assert load(flag).event_ttl == seconds
    with pytest.raises(OperatorError, match="--event-ttl: must be less than 290 years"):
        load({"event-ttl": "99999999h"})
    with pytest.raises(OperatorError, match="--event-ttl: must be a duration"):
        load({"event-ttl": "-1h"})


def test_pairs_come_from_a_list_or_a_mapping(tmp_path: Path) -> None:
    expected = Pairs((("batch/v1beta1", "true"), ("v1", "")))
    assert load({"runtime-config": "batch/v1beta1=true,v1"}).runtime_config == expected
    config = tmp_path / "config.yaml"
    for text in ("{batch/v1beta1: true, v1: ''}", "[batch/v1beta1=true, v1]", "'batch/v1beta1=true,v1'"):
        config.write_text(f"runtime-config: {text}\n")
        assert load({}, config=config).runtime_config == expected


def test_flag_overrides_file_overrides_environment_overrides_default(tmp_path: Path) -> None:
    url = "postgresql://host/"
    config = tmp_path / "config.yaml"
    config.write_text(f"database-url: {url}file\nsecure-port: 7000\nv: 3\n")
    assert load({}, DATABASE_URL=url + "environment").database_url == url + "environment"
    loaded = load({"secure-port": "8000"}, config=config, DATABASE_URL=url + "environment")
    assert (loaded.database_url, loaded.secure_port, loaded.v) == (url + "file", 8000, 3)
    assert load({"database-url": url + "flag"}, config=config).database_url == url + "flag"


def test_a_list_may_be_a_yaml_list(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("controllers: [namespace]\nservice-cluster-ip-range: fd00::/108\n")
    loaded = load({}, config=config)
    assert loaded.controllers == Controllers(("namespace",))
    assert loaded.service_cluster_ip_range.networks == (ipaddress.ip_network("fd00::/108"),)


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("*", ["a", "b"]),
        ("", []),
        ("b", ["b"]),
        ("*,-a", ["b"]),
        ("-a", []),
        (" a , b ", ["a", "b"]),
        ("-a,*", ["b"]),
        ("a,-a", ["a"]),
        ("-a,a,*", ["b"]),
        ("*,-a-controller", ["b"]),
        ("b-controller", ["b"]),
    ],
)
def test_controllers_are_chosen_as_in_kube_controller_manager(text: str, chosen: list[str]) -> None:
    aliases = {"a-controller": "a", "b-controller": "b"}
    assert load({"controllers": text}).controllers.chosen_from(["a", "b"], aliases) == chosen


def test_an_unknown_controller_is_reported() -> None:
    with pytest.raises(ValueError, match="no control loop 'c', only a, b"):
        load({"controllers": "*,-c"}).controllers.chosen_from(["a", "b"])


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90.0), ("1m30s", 90.0), ("2h", 7200.0), ("500ms", 0.5), ("0", 0.0), ("1.5h", 5400.0)]
)
def test_durations_are_those_of_go(text: str, seconds: float) -> None:
    assert load({"request-timeout": text}).request_timeout == seconds


def test_service_ranges_are_those_of_kubernetes() -> None:
    loaded = load({"service-cluster-ip-range": "10.0.0.0/24, fd00::/108", "service-node-port-range": "31000+9"})
    assert [str(one) for one in loaded.service_cluster_ip_range.networks] == ["10.0.0.0/24", "fd00::/108"]
    assert loaded.service_node_port_range.ports == range(31000, 31010)
    assert load({}).service_node_port_range.ports == range(30000, 32768)
    assert load({"service-node-port-range": "31000"}).service_node_port_range.ports == range(31000, 31001)


MISTAKES = [
    ({"secure-port": "x"}, r"--secure-port: must be a port .*, got 'x'"),
    ({"secure-port": "65536"}, "--secure-port: must be a port"),
    ({"secure-port": "-1"}, "--secure-port: must be a port"),
    ({"v": "loud"}, "--v: must be a whole number"),
    ({"bind-address": "localhost"}, "--bind-address: must be an IP address"),
    ({"advertise-address": "::"}, "--advertise-address: must be one address, not all"),
    ({"external-hostname": "-x"}, "--external-hostname: must be a host name"),
    ({"request-timeout": "5"}, "--request-timeout: must be a duration such as 90s"),
    ({"service-cluster-ip-range": "10.0.0.1/24"}, "--service-cluster-ip-range: .*has host bits set"),
    ({"service-cluster-ip-range": "10.0.0.0/31"}, "at least 8 addresses"),
    ({"service-cluster-ip-range": "fd00::/56"}, "--service-cluster-ip-range: must not be larger than a /64"),
    ({"service-cluster-ip-range": "10.0.0.0/24,fd00::/64,fd01::/64"}, "must be one range or two, got 3"),
    ({"service-cluster-ip-range": "10.0.0.0/24,10.1.0.0/24"}, "one of IPv4 and one of IPv6"),
    ({"service-cluster-ip-range": "10.0.0.0/24,"}, "must be an IP range such as"),
    ({"service-node-port-range": "many"}, "--service-node-port-range: must be a range of ports such as 30000-32767"),
    ({"service-node-port-range": "30001-30000"}, "must be a range of ports between 1 and 65535"),
    ({"service-node-port-range": "0-10"}, "must be a range of ports between 1 and 65535"),
    ({"service-node-port-range": "60000+9999"}, "must be a range of ports between 1 and 65535"),
    ({"tls-cert-file": "/none"}, "--tls-cert-file: there is no file '/none'"),
    ({"tls-cert-file": __file__}, "give both or neither"),
    ({"token-auth-file": "/"}, "--token-auth-file: there is no file '/'"),
    ({"database-url": "mysql://u:secret@h/d"}, "--database-url: must begin with postgresql://"),
    ({"data-dir": __file__}, "--data-dir: .* is not a directory"),
    ({"data-dir": ""}, "--data-dir: needs a value; leave it out for ./data"),
]


@pytest.mark.parametrize(("flags", "message"), MISTAKES)
def test_mistakes_name_their_flag(flags: dict[str, str], message: str) -> None:
    with pytest.raises(OperatorError, match=message) as caught:
        load(flags)
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("securePort: 1", "unknown setting 'securePort'; did you mean 'secure-port'"),
        ("secure-port: [1]", r"--secure-port: must be a single value, got \[1\] \(in .*config.yaml\)"),
        ("v: true", "--v: must be a single value"),
        ("- a", "must be a mapping"),
        ("a: [", "is not YAML at line 1"),
    ],
)
def test_mistakes_in_the_file_name_the_file(tmp_path: Path, text: str, message: str) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(text)
    with pytest.raises(OperatorError, match=message) as caught:
        load({}, config=config)
    assert "\n" not in str(caught.value)


def test_an_empty_file_changes_nothing(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("# nothing\n")
    assert load({}, config=config) == load({})


def test_databases_of_single_resources() -> None:
    one, two = "postgresql://u:p@one,other:5433/x?target_session_attrs=primary", "postgres://two/y"
    for text in (f"/events#{one},coordination.k8s.io/leases#{two}", f"/events#{one}, coordination.k8s.io/leases#{two}"):
        loaded = load({"database-url-overrides": text}).database_url_overrides
        assert loaded is not None
        assert loaded.overrides == (("/events", one), ("coordination.k8s.io/leases", two))
    assert load({}).database_url_overrides is None
    for text, problem in (
        ("events#postgresql://x", "must be GROUP/RESOURCE#URL"),
        ("/events", "must be GROUP/RESOURCE#URL"),
        ("/events#http://etcd:2379", "must begin with postgresql://"),
        ("/events#postgresql://one;postgresql://two", "by commas within its URL"),
        ("/events#postgresql://one,/events#postgresql://two", "two databases are given"),
    ):
        with pytest.raises(OperatorError, match=f"--database-url-overrides: .*{problem}"):
            load({"database-url-overrides": text})
