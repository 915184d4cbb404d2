#!/bin/bash
# https://github.com/argoproj/argo-cd/issues/22607: one of two applications is deleted, and with it the namespace of both.
. "$(dirname "$0")/common.sh"
OBJECTS=(configmaps,deployments -n "$NS")
setup() {
  as argocd create deployment first -n "$NS" --image=example.invalid/first:1
  as argocd create deployment second -n "$NS" --image=example.invalid/second:1
  as argocd create configmap second -n "$NS" --from-literal=mode=fast
  as jane scale deployment second -n "$NS" --replicas=4
}
state() {
  kubectl get deployments -n "$NS" -o jsonpath='{range .items[*]}{.metadata.name} {.spec.replicas} {.spec.template.spec.containers[0].image}{"\n"}{end}'
  kubectl get configmaps second -n "$NS" -o jsonpath='{.data}{"\n"}'
}
loss() {
  as argocd delete deployment first -n "$NS"
  as argocd delete namespace "$NS"
}
undo() { kubectl chronicle revert --user argocd --since "$SINCE" -A --with-consequences --yes; }
incident
