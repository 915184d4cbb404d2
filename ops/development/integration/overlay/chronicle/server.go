package chronicle

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/rest"
)

// Issuer of the tokens of all servers, as in process.
const Issuer = "https://foo.bar.example.com"

const (
	startTime = 180 * time.Second // on a busy machine
	stopTime  = 10 * time.Second
)

// Request is the server that a test wants.
type Request struct {
	Test      string
	Flags     Flags
	Store     string // servers with the same one share a database
	Prefix    string // of the keys under which tests look for objects in etcd
	Folder    string // for the server's files
	Port      int    // 0: a free one
	Emulation string // the version that the test emulates; "": none
	Protobuf  bool   // the client's content type
	Unready   bool   // the test does not expect readiness
	Host      string // the name of the server's host; "": that of this one

	// The functions that replace the authentication and authorization of the process; nil: those of the flags.
	Authenticator authenticator.Request
	Authorizer    authorizer.Authorizer
	ThenModes     bool // what Authorizer does not know is decided by the modes of the flags
	NoToken       bool // only Authenticator knows the client
}

// Server is a running one.
type Server struct {
	Config  *rest.Config // of an administrator
	Port    int
	CAFile  string
	command *exec.Cmd
	ended   chan struct{}
	hooks   hooks
}

// Start starts a server, and waits until it is ready.
func Start(r Request) (server *Server, err error) {
	server = &Server{Port: r.Port, ended: make(chan struct{})}
	defer func() {
		if err != nil {
			server.Stop()
			server = nil
		}
	}()
	if server.Port == 0 {
		if server.Port, err = FreePort(); err != nil {
			return
		}
	}
	url, err := plan().database(r.Store)
	if err != nil {
		return
	}
	stores.Store("/"+strings.Trim(r.Prefix, "/"), url)
	data := filepath.Join(r.Folder, "data")
	if err = os.CopyFS(filepath.Join(data, "pki"), os.DirFS(plan().PKI)); err != nil {
		return
	}
	if server.CAFile, err = copyAuthority(r.Folder); err != nil {
		return
	}
	token := uuid.NewString()
	flags, unknown, err := server.flags(r, token)
	if err != nil {
		return
	}
	changed := gates()
	if len(changed) > 0 {
		flags["feature-gates"] = strings.Join(changed.pairs(), ",")
	}
	arguments := []string{
		"serve", "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", server.Port), "--data-dir", data,
		"--database-url", url, "--controllers=",
	}
	for _, pair := range flags.pairs() {
		arguments = append(arguments, "--"+pair)
	}
	plan().record(map[string]any{
		"test": r.Test, "arguments": arguments, "unknown": unknown, "gates": changed, "emulation": r.Emulation,
	})
	server.Config = ClientConfig(server.Port, token, r.Protobuf)
	if err = server.launch(arguments, r); err == nil {
		err = server.wait(token, r)
	}
	return
}

// copyAuthority puts the authority where a server in process has its certificate, which tests read.
func copyAuthority(folder string) (string, error) {
	file := filepath.Join(folder, "apiserver.crt")
	text, err := os.ReadFile(filepath.Join(plan().PKI, "ca.crt"))
	if err != nil {
		return "", err
	}
	return file, os.WriteFile(file, text, 0o600)
}

