#!/bin/bash
# https://github.com/banzaicloud/koperator/issues/186: objects name an owner in another namespace, and are all collected.
. "$(dirname "$0")/common.sh"
OBJECTS=(configmaps -n "$NS" -l topic)
setup() {
  for name in orders payments; do
    kubectl create configmap "$name" -n "$NS" --from-literal=partitions=12
    kubectl label configmap "$name" -n "$NS" topic=true
  done
}
state() { kubectl get configmaps -n "$NS" -l topic -o jsonpath='{range .items[*]}{.metadata.name} {.data} {.metadata.ownerReferences}{"\n"}{end}'; }
loss() {
  kubectl create namespace "$NS-kafka"
  kubectl create configmap cluster -n "$NS-kafka"
  local uid
  uid=$(kubectl get configmap cluster -n "$NS-kafka" -o jsonpath='{.metadata.uid}')
  for name in orders payments; do
    as operator patch configmap "$name" -n "$NS" --type=merge -p \
      "{\"metadata\": {\"ownerReferences\": [{\"apiVersion\": \"v1\", \"kind\": \"ConfigMap\", \"name\": \"cluster\", \"uid\": \"$uid\"}]}}"
  done
  gone configmaps -n "$NS" -l topic
}
undo() { kubectl chronicle restore configmaps -n "$NS" --to "$SINCE" --yes; }
incident
