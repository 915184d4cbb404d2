// Package testserver runs a Kubernetes API server for tests: `kubechronicle serve --ephemeral`.
//
//	func TestMain(m *testing.M) {
//		server, err := testserver.Start(context.Background(), testserver.Options{})
//		…
//		config := &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{
//			CAData: server.CA, CertData: server.Certificate, KeyData: server.Key}}
//
// The program must be installed, for instance by `pip install kubechronicle`. The package needs no other module, so it
// fits any version of client-go.
package testserver

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	startTimeout = time.Minute
	stopTimeout  = 40 * time.Second
	logBytes     = 64 << 10
)

var (
	ready   = regexp.MustCompile(`kubechronicle is ready at (https://\S+?);`)
	dataKey = regexp.MustCompile(`(?m)^\s*(certificate-authority-data|client-certificate-data|client-key-data):\s*(\S+)\s*$`)
)

// Options of a server. All may be empty.
type Options struct {
	// Program is the path of kubechronicle; the one on PATH if it is empty.
	Program string
	// Flags are further flags of `kubechronicle serve`.
	Flags []string
	// Nodes is the number of simulated nodes, on which pods run. With 0, pods stay Pending.
	Nodes int
	// Log receives the server's log; if it is nil, the end of the log is in the error of a start that failed.
	Log io.Writer
}

// Server is a running server. Its administrator's credentials are in Kubeconfig, and as PEM in the other fields.
type Server struct {
	URL         string
	Kubeconfig  string
	CA          []byte
	Certificate []byte
	Key         []byte

	directory string
	command   *exec.Cmd
	ended     chan struct{}
	client    *http.Client
	stopping  sync.Once
	stopped   error
}

// Start starts a server, marks its state for Reset, and returns when it is ready. The caller must call Stop.
func Start(ctx context.Context, options Options) (*Server, error) {
	directory, err := os.MkdirTemp("", "kubechronicle-")
	if err != nil {
		return nil, err
	}
	server := &Server{directory: directory, Kubeconfig: filepath.Join(directory, "admin.kubeconfig"), ended: make(chan struct{})}
	if err := server.start(ctx, options); err != nil {
		return nil, errors.Join(err, server.Stop())
	}
	return server, nil
}

// ForTest starts a server that stops with the test. A failure to start fails the test.
func ForTest(t testing.TB, options Options) *Server {
	t.Helper()
	server, err := Start(context.Background(), options)
	if err != nil {
		t.Fatalf("kubechronicle did not start: %v", err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Errorf("kubechronicle did not stop in order: %v", err)
		}
	})
	return server
}

func (s *Server) start(ctx context.Context, options Options) error {
	program := options.Program
	if program == "" {
		program = "kubechronicle"
	}
	flags := []string{"serve", "--ephemeral", "--secure-port=0", "--data-dir=" + s.directory}
	if options.Nodes > 0 {
		flags = append(flags, "--simulated-nodes="+strconv.Itoa(options.Nodes))
	}
	command := exec.Command(program, append(flags, options.Flags...)...)
	log := &tail{}
	command.Stderr = log
	if options.Log != nil {
		command.Stderr = options.Log
	}
	output, err := command.StdoutPipe()
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return err
	}
	s.command = command
	found := make(chan string, 1)
	go func() {
		lines := bufio.NewScanner(output)
		for lines.Scan() {
			if match := ready.FindStringSubmatch(lines.Text()); match != nil {
				found <- match[1]
			}
		}
		_ = command.Wait()
		close(s.ended)
	}()
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	select {
	case s.URL = <-found:
	case <-s.ended:
		return fmt.Errorf("the server has ended: %s", log)
	case <-ctx.Done():
		return fmt.Errorf("the server is not ready: %w", ctx.Err())
	}
	if err := s.readCredentials(); err != nil {
		return err
	}
	if err := s.waitForNodes(ctx, options.Nodes); err != nil {
		return err
	}
	return s.Mark(ctx)
}

