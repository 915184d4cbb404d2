// Command load puts one kind of load on a Kubernetes API server and prints rates and latencies.
//
// It is the client part of kubechronicle's benchmark. The Python part (ops/bench) starts it, samples the CPU time of the
// server's processes and writes the report. The program uses as little CPU as possible, because on two shared cores the
// server lacks each microsecond it uses: only the standard library, a hand-written HTTP/1.1 exchange (wire.go), and
// requests rendered in advance.
//
// Output, one JSON document per line:
//
//	{"phase":"measure"}   set-up and warm-up are over and no request is in flight; the load waits for a line on stdin
//	{"phase":"end"}       the last counted operation is over
//	{...}                 the result
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sort"
	"strings"
	"time"
)

type options struct {
	mode      string
	namespace string
	conns     int
	seconds   float64
	warm      float64
	count     int
	size      int
	query     string
	limit     int
	format    string
	watchers  int
	http2     int
	rate      float64
	target    *target
}

// modes are the values of -mode. A file with more modes adds them and their flags in its init.
var modes = map[string]func(options) (map[string]any, error){
	"get": runGet, "create": runCreate, "update": runUpdate, "fill": runFill, "list": runList, "watch": runWatch,
}

func main() {
	var o options
	var server, ca, tokenFile, cert, key string
	flag.StringVar(&server, "server", "https://127.0.0.1:6443", "the server's URL, or several separated by commas")
	flag.StringVar(&ca, "ca", "", "file with the certificate authority, or several (empty: the server's certificate is not verified)")
	flag.StringVar(&tokenFile, "token-file", "", "file with a bearer token")
	flag.StringVar(&cert, "cert", "", "client certificate file")
	flag.StringVar(&key, "key", "", "client key file")
	flag.StringVar(&o.mode, "mode", "get", "get, create, update, objects, fill, list, watch, held, fanout, informers, churn, nodes or hour")
	flag.StringVar(&o.namespace, "namespace", "bench", "namespace to work in, created when absent")
	flag.IntVar(&o.conns, "conns", 1, "connections, each with one request in flight")
	flag.Float64Var(&o.seconds, "seconds", 5, "length of the measured part")
	flag.Float64Var(&o.warm, "warm", 1, "seconds of the same load before it")
	flag.IntVar(&o.count, "count", 1000, "fill: number of objects; list: expected number of objects")
	flag.IntVar(&o.size, "size", 1024, "bytes of text in each ConfigMap")
	flag.StringVar(&o.query, "query", "", "query of get and list, such as resourceVersion=0")
	flag.IntVar(&o.limit, "limit", 0, "list: page size, pages are followed (0: one page)")
	flag.StringVar(&o.format, "format", "json", "list and get: json, protobuf or table")
	flag.IntVar(&o.watchers, "watchers", 100, "watch: number of watchers, one connection each")
	flag.IntVar(&o.http2, "http2", 0, "get and watch: HTTP/2 connections shared by all requests (0: HTTP/1.1, one each)")
	flag.Float64Var(&o.rate, "rate", 50, "watch: creates per second of the writer")
	flag.Parse()

	var err error
	if o.target, err = newTarget(server, ca, tokenFile, cert, key); err != nil {
		fatal(err)
	}
	run, known := modes[o.mode]
	if !known {
		fatal(fmt.Errorf("no such mode: %s", o.mode))
	}
	if err = ensureNamespace(o); err == nil {
		err = ensureDefinition(o)
	}
	if err != nil {
		fatal(err)
	}
	var result map[string]any
	if err = setUpAdmission(o); err == nil {
		result, err = run(o)
	}
	removeAdmission(o)
	if err != nil {
		fatal(err)
	}
	result["mode"] = o.mode
	emit(result)
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, "load:", err)
	os.Exit(1)
}

func emit(document map[string]any) {
	line, err := json.Marshal(document)
	if err != nil {
		fatal(err)
	}
	os.Stdout.Write(append(line, '\n'))
}

var stdin = bufio.NewReader(os.Stdin)

// measured runs the counted part between two lines of output. The caller samples CPU times at both lines, so no request
// may be in flight at either.
func measured(part func()) time.Duration {
	emit(map[string]any{"phase": "measure"})
	if _, err := stdin.ReadString('\n'); err != nil {
		fatal(fmt.Errorf("waiting for the measure line to be answered: %w", err))
	}
	start := time.Now()
	part()
	took := time.Since(start)
	emit(map[string]any{"phase": "end"})
	return took
}

// latencies describes a sample of durations in milliseconds.
func latencies(sample []time.Duration) map[string]float64 {
	if len(sample) == 0 {
		return map[string]float64{}
	}
	sort.Slice(sample, func(i, j int) bool { return sample[i] < sample[j] })
	at := func(quantile float64) float64 {
		i := min(int(quantile*float64(len(sample))), len(sample)-1)
		return float64(sample[i].Microseconds()) / 1000
	}
	return map[string]float64{"p50": at(.5), "p90": at(.9), "p99": at(.99), "max": at(1)}
}

// text returns text that hardly compresses, so that Postgres' TOAST stores its full size.
func text(size int) string {
	const alphabet = "abcdefghijklmnopqrstuvwxyz0123456789"
	var b strings.Builder
	state := uint64(0x9E3779B97F4A7C15)
	for b.Len() < size {
		state = state*6364136223846793005 + 1442695040888963407
		b.WriteByte(alphabet[(state>>33)%uint64(len(alphabet))])
	}
	return b.String()
}

func configMapPath(namespace string) string { return "/api/v1/namespaces/" + namespace + "/configmaps" }

func appendConfigMap(to []byte, namespace, name, value string) []byte {
	to = append(to, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"`...)
	to = append(to, name...)
	to = append(to, `","namespace":"`...)
	to = append(to, namespace...)
	to = append(to, `"},"data":{"v":"`...)
	to = append(to, value...)
	return append(to, `"}}`...)
}

func ensureNamespace(o options) error {
	c, err := o.target.dial()
	if err != nil {
		return err
	}
	defer c.close()
	body := `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"` + o.namespace + `"}}`
	status, answer, err := c.exchange(o.target.render(nil, "POST", "/api/v1/namespaces", "", []byte(body)))
	if err != nil {
		return err
	}
	if status != 201 && status != 409 {
		return fmt.Errorf("creating namespace %s: %d %.300s", o.namespace, status, answer)
	}
	return nil
}
