package testserver

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const configMaps = "/api/v1/namespaces/default/configmaps"

func status(t *testing.T, server *Server, method, path, body string) int {
	t.Helper()
	request, err := http.NewRequest(method, server.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	return response.StatusCode
}

func TestResetReturnsToTheMark(t *testing.T) {
	ctx := context.Background()
	server := ForTest(t, Options{})
	if got := status(t, server, "POST", configMaps, `{"metadata": {"name": "kept"}}`); got != http.StatusCreated {
		t.Fatalf("create: %d", got)
	}
	if err := server.Mark(ctx); err != nil {
		t.Fatal(err)
	}
	status(t, server, "POST", configMaps, `{"metadata": {"name": "new"}}`)
	status(t, server, "DELETE", configMaps+"/kept", "")
	if err := server.Reset(ctx); err != nil {
		t.Fatal(err)
	}
	if got := status(t, server, "GET", configMaps+"/new", ""); got != http.StatusNotFound {
		t.Errorf("a new object is still there: %d", got)
	}
	if got := status(t, server, "GET", configMaps+"/kept", ""); got != http.StatusOK {
		t.Errorf("an object of the mark is not there: %d", got)
	}
}

func TestPodsRunOnSimulatedNodes(t *testing.T) {
	server := ForTest(t, Options{Nodes: 1})
	pod := `{"metadata": {"name": "web"}, "spec": {"containers": [{"name": "c", "image": "example.com/image"}]}}`
	if got := status(t, server, "POST", "/api/v1/namespaces/default/pods", pod); got != http.StatusCreated {
		t.Fatalf("create: %d", got)
	}
	path := server.URL + "/api/v1/namespaces/default/pods?fieldSelector=status.phase%3DRunning"
	for end := time.Now().Add(time.Minute); ; {
		request, _ := http.NewRequest("GET", path, nil)
		body, err := server.do(request)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(body), `"podIP"`) {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the pod does not run")
		}
	}
}

func TestStopLeavesNothing(t *testing.T) {
	server, err := Start(context.Background(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	directory := filepath.Dir(server.Kubeconfig)
	for range 2 {
		if err := server.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(directory); !os.IsNotExist(err) {
		t.Errorf("%s: %v", directory, err)
	}
}

func TestAFailedStartSaysWhy(t *testing.T) {
	_, err := Start(context.Background(), Options{Flags: []string{"--no-such-flag"}})
	if err == nil || !strings.Contains(err.Error(), "unknown flag --no-such-flag") {
		t.Errorf("got %v", err)
	}
	if _, err := Start(context.Background(), Options{Program: "no-such-program"}); err == nil {
		t.Error("there is no such program")
	}
}