// readCredentials reads the kubeconfig that the server has written: one user, and all files within it.
func (s *Server) readCredentials() error {
	text, err := os.ReadFile(s.Kubeconfig)
	if err != nil {
		return err
	}
	values := map[string][]byte{}
	for _, match := range dataKey.FindAllStringSubmatch(string(text), -1) {
		value, err := base64.StdEncoding.DecodeString(strings.Trim(match[2], `"'`))
		if err != nil {
			return fmt.Errorf("%s: %s: %w", s.Kubeconfig, match[1], err)
		}
		values[match[1]] = value
	}
	s.CA, s.Certificate, s.Key = values["certificate-authority-data"], values["client-certificate-data"], values["client-key-data"]
	pair, err := tls.X509KeyPair(s.Certificate, s.Key)
	if err != nil {
		return fmt.Errorf("%s: %w", s.Kubeconfig, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(s.CA) {
		return fmt.Errorf("%s: it has no authority", s.Kubeconfig)
	}
	configuration := &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}}
	s.client = &http.Client{Transport: &http.Transport{TLSClientConfig: configuration, ForceAttemptHTTP2: true}}
	return nil
}

// Client returns an HTTP client with the administrator's credentials.
func (s *Server) Client() *http.Client { return s.client }

// Mark makes the present state the one to which Reset returns, for instance after definitions were applied.
func (s *Server) Mark(ctx context.Context) error { return s.post(ctx, "/ephemeral/mark") }

// Reset returns to the marked state: new objects are deleted, whatever their finalizers say, others are as before.
// Watches report it, so informers follow.
func (s *Server) Reset(ctx context.Context) error { return s.post(ctx, "/ephemeral/reset") }

func (s *Server) post(ctx context.Context, path string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+path, nil)
	if err != nil {
		return err
	}
	_, err = s.do(request)
	return err
}

func (s *Server) do(request *http.Request) ([]byte, error) {
	response, err := s.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", request.URL.Path, response.Status, bytes.TrimSpace(body))
	}
	return body, err
}

// waitForNodes returns when the simulated nodes are ready.
func (s *Server) waitForNodes(ctx context.Context, count int) error {
	for wait := 20 * time.Millisecond; count > 0; wait = min(2*wait, time.Second) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/api/v1/nodes", nil)
		if err != nil {
			return err
		}
		body, err := s.do(request)
		if err != nil {
			return err
		}
		var nodes struct {
			Items []struct {
				Status struct {
					Conditions []struct{ Type, Status string }
				}
			}
		}
		if err := json.Unmarshal(body, &nodes); err != nil {
			return err
		}
		ready := 0
		for _, node := range nodes.Items {
			for _, condition := range node.Status.Conditions {
				if condition.Type == "Ready" && condition.Status == "True" {
					ready++
				}
			}
		}
		if ready >= count {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d nodes are ready: %w", ready, count, ctx.Err())
		case <-time.After(wait):
		}
	}
	return nil
}

// Stop stops the server and removes its directory. Further calls return what the first one did.
func (s *Server) Stop() error {
	s.stopping.Do(func() {
		if s.client != nil {
			s.client.CloseIdleConnections()
		}
		if s.command != nil {
			_ = s.command.Process.Signal(syscall.SIGTERM)
			select {
			case <-s.ended:
			case <-time.After(stopTimeout):
				_ = s.command.Process.Kill()
				<-s.ended
				s.stopped = errors.New("the server was killed, as it did not stop")
			}
		}
		s.stopped = errors.Join(s.stopped, os.RemoveAll(s.directory))
	})
	return s.stopped
}

// tail keeps the end of what is written to it.
type tail struct {
	lock sync.Mutex
	text []byte
}

func (t *tail) Write(more []byte) (int, error) {
	t.lock.Lock()
	defer t.lock.Unlock()
	t.text = append(t.text, more...)
	t.text = t.text[max(0, len(t.text)-logBytes):]
	return len(more), nil
}

func (t *tail) String() string {
	t.lock.Lock()
	defer t.lock.Unlock()
	lines := strings.Split(strings.TrimSpace(string(t.text)), "\n")
	return lines[len(lines)-1]
}
