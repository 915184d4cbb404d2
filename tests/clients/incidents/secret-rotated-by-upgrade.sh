#!/bin/bash
# https://github.com/helm/charts/issues/217: each upgrade writes another random password; the database keeps the first.
. "$(dirname "$0")/common.sh"
OBJECTS=(secrets -n "$NS")
setup() { as helm create secret generic mysql -n "$NS" --from-literal=root-password=SpeSUQshnK --from-literal=host=db; }
state() { kubectl get secret mysql -n "$NS" -o jsonpath='{.data}{"\n"}'; }
loss() {
  as helm patch secret mysql -n "$NS" -p '{"stringData": {"root-password": "EiKA8TDMp9"}}'
  as helm label secret mysql -n "$NS" release=2
}
undo() { kubectl chronicle restore secret/mysql -n "$NS" --to "$SINCE" --yes; }
incident
