package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
)

type sessions struct {
	config    *rest.Config
	client    *kubernetes.Clientset
	namespace string
	pod       string
	executor  string
}

// sessionsCommand runs sessions with the container "c" of a pod.
//
//	--run COMMAND  one command in a shell, whose input is --input: its output, error output and exit code
//	otherwise      --commands sessions of cat and --logs followed logs at once, until stdin ends
func sessionsCommand(arguments []string) error {
	flags := flag.NewFlagSet("sessions", flag.ExitOnError)
	kubeconfig := flags.String("kubeconfig", "", "")
	_ = flags.String("out", "", "not used")
	run := flags.String("run", "", "")
	input := flags.String("input", "", "")
	commands := flags.Int("commands", 0, "")
	logs := flags.Int("logs", 0, "")
	var s sessions
	flags.StringVar(&s.namespace, "namespace", "", "")
	flags.StringVar(&s.pod, "pod", "", "")
	flags.StringVar(&s.executor, "executor", "websocket", "websocket, spdy or fallback")
	flags.Parse(arguments)
	var err error
	if s.config, err = configFor(*kubeconfig, jsonType); err != nil {
		return err
	}
	if s.client, err = kubernetes.NewForConfig(s.config); err != nil {
		return err
	}
	if *run != "" {
		return s.one(*run, *input)
	}
	return s.many(*commands, *logs)
}

func (s *sessions) stream(ctx context.Context, command []string, in io.Reader, out, errOut io.Writer) error {
	options := &corev1.PodExecOptions{
		Container: "c", Command: command, Stdin: in != nil, Stdout: true, Stderr: errOut != nil,
	}
	url := s.client.CoreV1().RESTClient().Post().Namespace(s.namespace).Resource("pods").Name(s.pod).
		SubResource("exec").VersionedParams(options, scheme.ParameterCodec).URL()
	spdy, err := remotecommand.NewSPDYExecutor(s.config, "POST", url)
	if err != nil {
		return err
	}
	websocket, err := remotecommand.NewWebSocketExecutor(s.config, "GET", url.String())
	if err != nil {
		return err
	}
	executor := websocket
	switch s.executor {
	case "spdy":
		executor = spdy
	case "fallback":
		if executor, err = remotecommand.NewFallbackExecutor(websocket, spdy, httpstream.IsUpgradeFailure); err != nil {
			return err
		}
	}
	return executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: in, Stdout: out, Stderr: errOut})
}

func (s *sessions) one(command, input string) error {
	var out, errOut bytes.Buffer
	err := s.stream(context.Background(), []string{"sh", "-c", command}, strings.NewReader(input), &out, &errOut)
	code := 0
	var exited exec.CodeExitError
	if errors.As(err, &exited) {
		code, err = exited.Code, nil
	}
	message := ""
	if err != nil {
		message = err.Error()
	}
	emit(map[string]any{
		"event": "report", "out": out.String(), "err": errOut.String(), "code": code, "error": message,
	})
	return nil
}

// opening is the number of sessions and logs that are opened at once. All at once could take the server longer than it
// waits for a kubelet (--kubelet-timeout), on a machine that has other things to do.
const opening = 20

// many opens all sessions and tells when each has answered. At the end it reports the number of lines.
func (s *sessions) many(commands, logs int) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var started, ended sync.WaitGroup
	var lines, logged, failed atomic.Int64
	room := make(chan struct{}, opening)
	begin := func() (opened func()) {
		room <- struct{}{}
		started.Add(1)
		return sync.OnceFunc(func() { <-room; started.Done() })
	}
	follow := func(reader io.Reader, count *atomic.Int64, opened func()) {
		for scanner := bufio.NewScanner(reader); scanner.Scan(); count.Add(1) {
			opened()
		}
		opened()
	}
	for range commands {
		opened := begin()
		ended.Add(1)
		in, input := io.Pipe()
		output, out := io.Pipe()
		go follow(output, &lines, opened)
		go func() {
			defer ended.Done()
			if err := s.stream(context.Background(), []string{"cat"}, in, out, nil); err != nil {
				emit(map[string]any{"event": "failed", "error": err.Error()})
				failed.Add(1)
			}
			out.Close()
			in.Close()
		}()
		go func() {
			defer input.Close()
			for number := 0; ctx.Err() == nil; number++ {
				if _, err := fmt.Fprintf(input, "line %d\n", number); err != nil {
					return
				}
				select {
				case <-time.After(time.Second / 3):
				case <-ctx.Done():
				}
			}
		}()
	}
	for range logs {
		opened := begin()
		ended.Add(1)
		go func() {
			defer ended.Done()
			options := &corev1.PodLogOptions{Container: "c", Follow: true}
			body, err := s.client.CoreV1().Pods(s.namespace).GetLogs(s.pod, options).Stream(ctx)
			if err != nil {
				emit(map[string]any{"event": "failed", "error": err.Error()})
				failed.Add(1)
				opened()
				return
			}
			follow(body, &logged, opened)
			body.Close()
		}()
	}
	started.Wait()
	emit(map[string]any{"event": "ready", "failed": failed.Load()})
	waitForEnd()
	cancel()
	ended.Wait()
	emit(map[string]any{
		"event": "report", "lines": lines.Load(), "logged": logged.Load(), "failed": failed.Load(),
	})
	return nil
}
