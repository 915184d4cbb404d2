"""Realistic objects of well-known projects, written after the projects' own documentation.

OBJECTS has one object for each definition named here. prepare.sh fetches the definitions in fixed versions.
"""

from __future__ import annotations

from typing import Any


def _object(api_version: str, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": "demo", "labels": {"app": "demo"}}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


_POD: dict[str, Any] = {
    "metadata": {"labels": {"app": "demo"}},
    "spec": {
        "containers": [
            {
                "name": "web",
                "image": "example.invalid/web:1",
                "ports": [{"containerPort": 8080, "name": "http"}],
                "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
                "env": [{"name": "A", "value": "b"}],
            }
        ]
    },
}
OBJECTS: dict[str, dict[str, Any]] = {
    "certificates.cert-manager.io": _object(
        "cert-manager.io/v1",
        "Certificate",
        {
            "secretName": "demo-tls",
            "duration": "2160h",
            "renewBefore": "360h",
            "dnsNames": ["demo.example.com", "www.example.com"],
            "privateKey": {"algorithm": "RSA", "size": 2048, "rotationPolicy": "Always"},
            "usages": ["server auth", "client auth"],
            "issuerRef": {"name": "ca", "kind": "Issuer"},
            "subject": {"organizations": ["example"]},
        },
    ),
    "issuers.cert-manager.io": _object(
        "cert-manager.io/v1",
        "Issuer",
        {
            "acme": {
                "server": "https://acme.example.com/directory",
                "email": "a@example.com",
                "privateKeySecretRef": {"name": "key"},
                "solvers": [
                    {
                        "http01": {
                            "ingress": {
                                "ingressClassName": "nginx",
                                "podTemplate": {
                                    "spec": {
                                        "nodeSelector": {"a": "b"},
                                        "tolerations": [{"key": "x", "operator": "Exists"}],
                                    }
                                },
                            }
                        }
                    },
                    {
                        "selector": {"dnsZones": ["example.com"]},
                        "dns01": {"route53": {"region": "eu-west-1", "hostedZoneID": "Z1"}},
                    },
                ],
            }
        },
    ),
    "httproutes.gateway.networking.k8s.io": _object(
        "gateway.networking.k8s.io/v1",
        "HTTPRoute",
        {
            "parentRefs": [{"name": "gw", "sectionName": "https"}],
            "hostnames": ["demo.example.com"],
            "rules": [
                {
                    "matches": [
                        {
                            "path": {"type": "PathPrefix", "value": "/api"},
                            "headers": [{"name": "x-env", "value": "prod"}],
                            "method": "GET",
                        }
                    ],
                    "filters": [
                        {
                            "type": "RequestHeaderModifier",
                            "requestHeaderModifier": {"set": [{"name": "x-a", "value": "b"}], "remove": ["x-c"]},
                        }
                    ],
                    "backendRefs": [
                        {"name": "web", "port": 80, "weight": 90},
                        {"name": "web2", "port": 80, "weight": 10},
                    ],
                    "timeouts": {"request": "10s", "backendRequest": "5s"},
                }
            ],
        },
    ),
    "gateways.gateway.networking.k8s.io": _object(
        "gateway.networking.k8s.io/v1",
        "Gateway",
        {
            "gatewayClassName": "demo",
            "listeners": [
                {
                    "name": "https",
                    "port": 443,
                    "protocol": "HTTPS",
                    "hostname": "*.example.com",
                    "tls": {"mode": "Terminate", "certificateRefs": [{"name": "demo-tls"}]},
                    "allowedRoutes": {"namespaces": {"from": "Same"}},
                },
                {"name": "http", "port": 80, "protocol": "HTTP"},
            ],
            "addresses": [{"type": "IPAddress", "value": "192.0.2.1"}],
        },
    ),
    "grpcroutes.gateway.networking.k8s.io": _object(
        "gateway.networking.k8s.io/v1",
        "GRPCRoute",
        {
            "parentRefs": [{"name": "gw"}],
            "rules": [
                {
                    "matches": [{"method": {"service": "a.B", "method": "C", "type": "Exact"}}],
                    "backendRefs": [{"name": "g", "port": 9000}],
                }
            ],
        },
    ),
    "servicemonitors.monitoring.coreos.com": _object(
        "monitoring.coreos.com/v1",
        "ServiceMonitor",
        {
            "selector": {"matchLabels": {"app": "demo"}},
            "endpoints": [
                {
                    "port": "http",
                    "interval": "30s",
                    "path": "/metrics",
                    "relabelings": [
                        {"sourceLabels": ["__meta_kubernetes_pod_name"], "targetLabel": "pod", "action": "replace"}
                    ],
                    "basicAuth": {"username": {"name": "s", "key": "u"}},
                }
            ],
            "namespaceSelector": {"any": True},
        },
    ),
    "prometheuses.monitoring.coreos.com": _object(
        "monitoring.coreos.com/v1",
        "Prometheus",
        {
            "replicas": 2,
            "version": "v3.0.0",
            "retention": "15d",
            "serviceMonitorSelector": {"matchLabels": {"team": "a"}},
            "resources": {"requests": {"memory": "400Mi"}},
            "storage": {
                "volumeClaimTemplate": {
                    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Gi"}}}
                }
            },
            "alerting": {"alertmanagers": [{"namespace": "m", "name": "am", "port": "web"}]},
            "containers": _POD["spec"]["containers"],
            "tolerations": [{"operator": "Exists"}],
        },
    ),
    "prometheusrules.monitoring.coreos.com": _object(
        "monitoring.coreos.com/v1",
        "PrometheusRule",
        {
            "groups": [
                {
                    "name": "g",
                    "interval": "1m",
                    "rules": [
                        {
                            "alert": "Down",
                            "expr": "up == 0",
                            "for": "5m",
                            "labels": {"severity": "page"},
                            "annotations": {"summary": "down"},
                        },
                        {"record": "a:b", "expr": 1},
                    ],
                }
            ]
        },
    ),
    "alertmanagerconfigs.monitoring.coreos.com": _object(
        "monitoring.coreos.com/v1alpha1",
        "AlertmanagerConfig",
        {
            "route": {
                "receiver": "hook",
                "groupBy": ["job"],
                "groupWait": "30s",
                "routes": [{"receiver": "hook", "matchers": [{"name": "a", "value": "b", "matchType": "="}]}],
            },
            "receivers": [
                {"name": "hook", "webhookConfigs": [{"url": "http://example.com/hook", "sendResolved": True}]}
            ],
        },
    ),
    "rollouts.argoproj.io": _object(
        "argoproj.io/v1alpha1",
        "Rollout",
        {
            "replicas": 3,
            "selector": {"matchLabels": {"app": "demo"}},
            "template": _POD,
            "strategy": {
                "canary": {
                    "maxSurge": "25%",
                    "maxUnavailable": 0,
                    "steps": [
                        {"setWeight": 20},
                        {"pause": {"duration": "1h"}},
                        {"analysis": {"templates": [{"templateName": "ok"}]}},
                    ],
                }
            },
        },
    ),
    "analysistemplates.argoproj.io": _object(
        "argoproj.io/v1alpha1",
        "AnalysisTemplate",
        {
            "args": [{"name": "service"}],
            "metrics": [
                {
                    "name": "ok",
                    "interval": "5m",
                    "count": 3,
                    "successCondition": "result[0] >= 0.95",
                    "failureLimit": 3,
                    "provider": {"prometheus": {"address": "http://p", "query": "sum(x)"}},
                }
            ],
        },
    ),
    "applications.argoproj.io": _object(
        "argoproj.io/v1alpha1",
        "Application",
        {
            "project": "default",
            "source": {
                "repoURL": "https://example.com/r.git",
                "path": "deploy",
                "targetRevision": "HEAD",
                "helm": {"parameters": [{"name": "a", "value": "b"}]},
            },
            "destination": {"server": "https://kubernetes.default.svc", "namespace": "demo"},
            "syncPolicy": {
                "automated": {"prune": True, "selfHeal": True},
                "syncOptions": ["CreateNamespace=true"],
                "retry": {"limit": 5, "backoff": {"duration": "5s", "factor": 2}},
            },
            "ignoreDifferences": [{"group": "apps", "kind": "Deployment", "jsonPointers": ["/spec/replicas"]}],
        },
    ),
    "applicationsets.argoproj.io": _object(
        "argoproj.io/v1alpha1",
        "ApplicationSet",
        {
            "generators": [
                {"list": {"elements": [{"cluster": "a", "url": "https://a"}]}},
                {
                    "matrix": {
                        "generators": [
                            {
                                "git": {
                                    "repoURL": "https://example.com/r.git",
                                    "revision": "HEAD",
                                    "directories": [{"path": "apps/*"}],
                                }
                            },
                            {"clusters": {"selector": {"matchLabels": {"a": "b"}}}},
                        ]
                    }
                },
            ],
            "template": {
                "metadata": {"name": "{{cluster}}"},
                "spec": {
                    "project": "default",
                    "source": {"repoURL": "https://example.com/r.git", "path": "x"},
                    "destination": {"server": "{{url}}", "namespace": "d"},
                },
            },
        },
    ),
}
