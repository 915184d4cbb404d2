#!/bin/bash
# https://github.com/kubernetes/kubernetes/issues/107214: a volume is deleted by mistake, and its claim with it.
. "$(dirname "$0")/common.sh"
OBJECTS=(persistentvolumes,persistentvolumeclaims -n "$NS" -l incident=volume-deleted)
setup() {
  kubectl apply -f - <<X
apiVersion: v1
kind: PersistentVolume
metadata:
  name: $NS
  labels: {incident: volume-deleted}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  storageClassName: incidents
  hostPath: {path: /srv/data}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: data
  namespace: $NS
  labels: {incident: volume-deleted}
spec:
  accessModes: [ReadWriteOnce]
  storageClassName: incidents
  volumeName: $NS
  resources: {requests: {storage: 1Gi}}
X
  bind
}
bind() { # what the volume controller would do
  kubectl patch pv "$NS" --type=merge -p "{\"spec\": {\"claimRef\": {\"apiVersion\": \"v1\", \"kind\": \"PersistentVolumeClaim\", \"namespace\": \"$NS\", \"name\": \"data\", \"uid\": \"$(uid)\"}}}"
}
uid() { kubectl get pvc data -n "$NS" -o jsonpath='{.metadata.uid}'; }
state() {
  kubectl get pv "$NS" -o jsonpath='{.spec.hostPath.path} {.spec.persistentVolumeReclaimPolicy} {.spec.claimRef.name}{"\n"}'
  kubectl get pvc data -n "$NS" -o jsonpath='{.spec.volumeName}{"\n"}'
  case $(kubectl get pv "$NS" -o jsonpath='{.spec.claimRef.uid}') in
    "" | "$(uid)") echo "free for the claim that exists" ;;
  esac
}
loss() {
  as mallory delete pvc data -n "$NS" --wait=false
  kubectl patch pvc data -n "$NS" --type=merge -p '{"metadata": {"finalizers": null}}' 2>/dev/null || true
  as mallory delete pv "$NS" --wait=false
  kubectl patch pv "$NS" --type=merge -p '{"metadata": {"finalizers": null}}' 2>/dev/null || true
  gone pv "$NS"
}
undo() { kubectl chronicle restore "pv/$NS" pvc/data -n "$NS" --to "$SINCE" --yes; }
incident
