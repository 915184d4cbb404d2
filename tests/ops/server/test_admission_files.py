"""The files of --admission-control-config-file: what they mean, and the errors of wrong ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubechronicle.api.configuration.admission import EventLimit
from kubechronicle.http.authorization.current_authorizers import AuthorizationPlan
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.server.admission import chosen_plugins, plugin_configurations
from kubechronicle.ops.settings.settings import load

HEAD = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n"
LIMITS = "apiVersion: eventratelimit.admission.k8s.io/v1alpha1\nkind: Configuration\n"
RATES = frozenset({"EventRateLimit"})


def write(directory: Path, text: str, **files: str) -> Path:
    for name, content in files.items():
        (directory / f"{name}.yaml").write_text(content)
    (directory / "admission.yaml").write_text(text)
    return directory / "admission.yaml"


def test_plugins_have_files_or_configurations(tmp_path: Path) -> None:
    tolerations = (
        "- name: PodTolerationRestriction\n  configuration:\n"
        "    apiVersion: podtolerationrestriction.admission.k8s.io/v1alpha1\n    kind: Configuration\n"
        "    default: [{key: a, operator: Exists}]\n"
    )
    text = HEAD + "- {name: EventRateLimit, path: rates.yaml}\n- {name: PodNodeSelector, path: nodes.yaml}\n"
    file = write(
        tmp_path,
        text + tolerations,
        rates=LIMITS + "limits:\n- {type: User, qps: 5, burst: 10, cacheSize: 7}\n",
        nodes="podNodeSelectorPluginConfig:\n  clusterDefaultNodeSelector: a=b\n",
    )
    settings = load({"admission-control-config-file": str(file)})
    found = plugin_configurations(settings, RATES | {"PodNodeSelector", "PodTolerationRestriction"})
    assert found.event_limits == (EventLimit(type="User", qps=5, burst=10, cache_size=7),)
    assert found.node_selectors == {"clusterDefaultNodeSelector": "a=b"}
    assert found.default_tolerations == ({"key": "a", "operator": "Exists"},)


@pytest.mark.parametrize(
    ("text", "rates", "problem"),
    [
        ("kind: AdmissionConfiguration\n", "", "Object 'apiVersion' is missing in the file"),
        (HEAD + "- {name: EventRateLimit, file: a}\n", "", 'unknown field "plugins[0].file"'),
        (HEAD + "- {name: EventRateLimit, path: missing.yaml}\n", "", "cannot read"),
        (
            HEAD + "- {name: EventRateLimit, path: rates.yaml}\n",
            LIMITS,
            "limits: Invalid value: null: must not be empty",
        ),
        (
            HEAD + "- {name: EventRateLimit, path: rates.yaml}\n",
            LIMITS + "limits: [{type: Node, burst: 1}]\n",
            '[limits[0].type: Unsupported value: "Node": supported values: "Server", "Namespace", "User", '
            '"SourceAndObject", limits[0].qps: Invalid value: 0: must be positive]',
        ),
        (
            HEAD + "- {name: EventRateLimit, path: rates.yaml}\n",
            LIMITS.replace("alpha1", "beta9"),
            'no kind "Configuration" is registered for version "eventratelimit.admission.k8s.io/v1beta9"',
        ),
        (HEAD, "", "must not be empty"),
    ],
)
def test_a_wrong_file_is_an_error_of_one_line(tmp_path: Path, text: str, rates: str, problem: str) -> None:
    settings = load({"admission-control-config-file": str(write(tmp_path, text, rates=rates))})
    with pytest.raises(OperatorError) as caught:
        plugin_configurations(settings, RATES)
    message = str(caught.value)
    assert message.startswith("--admission-control-config-file: ")
    assert problem in message
    assert "\n" not in message


def test_a_configuration_that_would_be_ignored_is_an_error(tmp_path: Path) -> None:
    file = write(tmp_path, HEAD + "- {name: PodSecurity, configuration: {}}\n")
    with pytest.raises(OperatorError, match="no configuration for the plugin PodSecurity"):
        plugin_configurations(load({"admission-control-config-file": str(file)}), frozenset({"PodSecurity"}))


def test_unknown_plugins_are_errors() -> None:
    with pytest.raises(OperatorError, match="no admission plugin 'Nothing'"):
        chosen_plugins(load({"enable-admission-plugins": "Nothing"}), AuthorizationPlan())
