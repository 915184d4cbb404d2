// Command informers tests with client-go that no client misses a change or sees one twice.
//
//	informers write    several writers create, change and delete objects of many kinds, and record every answer
//	informers follow   shared informers over many kinds, and a plain watch on every served resource, until stdin ends
//	informers whoami   the user of each kubeconfig
//	informers sessions commands in containers by the executors of client-go, and followed logs
//	informers inform   one informer with a credential that is changed on disk, until stdin ends
//
// All print one JSON document a line on stdout: {"event":"ready"|"progress"|"report", ...}. The tests run writers and
// followers at the same time, disturb the server, and compare the reports. The environment variable
// KUBE_FEATURE_WatchListClient=true or false, client-go's own, decides about WatchList.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

func main() {
	klog.LogToStderr(true)
	if len(os.Args) < 2 {
		fatal(fmt.Errorf("usage: informers write|follow|whoami|inform|sessions [flags]"))
	}
	commands := map[string]func([]string) error{
		"write": writeCommand, "follow": followCommand, "whoami": whoamiCommand, "inform": informCommand,
		"sessions": sessionsCommand,
	}
	command, known := commands[os.Args[1]]
	if !known {
		fatal(fmt.Errorf("no such command: %s", os.Args[1]))
	}
	if err := command(os.Args[2:]); err != nil {
		fatal(err)
	}
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, "informers:", err)
	os.Exit(1)
}

var output sync.Mutex

func emit(document any) {
	line, err := json.Marshal(document)
	if err != nil {
		fatal(err)
	}
	output.Lock()
	defer output.Unlock()
	os.Stdout.Write(append(line, '\n'))
}

// waitForEnd returns when stdin ends.
func waitForEnd() { io.Copy(io.Discard, os.Stdin) }

const (
	protobufType = "application/vnd.kubernetes.protobuf"
	jsonType     = "application/json"
)

// configFor reads a kubeconfig. The rate limit of the client is off: the test is about the server.
func configFor(kubeconfig, contentType string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	config.ContentType = contentType
	config.AcceptContentTypes = contentType
	if contentType == protobufType {
		config.AcceptContentTypes += "," + jsonType
	}
	config.UserAgent = "kubechronicle-informers-test"
	return config, nil
}