// flags completes the flags of a request as servers in process have them. It returns those that kubechronicle lacks, too.
func (s *Server) flags(r Request, token string) (Flags, []string, error) {
	flags, unknown := Flags{}, []string{}
	for name, value := range r.Flags {
		if plan().knows(name) {
			flags[name] = value
		} else {
			unknown = append(unknown, name+"="+value)
		}
	}
	if r.Emulation != "" {
		flags["emulated-version"] = r.Emulation
	}
	flags.add("runtime-config", "history.kubechronicle.dev/v1=false") // tests of all kinds know Kubernetes' alone
	if !strings.Contains(flags["enable-admission-plugins"], "NodeRestriction") {
		flags.add("disable-admission-plugins", "NodeRestriction") // here it is on beside the Node authorizer
	}
	if _, set := flags["allow-privileged"]; !set {
		flags["allow-privileged"] = "false"
	}
	flags.setDefault("service-account-issuer", Issuer)
	flags.setDefault("service-cluster-ip-range", "10.0.0.0/16")
	if _, outside := flags["service-account-signing-endpoint"]; !outside {
		flags.setDefault("service-account-signing-key-file", plan().Key)
	}
	if flags["authorization-config"] == "" {
		flags.setDefault("authorization-mode", "AlwaysAllow")
	}
	if r.Authorizer != nil {
		flags["authorization-webhook-config-file"] = s.hooks.serve(r.Folder, "authorizer", reviewAccess(r.Authorizer))
		flags["authorization-webhook-version"] = "v1"
		flags["authorization-webhook-cache-authorized-ttl"] = "0s"
		flags["authorization-webhook-cache-unauthorized-ttl"] = "0s"
		if r.ThenModes {
			flags["authorization-mode"] = "Webhook," + flags["authorization-mode"]
		} else {
			flags["authorization-mode"] = "Webhook"
		}
	}
	if r.Authenticator != nil {
		hook := s.hooks.serve(r.Folder, "authenticator", reviewToken(r.Authenticator))
		flags["authentication-token-webhook-config-file"] = hook
		flags["authentication-token-webhook-version"] = "v1"
		flags["authentication-token-webhook-cache-ttl"] = "0s"
	}
	if r.NoToken {
		token = uuid.NewString()
	}
	tokens := fmt.Sprintf("%s,system:apiserver,%s,\"system:masters\"\n", token, uuid.NewString())
	if given := flags["token-auth-file"]; given != "" {
		more, err := os.ReadFile(given)
		if err != nil {
			return nil, nil, err
		}
		tokens = string(more) + "\n" + tokens
	}
	flags["token-auth-file"] = filepath.Join(r.Folder, "tokens-with-administrator.csv")
	return flags, unknown, os.WriteFile(flags["token-auth-file"], []byte(tokens), 0o600)
}

// launch starts the process. It ends with the test program, even if that crashes.
func (s *Server) launch(arguments []string, r Request) error {
	log, err := os.Create(s.log())
	if err != nil {
		return err
	}
	defer log.Close()
	fmt.Fprintf(log, "# %s: %s\n", r.Test, strings.Join(arguments, " "))
	command := exec.Command(plan().Program, arguments...)
	if r.Host != "" { // in a namespace of its own; that needs root
		named := []string{"--uts", "sh", "-c", `hostname "$0" && exec "$@"`, r.Host, plan().Program}
		command = exec.Command("unshare", append(named, arguments...)...)
	}
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := command.Start(); err != nil {
		return err
	}
	s.command = command
	go func() {
		command.Wait()
		close(s.ended)
	}()
	return nil
}

func (s *Server) log() string {
	return filepath.Join(plan().Logs, fmt.Sprintf("server-%d-%d.log", os.Getpid(), s.Port))
}

// wait waits until the server answers; with the administrator's token, until it is ready and has its namespaces.
func (s *Server) wait(token string, r Request) error {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}
	get := func(path string) (int, error) {
		request, _ := http.NewRequest(http.MethodGet, s.Config.Host+path, nil)
		request.Header.Set("Authorization", "Bearer "+token)
		response, err := client.Do(request)
		if err != nil {
			return 0, err
		}
		defer response.Body.Close()
		_, err = io.Copy(io.Discard, response.Body)
		return response.StatusCode, err
	}
	last := errors.New("no answer")
	for end := time.Now().Add(startTime); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		select {
		case <-s.ended:
			text, _ := os.ReadFile(s.log())
			lines := strings.Split(strings.TrimSpace(string(text)), "\n")
			return fmt.Errorf("harness: kubechronicle ended: %s", lines[len(lines)-1])
		default:
		}
		code, err := get("/readyz")
		if err == nil && (r.Unready || r.NoToken) {
			return nil
		}
		if err == nil && code == http.StatusOK {
			code, err = get("/api/v1/namespaces/default")
		}
		if err == nil && code == http.StatusOK {
			return nil
		}
		if last = err; err == nil {
			last = fmt.Errorf("status %d", code)
		}
	}
	return fmt.Errorf("harness: kubechronicle was not ready in time: %w", last)
}

// Stop ends the server, and waits for its end.
func (s *Server) Stop() {
	if s.command != nil {
		s.command.Process.Signal(syscall.SIGTERM)
		select {
		case <-s.ended:
		case <-time.After(stopTime):
			s.command.Process.Kill()
			<-s.ended
		}
	}
	s.hooks.close()
}

// ClientConfig returns the configuration of a client with a token.
func ClientConfig(port int, token string, protobuf bool) *rest.Config {
	config := &rest.Config{Host: fmt.Sprintf("https://127.0.0.1:%d", port), BearerToken: token, QPS: -1}
	config.CAFile = filepath.Join(plan().PKI, "ca.crt")
	if protobuf {
		config.ContentType = "application/vnd.kubernetes.protobuf"
	}
	return config
}
