// Package chronicle starts kubechronicle where an integration test of Kubernetes starts a kube-apiserver in its process.
//
// The runner (ops/development/integration) gives each test program a plan. Without one, tests run as upstream wrote them.
package chronicle

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"

	"github.com/google/uuid"
)

// PlanVariable names the environment variable with the path of the plan.
const PlanVariable = "KUBECHRONICLE_PLAN"

// Plan tells a test program how to start servers.
type Plan struct {
	Program  string   // kubechronicle
	PKI      string   // the folder with the authority, keys and certificates of all servers
	Key      string   // the file of the key that signs tokens of service accounts
	Flags    []string // those that the program knows, without dashes
	Logs     string   // the folder for logs and the record of starts
	Ports    [2]int   // the first and last port that servers may have
	Prefix   string   // of the names of databases
	Template string   // the database with a schema, which each new one copies
	Database string   // the URL of a database, with {} for its name
	Psql     string   // the command, which finds the cluster by its environment
}

var plan = sync.OnceValue(func() *Plan {
	path := os.Getenv(PlanVariable)
	if path == "" {
		return nil
	}
	text, err := os.ReadFile(path)
	made := &Plan{}
	if err == nil {
		err = json.Unmarshal(text, made)
	}
	if err != nil {
		panic(fmt.Sprintf("harness: %s: %v", path, err))
	}
	return made
})

// Enabled tells whether there is a plan.
func Enabled() bool { return plan() != nil }

// SigningKey returns the file of the key of service accounts.
func SigningKey() string { return plan().Key }

func (p *Plan) knows(flag string) bool { return slices.Contains(p.Flags, flag) }

var (
	lock     sync.Mutex
	lastPort int
)

// FreePort returns a port that nobody listens on. Test programs begin at different places of the range.
func FreePort() (int, error) {
	first, size := plan().Ports[0], plan().Ports[1]-plan().Ports[0]+1
	lock.Lock()
	defer lock.Unlock()
	if lastPort == 0 {
		lastPort = first + os.Getpid()*7%size
	}
	for range size {
		lastPort = first + (lastPort-first+1)%size
		if listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", lastPort)); err == nil {
			return lastPort, listener.Close()
		}
	}
	return 0, fmt.Errorf("harness: no free port from %d", first)
}

// database returns the URL of the database of a store. Servers with the same store share it. "": one of its own.
func (p *Plan) database(store string) (string, error) {
	if store == "" {
		store = uuid.NewString()
	}
	name := p.Prefix + uuid.NewSHA1(uuid.NameSpaceURL, []byte(store)).String()[:13]
	query := fmt.Sprintf(`CREATE DATABASE "%s" TEMPLATE "%s"`, name, p.Template)
	said, err := exec.Command(p.Psql, "-qd", "postgres", "-c", query).CombinedOutput()
	if err != nil && !strings.Contains(string(said), "already exists") {
		return "", fmt.Errorf("harness: %w: %s", err, said)
	}
	return strings.ReplaceAll(p.Database, "{}", name), nil
}

// record adds a start to starts.jsonl, from which the runner tells why a test failed.
func (p *Plan) record(start map[string]any) {
	line, _ := json.Marshal(start)
	lock.Lock()
	defer lock.Unlock()
	file, err := os.OpenFile(p.Logs+"/starts.jsonl", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		file.Write(append(line, '\n'))
		file.Close()
	}
}
