"""Our own protobuf vectors: objects, the bytes that Go's client sends for them, and the JSON Go prints of these bytes.

Made once with the serializers of k8s.io/client-go v0.36. They cover likely mistakes: unset fields that are written
nevertheless, zero values, unions, times before 1970, negative numbers, text beyond ASCII.
"""

from __future__ import annotations

import base64
import json

import pytest

from kubechronicle.api.codecs import protobuf

# name -> (object as written, its JSON after the round trip where that differs, its bytes in base64)
VECTORS: dict[str, tuple[str, str, str]] = {
    "config_map": (
        (
            '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"grüße","namespace":"default","labels":{"b"'
            ':"2","a":"1","é":"x"}},"data":{"z":"日本","empty":"","long":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx'
            "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
            'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"},"binaryData":{"k":"AAEC/w=="},"immutab'
            'le":false}'
        ),
        "",
        (
            "azhzAAoPCgJ2MRIJQ29uZmlnTWFwErICCjcKB2dyw7zDn2USABoHZGVmYXVsdCIAKgAyADgAQgBaBgoBYRIBMVoGCgFiEgEyWgcK"
            "AsOpEgF4EgkKBWVtcHR5EgAS0QEKBGxvbmcSyAF4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4"
            "eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4"
            "eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4"
            "eHh4eBILCgF6Egbml6XmnKwaCQoBaxIEAAEC/yAAGgAiAA=="
        ),
    ),
    "pod": (
        (
            '{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","creationTimestamp":"2026-01-02T03:04:05Z","m'
            'anagedFields":[{"manager":"m","operation":"Update","apiVersion":"v1","time":"2026-01-02T03:04:05Z","'
            'fieldsType":"FieldsV1","fieldsV1":{"f:spec":{".":{}}}}]},"spec":{"volumes":[{"name":"v","emptyDir":{'
            '"sizeLimit":"1Gi"}},{"name":"w","secret":{"secretName":"s","defaultMode":420}}],"containers":[{"name'
            '":"c","resources":{"limits":{"memory":"64Mi","cpu":"100m"}},"livenessProbe":{"httpGet":{"path":"/","'
            'port":"http"},"initialDelaySeconds":-1},"readinessProbe":{"tcpSocket":{"port":8080}},"env":[{"name":'
            '"E"}]}],"terminationGracePeriodSeconds":0,"hostNetwork":true,"securityContext":{}},"status":{"condit'
            'ions":[{"type":"Ready","status":"True","lastProbeTime":null,"lastTransitionTime":"1969-12-31T23:59:5'
            '9Z"}]}}'
        ),
        "",
        (
            "azhzAAoJCgJ2MRIDUG9kEuQCClgKAWESABoAIgAqADIAOABCCAil69zKBhAAigE8CgFtEgZVcGRhdGUaAnYxIggIpevcygYQADII"
            "RmllbGRzVjE6FQoTeyJmOnNwZWMiOnsiLiI6e319fUIAEswBChAKAXYSCxIJCgASBQoDMUdpCg0KAXcSCDIGCgFzGKQDEogBCgFj"
            "EgAqADoFCgFFEgBCIQoNCgNjcHUSBgoEMTAwbQoQCgZtZW1vcnkSBgoENjRNaVIqChUSEwoBLxIKCAEQABoEaHR0cBoAIgAQ////"
            "////////ARgAIAAoADAAWhkKDRoLCgcIABCQPxoAEgAQABgAIAAoADAAagByAIABAIgBAJABAKIBABoAIAAyAEIASgBSAFgBYABo"
            "AHIAggEAigEAmgEAwgEAGjkKABIkCgVSZWFkeRIEVHJ1ZRoAIg0I////////////ARAAKgAyADgAGgAiACoAMgBKAFoAcgCIAQAa"
            "ACIA"
        ),
    ),
    "event": (
        (
            '{"apiVersion":"events.k8s.io/v1","kind":"Event","metadata":{"name":"e","namespace":"n"},"eventTime":'
            '"2026-01-02T03:04:05.000007Z","series":{"count":3,"lastObservedTime":"2026-01-02T03:04:05.123456Z"},'
            '"regarding":{}}'
        ),
        (
            '{"kind":"Event","apiVersion":"events.k8s.io/v1","metadata":{"name":"e","namespace":"n"},"eventTime":'
            '"2026-01-02T03:04:05.000007Z","series":{"count":3,"lastObservedTime":"2026-01-02T03:04:05.123456Z"},'
            '"regarding":{},"deprecatedSource":{},"deprecatedFirstTimestamp":null,"deprecatedLastTimestamp":null}'
        ),
        (
            "azhzAAoZChBldmVudHMuazhzLmlvL3YxEgVFdmVudBJYChIKAWUSABoBbiIAKgAyADgAQgASCQil69zKBhDYNhoPCAMSCwil69zK"
            "BhCAlO86IgAqADIAOgBCDgoAEgAaACIAKgAyADoAUgBaAGIECgASAGoAcgB4ABoAIgA="
        ),
    ),
    "crd": (
        (
            '{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"w.exam'
            'ple.com"},"spec":{"group":"example.com","names":{"plural":"w","kind":"W"},"scope":"Namespaced","vers'
            'ions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","minim'
            'um":0.5,"maximum":3,"default":{"a":[1,null]},"enum":["x",{"y":1}],"items":{"type":"string"},"additio'
            'nalProperties":false,"dependencies":{"p":["q","r"],"s":{"type":"integer"}},"properties":{"p":{"items'
            '":[{"type":"string"},{"type":"number"}],"additionalProperties":{"type":"string"}}},"x-kubernetes-pre'
            'serve-unknown-fields":false}}}]}}'
        ),
        (
            '{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1","metadata":{"name":"w.exam'
            'ple.com"},"spec":{"group":"example.com","names":{"plural":"w","kind":"W"},"scope":"Namespaced","vers'
            'ions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","defau'
            'lt":{"a":[1,null]},"maximum":3,"minimum":0.5,"enum":["x",{"y":1}],"items":{"type":"string"},"propert'
            'ies":{"p":{"items":[{"type":"string"},{"type":"number"}],"additionalProperties":{"type":"string"}}},'
            '"additionalProperties":false,"dependencies":{"p":["q","r"],"s":{"type":"integer"}},"x-kubernetes-pre'
            'serve-unknown-fields":false}}}]},"status":{"conditions":null,"acceptedNames":{"plural":"","kind":""}'
            ',"storedVersions":null}}'
        ),
        (
            "azhzAAozChdhcGlleHRlbnNpb25zLms4cy5pby92MRIYQ3VzdG9tUmVzb3VyY2VEZWZpbml0aW9uEtYDCh0KDXcuZXhhbXBsZS5j"
            "b20SABoAIgAqADIAOABCABKmAwoLZXhhbXBsZS5jb20aCgoBdxIAIgFXKgAiCk5hbWVzcGFjZWQ6/AIKAnYxEAEYASLvAgrsAgoA"
            "EgAiACoGb2JqZWN0MgA6AEIQCg57ImEiOlsxLG51bGxdfUkAAAAAAAAIQFAAWQAAAAAAAOA/YAB6AJABAKIBBQoDIngiogEJCgd7"
            "InkiOjF9wgEmCiQKABIAIgAqBnN0cmluZzIAOgBQAGAAegCQAQCoAgC4AgDAAgDqAZ4BCgFwEpgBCgASACIAKgAyADoAUABgAHoA"
            "kAEAwgFMEiQKABIAIgAqBnN0cmluZzIAOgBQAGAAegCQAQCoAgC4AgDAAgASJAoAEgAiACoGbnVtYmVyMgA6AFAAYAB6AJABAKgC"
            "ALgCAMACAPIBKAgBEiQKABIAIgAqBnN0cmluZzIAOgBQAGAAegCQAQCoAgC4AgDAAgCoAgC4AgDAAgDyAQIIAIICCwoBcBIGEgFx"
            "EgFyggIsCgFzEicKJQoAEgAiACoHaW50ZWdlcjIAOgBQAGAAegCQAQCoAgC4AgDAAgCoAgCwAgC4AgDAAgA4AFAAGgwSCAoAEgAi"
            "ACoAIAAaACIA"
        ),
    ),
    "access_review": (
        (
            '{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","metadata":{},"spec":{"user":"u'
            '","groups":["g","h"],"extra":{"k":["a","b"],"e":[]}}}'
        ),
        (
            '{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","metadata":{},"spec":{"user":"u'
            '","groups":["g","h"],"extra":{"e":[],"k":["a","b"]}},"status":{"allowed":false}}'
        ),
        (
            "azhzAAouChdhdXRob3JpemF0aW9uLms4cy5pby92MRITU3ViamVjdEFjY2Vzc1JldmlldxI9ChAKABIAGgAiACoAMgA4AEIAEh8a"
            "AXUiAWciAWgqBQoBZRIAKgsKAWsSBgoBYQoBYjIAGggIABIAGgAgABoAIgA="
        ),
    ),
    "secret_list": (
        (
            '{"apiVersion":"v1","kind":"SecretList","metadata":{"resourceVersion":"7","remainingItemCount":0},"it'
            'ems":[{"metadata":{"name":"s"},"type":"Opaque","data":{"a":"","b":"aGk="}},{"metadata":{"name":"t"}}'
            "]}"
        ),
        "",
        (
            "azhzAAoQCgJ2MRIKU2VjcmV0TGlzdBJPCgkKABIBNxoAIAASKwoRCgFzEgAaACIAKgAyADgAQgASBQoBYRIAEgcKAWISAmhpGgZP"
            "cGFxdWUSFQoRCgF0EgAaACIAKgAyADgAQgAaABoAIgA="
        ),
    ),
    "role": (
        '{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{"name":"r"}}',
        '{"kind":"Role","apiVersion":"rbac.authorization.k8s.io/v1","metadata":{"name":"r"},"rules":null}',
        "azhzAAokChxyYmFjLmF1dGhvcml6YXRpb24uazhzLmlvL3YxEgRSb2xlEhMKEQoBchIAGgAiACoAMgA4AEIAGgAiAA==",
    ),
    "status": (
        (
            '{"apiVersion":"v1","kind":"Status","status":"Failure","message":"m","reason":"NotFound","code":404,"'
            'details":{"name":"x","causes":[{"field":"f"}]}}'
        ),
        (
            '{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"m","reason":"NotFound'
            '","details":{"name":"x","causes":[{"field":"f"}]},"code":404}'
        ),
        (
            "azhzAAoMCgJ2MRIGU3RhdHVzEjcKBgoAEgAaABIHRmFpbHVyZRoBbSIITm90Rm91bmQqFAoBeBIAGgAiBwoAEgAaAWYoADIAMJQD"
            "GgAiAA=="
        ),
    ),
    "delete_options": (
        (
            '{"apiVersion":"v1","kind":"DeleteOptions","gracePeriodSeconds":0,"preconditions":{"uid":"u"},"propag'
            'ationPolicy":"Foreground","dryRun":["All"]}'
        ),
        "",
        "azhzAAoTCgJ2MRINRGVsZXRlT3B0aW9ucxIYCAASAwoBdSIKRm9yZWdyb3VuZCoDQWxsGgAiAA==",
    ),
    "node": (
        (
            '{"apiVersion":"v1","kind":"Node","metadata":{"name":"n"},"spec":{"taints":[{"key":"k","effect":"NoSc'
            'hedule"}]},"status":{"capacity":{"pods":"110","cpu":"4"},"nodeInfo":{}}}'
        ),
        (
            '{"kind":"Node","apiVersion":"v1","metadata":{"name":"n"},"spec":{"taints":[{"key":"k","effect":"NoSc'
            'hedule"}]},"status":{"capacity":{"cpu":"4","pods":"110"},"daemonEndpoints":{"kubeletEndpoint":{"Port'
            '":0}},"nodeInfo":{"machineID":"","systemUUID":"","bootID":"","kernelVersion":"","osImage":"","contai'
            'nerRuntimeVersion":"","kubeletVersion":"","kubeProxyVersion":"","operatingSystem":"","architecture":'
            '""}}}'
        ),
        (
            "azhzAAoKCgJ2MRIETm9kZRJrChEKAW4SABoAIgAqADIAOABCABIbCgASABoAIAAqEQoBaxIAGgpOb1NjaGVkdWxlGjkKCgoDY3B1"
            "EgMKATQKDQoEcG9kcxIFCgMxMTAaADIECgIIADoUCgASABoAIgAqADIAOgBCAEoAUgAaACIA"
        ),
    ),
    "service": (
        (
            '{"apiVersion":"v1","kind":"Service","metadata":{"name":"s"},"spec":{"ports":[{"port":80,"targetPort"'
            ':"web"},{"port":2147483647,"targetPort":300}],"selector":{}}}'
        ),
        (
            '{"kind":"Service","apiVersion":"v1","metadata":{"name":"s"},"spec":{"ports":[{"port":80,"targetPort"'
            ':"web"},{"port":2147483647,"targetPort":300}]},"status":{"loadBalancer":{}}}'
        ),
        (
            "azhzAAoNCgJ2MRIHU2VydmljZRJVChEKAXMSABoAIgAqADIAOABCABI8ChMKABIAGFAiCQgBEAAaA3dlYigAChUKABIAGP////8H"
            "IgcIABCsAhoAKAAaACIAOgBCAFIAWgBgAGgAGgIKABoAIgA="
        ),
    ),
}


@pytest.mark.parametrize("name", VECTORS)
def test_an_object_becomes_the_bytes_go_sends(name: str) -> None:
    written, _, encoded = VECTORS[name]
    assert protobuf.encode(json.loads(written)) == base64.b64decode(encoded)


@pytest.mark.parametrize("name", VECTORS)
def test_the_bytes_become_the_json_go_prints(name: str) -> None:
    written, printed, encoded = VECTORS[name]
    assert protobuf.decode(base64.b64decode(encoded)) == json.loads(printed or written)
