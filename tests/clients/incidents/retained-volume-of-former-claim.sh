#!/bin/bash
# https://github.com/velero-io/velero/issues/1418: a claim is made again; its retained volume stays bound to the former one.
. "$(dirname "$0")/common.sh"
OBJECTS=(persistentvolumeclaims -n "$NS")
setup() {
  kubectl apply -f - <<X
apiVersion: v1
kind: PersistentVolume
metadata:
  name: $NS
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
spec:
  accessModes: [ReadWriteOnce]
  storageClassName: incidents
  volumeName: $NS
  resources: {requests: {storage: 1Gi}}
X
  kubectl patch pv "$NS" --type=merge -p "{\"spec\": {\"claimRef\": {\"apiVersion\": \"v1\", \"kind\": \"PersistentVolumeClaim\", \"namespace\": \"$NS\", \"name\": \"data\", \"uid\": \"$(uid)\"}}}"
}
uid() { kubectl get pvc data -n "$NS" -o jsonpath='{.metadata.uid}'; }
state() {
  kubectl get pvc data -n "$NS" -o jsonpath='{.spec.volumeName}{"\n"}'
  [ "$(kubectl get pv "$NS" -o jsonpath='{.spec.claimRef.uid}')" = "$(uid)" ] && echo "bound to the claim that exists"
}
loss() {
  as mallory delete pvc data -n "$NS" --wait=false
  kubectl patch pvc data -n "$NS" --type=merge -p '{"metadata": {"finalizers": null}}' 2>/dev/null || true
  gone pvc data -n "$NS"
}
undo() { kubectl chronicle restore pvc/data -n "$NS" --to "$SINCE" --yes; }
incident
