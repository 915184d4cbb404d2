package main

// Programs with informers: they list and watch many resources over one connection. Meanwhile nothing happens (mode
// informers), or objects are created and deleted (mode churn).

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

var informersOptions struct {
	programs int
	watches  int
	idle     int
	http1    bool
	seconds  float64
}

func init() {
	flag.IntVar(&informersOptions.programs, "informers", 50, "informers and churn: programs that list and watch")
	flag.IntVar(&informersOptions.watches, "watches", 30, "informers and churn: resources that each of them watches")
	flag.IntVar(&informersOptions.idle, "idle", 0, "fanout: further watchers, of an idle namespace")
	flag.Float64Var(&informersOptions.seconds, "watch-seconds", 600, "informers, churn, nodes and hour: shortest length of a watch; the longest is twice this")
	flag.BoolVar(&informersOptions.http1, "http1", false, "informers, churn and nodes: HTTP/1.1 instead of HTTP/2")
	modes["informers"], modes["churn"], modes["fanout"] = runInformers, runChurn, runFanOut
}

var informed = []string{
	"/api/v1/configmaps", "/api/v1/pods", "/api/v1/services", "/api/v1/secrets", "/api/v1/nodes", "/api/v1/namespaces",
	"/api/v1/endpoints", "/api/v1/persistentvolumes", "/api/v1/persistentvolumeclaims", "/api/v1/serviceaccounts",
	"/api/v1/limitranges", "/api/v1/resourcequotas", "/api/v1/replicationcontrollers", "/apis/apps/v1/deployments",
	"/apis/apps/v1/replicasets", "/apis/apps/v1/daemonsets", "/apis/apps/v1/statefulsets", "/apis/batch/v1/jobs",
	"/apis/batch/v1/cronjobs", "/apis/autoscaling/v2/horizontalpodautoscalers", "/apis/networking.k8s.io/v1/ingresses",
	"/apis/networking.k8s.io/v1/networkpolicies", "/apis/policy/v1/poddisruptionbudgets",
	"/apis/rbac.authorization.k8s.io/v1/roles", "/apis/rbac.authorization.k8s.io/v1/rolebindings",
	"/apis/rbac.authorization.k8s.io/v1/clusterroles", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
	"/apis/storage.k8s.io/v1/storageclasses", "/apis/discovery.k8s.io/v1/endpointslices",
	"/apis/scheduling.k8s.io/v1/priorityclasses",
}

type informers struct {
	clients []*client
	events  atomic.Int64
	ended   atomic.Int64 // watches that ended early
	turned  atomic.Int64 // watches that ended in time and were restarted
	listed  atomic.Int64 // lists after the first ones
	group   sync.WaitGroup
	cancel  context.CancelFunc
}

// openInformers returns after all informers have listed; their watches may still be opening.
func openInformers(o options) (*informers, error) {
	if n := informersOptions.watches; n > len(informed) {
		return nil, fmt.Errorf("-watches is at most %d", len(informed))
	}
	ctx, cancel := context.WithCancel(context.Background())
	all := &informers{cancel: cancel}
	slots := make(chan struct{}, dialsAtOnce)
	problems := make(chan error, informersOptions.programs)
	var opening sync.WaitGroup
	for range informersOptions.programs {
		c := o.target.client(informersOptions.http1)
		all.clients = append(all.clients, c)
		opening.Add(1)
		go func() {
			defer opening.Done()
			slots <- struct{}{}
			defer func() { <-slots }()
			for _, path := range informed[:informersOptions.watches] {
				list, err := c.do(ctx, "GET", path+"?resourceVersion=0", "application/json", "", nil)
				if err != nil {
					problems <- err
					return
				}
				all.group.Add(1)
				go all.follow(ctx, c, path, versionIn(list))
			}
		}()
	}
	opening.Wait()
	select {
	case err := <-problems:
		all.close()
		return nil, err
	default:
		return all, nil
	}
}

// versionIn returns the first resourceVersion in a document: that of the list, as servers write metadata before items,
// or that of an event's object.
func versionIn(document []byte) string {
	_, after, _ := bytes.Cut(document, []byte(`"resourceVersion":"`))
	version, _, _ := bytes.Cut(after, []byte(`"`))
	return string(version)
}

// listAgain is the number of watches after which an informer lists again, as with an expired version.
const listAgain = 4

// lasting returns a random watch length as client-go does: one to two times the minimum, in whole seconds.
func lasting() time.Duration {
	return time.Duration(math.Ceil(informersOptions.seconds*(1+rand.Float64()))) * time.Second
}

