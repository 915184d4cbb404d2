# Functions for the scripts in this folder. Each tells a public thread in which somebody lost objects:
#
#   setup    makes the objects                     state   prints what must come back, without uids, times and revisions
#   loss     does what was done in the thread      undo    one or two commands of a person who has kubechronicle
#
# `incident` runs them. The state after `undo` must be the one before `loss`, and a second `undo` must change nothing.
# NS is a namespace of the script's own, SINCE the revision before the loss. NO_LOSS=1: the state shows no loss.
set -euo pipefail
NS=${NS:-$(basename "$0" .sh)}
ADMIN=(--as-group=system:masters)

as() { # as USER COMMAND...: kubectl as another administrator
  local user=$1
  shift
  kubectl --as="$user" "${ADMIN[@]}" "$@"
}

revision() { kubectl get --raw '/api/v1/namespaces?limit=1' | grep -o '"resourceVersion":"[0-9]*"' | head -1 | tr -cd 0-9; }

gone() { # gone WHAT...: wait until kubectl get finds nothing
  for _ in $(seq 600); do
    [ -z "$(kubectl get "$@" --ignore-not-found -o name 2>/dev/null)" ] && return
    sleep 0.1
  done
  echo "still there: $*" >&2
  return 1
}

incident() {
  kubectl create namespace "$NS" >/dev/null 2>&1 || true
  setup >/dev/null
  local before lost after again
  before=$(state)
  SINCE=$(revision)
  loss >/dev/null
  lost=$(state 2>&1 || true)
  [ -n "${NO_LOSS:-}" ] || [ "$lost" != "$before" ] || { echo "nothing was lost" >&2; exit 1; }
  undo
  after=$(state)
  diff <(echo "$before") <(echo "$after") || { echo "the state is not the former one" >&2; exit 1; }
  local revisions
  revisions=$(kubectl get "${OBJECTS[@]}" -o jsonpath='{range .items[*]}{.metadata.uid}{" "}{end}' 2>/dev/null || true)
  undo
  again=$(state)
  diff <(echo "$before") <(echo "$again") || { echo "a second run changed the state" >&2; exit 1; }
  [ "$revisions" = "$(kubectl get "${OBJECTS[@]}" -o jsonpath='{range .items[*]}{.metadata.uid}{" "}{end}' 2>/dev/null || true)" ] \
    || { echo "a second run made objects anew" >&2; exit 1; }
  echo "as before the loss"
}
