#!/bin/bash
# https://github.com/kubernetes/kubernetes/issues/66385: apply writes the manifest's replicas over those of the autoscaler.
. "$(dirname "$0")/common.sh"
OBJECTS=(deployments -n "$NS")
manifest() {
  cat <<X
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: $NS
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "example.invalid/web:$1"}]}
X
}
setup() {
  manifest 1 | as ci apply -f -
  as system:serviceaccount:kube-system:horizontal-pod-autoscaler scale deployment web -n "$NS" --replicas=12
  as jane set image deployment web -n "$NS" web=example.invalid/web:2
}
state() { kubectl get deployment web -n "$NS" -o jsonpath='{.spec.replicas} {.spec.template.spec.containers[0].image}{"\n"}'; }
loss() { manifest 1 | as ci apply -f -; }
undo() { kubectl chronicle revert deployment/web --user ci --since "$SINCE" -n "$NS" --yes; }
incident
