#!/bin/bash
# https://github.com/eksctl-io/eksctl/issues/1098: an upgrade writes the default Corefile over the one with stub domains.
. "$(dirname "$0")/common.sh"
OBJECTS=(configmaps coredns -n "$NS")
map() { printf 'apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: coredns\n  namespace: %s\ndata:\n  Corefile: |\n    .:53 {\n        cache 30\n    }\n%s' "$NS" "${1:-}"; }
setup() {
  map | kubectl apply -f -
  map '    shop.example:53 {
        proxy . 10.40.21.10
    }
' | as lynetk apply -f -
}
state() { kubectl get configmap coredns -n "$NS" -o jsonpath='{.data.Corefile}'; }
loss() { map | as eksctl apply -f -; }
undo() { kubectl chronicle revert configmap/coredns --user eksctl --since "$SINCE" -n "$NS" --yes; }
incident