func (all *informers) follow(ctx context.Context, c *client, path, version string) {
	defer all.group.Done()
	for turn := 1; ctx.Err() == nil; turn++ {
		begun, length := time.Now(), lasting()
		query := fmt.Sprintf("?watch=true&allowWatchBookmarks=true&timeoutSeconds=%.0f&resourceVersion=%s", length.Seconds(), version)
		answer, err := c.open(ctx, "GET", path+query, "application/json", "", nil)
		if err == nil {
			version = all.read(answer.Body, version)
			answer.Body.Close()
		}
		switch {
		case ctx.Err() != nil:
		case err == nil && answer.StatusCode == 200 && time.Since(begun) > length-time.Second:
			all.turned.Add(1)
			if turn%listAgain == 0 {
				if list, err := c.do(ctx, "GET", path+"?resourceVersion=0", "application/json", "", nil); err == nil {
					version = versionIn(list)
					all.listed.Add(1)
				}
			}
		default:
			all.ended.Add(1)
			time.Sleep(time.Second)
		}
	}
}

func (all *informers) read(body io.Reader, version string) string {
	lines := bufio.NewReaderSize(body, 4<<10)
	for {
		line, err := lines.ReadSlice('\n')
		if found := versionIn(line); found != "" {
			version = found
		}
		for err == bufio.ErrBufferFull {
			_, err = lines.ReadSlice('\n')
		}
		if err != nil {
			return version
		}
		all.events.Add(1)
	}
}

func (all *informers) close() {
	all.cancel()
	all.group.Wait()
	for _, c := range all.clients {
		c.close()
	}
}

func runInformers(o options) (map[string]any, error) {
	all, err := openInformers(o)
	if err != nil {
		return nil, err
	}
	defer all.close()
	time.Sleep(time.Duration(o.warm * float64(time.Second)))
	before := all.events.Load()
	took := measured(func() { time.Sleep(time.Duration(o.seconds * float64(time.Second))) })
	return map[string]any{
		"operations": 0, "seconds": took.Seconds(), "errors": all.ended.Load(), "problem": "watches ended",
		"watches": len(all.clients) * informersOptions.watches, "events": all.events.Load() - before, "per_second": 0.0,
	}, nil
}

// runChurn creates count ConfigMaps and deletes them, divided among the connections, while informers watch.
func runChurn(o options) (map[string]any, error) {
	all, err := openInformers(o)
	if err != nil {
		return nil, err
	}
	defer all.close()
	path, value := configMapPath(o.namespace), text(o.size)
	workers := make([]*worker, o.conns)
	share := max(1, o.count/o.conns)
	for n := range workers {
		workers[n] = &worker{}
		if workers[n].c, err = o.target.dial(); err != nil {
			return nil, err
		}
	}
	took := measured(func() {
		var group sync.WaitGroup
		for n, w := range workers {
			group.Add(1)
			go func() { defer group.Done(); w.churn(o, path, value, n, share) }()
		}
		group.Wait()
	})
	var sample []time.Duration
	errors, problem := 0, ""
	for _, w := range workers {
		sample = append(sample, w.sample...)
		errors += w.errors
		problem = max(problem, w.problem)
		w.c.close()
	}
	return map[string]any{
		"operations": len(sample), "seconds": took.Seconds(), "errors": errors, "problem": problem,
		"per_second": float64(len(sample)) / took.Seconds(), "ms": latencies(sample), "events": all.events.Load(),
	}, nil
}

func (w *worker) churn(o options, path, value string, n, share int) {
	var request, body []byte
	for _, method := range []string{"POST", "DELETE"} {
		for i := range share {
			name := fmt.Sprintf("churn-%s-%d-%d", runID, n, i)
			if method == "POST" {
				body = appendConfigMap(body[:0], o.namespace, name, value)
				request = o.target.render(request, method, path, "", body)
			} else {
				request = o.target.render(request, method, path+"/"+name, "", nil)
			}
			start := time.Now()
			status, answer, err := w.c.exchange(request)
			if err != nil || status/100 != 2 {
				w.fail(fmt.Sprintf("%s: status %d %.200s %v", method, status, answer, err))
				return
			}
			w.sample = append(w.sample, time.Since(start))
		}
	}
}

// runFanOut is runWatch with further, idle watchers.
func runFanOut(o options) (map[string]any, error) {
	quiet := o
	quiet.namespace = o.namespace + "-idle"
	if err := ensureNamespace(quiet); err != nil {
		return nil, err
	}
	f := &fanOut{o: quiet}
	f.o.watchers = informersOptions.idle
	version, err := f.resourceVersion()
	if err != nil {
		return nil, err
	}
	if err := f.open(version); err != nil {
		return nil, err
	}
	return runWatch(o)
}
