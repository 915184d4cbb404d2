"""The files of --admission-control-config-file: what they mean, and the errors of wrong ones."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from hostile_clients import connected

from kubechronicle.api.configuration.admission import EventLimit
from kubechronicle.api.quota.check import LimitedResource
from kubechronicle.http.authorization.current_authorizers import AuthorizationPlan
from kubechronicle.ops.development.server_process import ServerProcess, running
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.server.admission import chosen_plugins, image_webhook, plugin_configurations, webhook_users
from kubechronicle.ops.settings.settings import load

HEAD = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n"
FORMER_HEAD = HEAD.replace("apiserver.config.k8s.io/v1", "apiserver.k8s.io/v1alpha1")
LIMITS = "apiVersion: eventratelimit.admission.k8s.io/v1alpha1\nkind: Configuration\n"
RATES = frozenset({"EventRateLimit"})
MANY = 50
"""Events in a burst, far more than a limit of one a second lets through."""


def write(directory: Path, text: str, **files: str) -> Path:
    for name, content in files.items():
        (directory / f"{name}.yaml").write_text(content)
    (directory / "admission.yaml").write_text(text)
    return directory / "admission.yaml"


@pytest.mark.parametrize("head", [HEAD, FORMER_HEAD])
def test_plugins_have_files_or_configurations(tmp_path: Path, head: str) -> None:
    tolerations = (
        "- name: PodTolerationRestriction\n  configuration:\n"
        "    apiVersion: podtolerationrestriction.admission.k8s.io/v1alpha1\n    kind: Configuration\n"
        "    default: [{key: a, operator: Exists}]\n"
    )
    text = head + "- {name: EventRateLimit, path: rates.yaml}\n- {name: PodNodeSelector, path: nodes.yaml}\n"
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
        (
            HEAD.replace("v1", "v1alpha1"),
            "",
            'no kind "AdmissionConfiguration" is registered for version "apiserver.config.k8s.io/v1alpha1"',
        ),
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
    file = write(tmp_path, HEAD + "- {name: AlwaysDeny, configuration: {}}\n")
    with pytest.raises(OperatorError, match="no configuration for the plugin AlwaysDeny"):
        plugin_configurations(load({"admission-control-config-file": str(file)}), frozenset({"AlwaysDeny"}))


WEBHOOKS = (
    HEAD + "- name: ValidatingAdmissionWebhook\n  configuration:\n    apiVersion: apiserver.config.k8s.io/v1\n"
    "    kind: WebhookAdmissionConfiguration\n"
)
ASKS = frozenset({"ValidatingAdmissionWebhook", "MutatingAdmissionWebhook"})


def test_a_kubeconfig_holds_the_credentials_for_webhooks(tmp_path: Path) -> None:
    users = "users: [{name: hook.ns.svc, user: {token: secret}}]\n"
    file = write(tmp_path, WEBHOOKS + f"    kubeConfigFile: {tmp_path}/users.yaml\n", users=users)
    found = webhook_users(plugin_configurations(load({"admission-control-config-file": str(file)}), ASKS))
    assert found.keys() == {"ValidatingAdmissionWebhook"}
    assert found["ValidatingAdmissionWebhook"].of("hook.ns.svc", 443).token == "secret"
    assert found["ValidatingAdmissionWebhook"].of("other.ns.svc", 443).token == ""


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("kubeConfigFile: users.yaml", 'kubeConfigFile: Invalid value: "users.yaml": must be an absolute file path'),
        ("kubeConfigFile: /nowhere/users.yaml", "/nowhere/users.yaml: cannot be read"),
        ("staticManifestsDir: /etc", "staticManifestsDir: Forbidden: staticManifestsDir requires the ManifestBased"),
        ("kubeconfig: a", 'strict decoding error: unknown field "kubeconfig"'),
    ],
)
def test_wrong_credentials_for_webhooks(tmp_path: Path, line: str, problem: str) -> None:
    flags = {"feature-gates": "ManifestBasedAdmissionControlConfig=false"}
    settings = load({"admission-control-config-file": str(write(tmp_path, f"{WEBHOOKS}    {line}\n")), **flags})
    with pytest.raises(OperatorError) as caught:
        webhook_users(plugin_configurations(settings, ASKS))
    assert problem in str(caught.value)


def test_the_configuration_of_pod_security(tmp_path: Path) -> None:
    head = HEAD + "- name: PodSecurity\n  configuration:\n    kind: PodSecurityConfiguration\n"
    head += "    apiVersion: pod-security.admission.config.k8s.io/v1beta1\n"
    right = (
        "    defaults: {enforce: baseline, enforce-version: ''}\n    exemptions: {usernames: [a], namespaces: [b]}\n"
    )
    file = write(tmp_path, head + right)
    enabled = frozenset({"PodSecurity"})
    found = plugin_configurations(load({"admission-control-config-file": str(file)}), enabled).pod_security
    assert (found.defaults.enforce, found.defaults.enforce_version, found.defaults.warn_version) == (
        "baseline",
        "latest",
        "latest",
    )
    assert (found.exemptions.usernames, found.exemptions.namespaces) == (("a",), ("b",))
    file = write(tmp_path, head + "    defaults: {warn: strict}\n    exemptions: {usernames: [a, a]}\n")
    with pytest.raises(OperatorError, match=r"must be one of privileged, baseline, restricted.*Duplicate value"):
        plugin_configurations(load({"admission-control-config-file": str(file)}), enabled)


def test_unknown_plugins_are_errors() -> None:
    with pytest.raises(OperatorError, match="no admission plugin 'Nothing'"):
        chosen_plugins(load({"enable-admission-plugins": "Nothing"}), AuthorizationPlan())


def test_a_server_limits_events_as_its_file_says() -> None:
    with tempfile.TemporaryDirectory(prefix="kubechronicle-test-") as directory:
        home = Path(directory)
        limits = "limits:\n- {type: User, qps: 1, burst: 1000}\n- {type: Namespace, qps: 1, burst: 1}\n"
        file = write(home, HEAD + "- {name: EventRateLimit, path: rates.yaml}\n", rates=LIMITS + limits)
        (home / "tokens.csv").write_text('t,admin,1,"system:masters"\n')
        flags = {"token-auth-file": home / "tokens.csv", "admission-control-config-file": file}
        arguments = ["--enable-admission-plugins", "EventRateLimit,AlwaysPullImages", "--controllers", ""]
        arguments += [text for name, value in flags.items() for text in (f"--{name}", str(value))]
        with running(ServerProcess(home / "data", arguments=arguments)) as server:
            codes: list[int] = []
            connection = connected(urlsplit(server.url).netloc)
            while codes[-1:] != [429] and len(codes) < MANY:  # a token a second comes back
                body = json.dumps(
                    {"metadata": {"name": f"e{len(codes)}"}, "involvedObject": {"namespace": "kube-public"}}
                )
                headers = {"authorization": "Bearer t", "content-type": "application/json"}
                connection.request("POST", "/api/v1/namespaces/kube-public/events", body, headers)
                response = connection.getresponse()
                codes.append(response.status)
                answer = json.loads(response.read())
            connection.close()
        assert codes[0] == 201
        assert codes[-1] == 429, answer
        assert answer["message"] == "Too many requests: limit reached on type Namespace for key kube-public"


def test_a_server_does_not_start_with_a_wrong_file(tmp_path: Path) -> None:
    file = write(tmp_path, HEAD + "- {name: EventRateLimit}\n")
    arguments = ["--enable-admission-plugins", "EventRateLimit", "--admission-control-config-file", str(file)]
    command = [sys.executable, "-m", "kubechronicle.ops.cli", "serve", "--data-dir", str(tmp_path / "data")]
    done = subprocess.run([*command, *arguments], capture_output=True, check=False, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert (
        "couldn't init admission plugin EventRateLimit: limits: Invalid value: null: must not be empty" in done.stderr
    )


IMAGES = HEAD + "- name: ImagePolicyWebhook\n  configuration:\n    imagePolicy:\n"


def test_the_webhook_for_images(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        IMAGES + f"      {{kubeConfigFile: {tmp_path}/images.yaml, allowTTL: 50, denyTTL: -1, defaultAllow: true}}\n",
        images="current-context: a\ncontexts: [{name: a, context: {cluster: a}}]\n"
        "clusters: [{name: a, cluster: {server: https://images.example}}]\n",
    )
    enabled = frozenset({"ImagePolicyWebhook"})
    found = image_webhook(plugin_configurations(load({"admission-control-config-file": str(file)}), enabled))
    assert found is not None
    assert (found.allow_ttl, found.deny_ttl, found.retry_backoff, found.default_allow) == (50, 0, 0.5, True)
    assert found.peer.url == "https://images.example"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (HEAD, "couldn't init admission plugin ImagePolicyWebhook: no config specified"),
        (IMAGES + "      {allowTTL: 5}\n", "imagePolicy.kubeConfigFile: must be set"),
        (
            IMAGES + "      {kubeConfigFile: /nowhere, allowTTL: 3600}\n",
            "between 1s and 30m0s, got 3600s",
        ),
        (IMAGES + "      {kubeConfigFile: /nowhere}\n", "kubeConfigFile: /nowhere: cannot be read"),
    ],
)
def test_wrong_configurations_of_image_policy(tmp_path: Path, text: str, problem: str) -> None:
    settings = load({"admission-control-config-file": str(write(tmp_path, text))})
    with pytest.raises(OperatorError) as caught:
        image_webhook(plugin_configurations(settings, frozenset({"ImagePolicyWebhook"})))
    assert problem in str(caught.value)


LIMITED = HEAD + "- name: ResourceQuota\n  configuration:\n    limitedResources:\n"
OLD_QUOTA = "    apiVersion: resourcequota.admission.k8s.io/v1beta1\n    kind: Configuration\n"


def test_resources_that_need_a_quota(tmp_path: Path) -> None:
    text = LIMITED + "    - {resource: deployments, apiGroup: apps, matchContains: [count]}\n" + OLD_QUOTA
    settings = load({"admission-control-config-file": str(write(tmp_path, text))})
    found = plugin_configurations(settings, frozenset({"ResourceQuota"})).limited_resources
    assert found == (LimitedResource(resource="deployments.apps", contains=("count",)),)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (LIMITED + "    - {apiGroup: apps}\n" + OLD_QUOTA, "limitedResources[0].resource: Required value"),
        (LIMITED + "    - {resource: pods, match: [a]}\n" + OLD_QUOTA, 'unknown field "limitedResources[0].match"'),
        (LIMITED + "    - {resource: pods}\n", "Object 'Kind' is missing"),
    ],
)
def test_wrong_configurations_of_quotas(tmp_path: Path, text: str, problem: str) -> None:
    settings = load({"admission-control-config-file": str(write(tmp_path, text))})
    with pytest.raises(OperatorError) as caught:
        plugin_configurations(settings, frozenset({"ResourceQuota"}))
    assert problem in str(caught.value)
