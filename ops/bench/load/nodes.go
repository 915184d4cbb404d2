package main

// Mode nodes: the requests of a cluster's nodes. Each node is a client with one HTTP/2 connection, unless -http1. It
// renews its Lease every 10 s (a PUT in protobuf, as kubelets send it), patches its Node's status every 5 min, and
// watches its pods, its Node and the services. Pods are created and bound, get status from their node, and are deleted
// gracefully. A few observers watch all objects, as scheduler and controller manager do.
//
// Output: {"phase":"filled"} after all objects are created; then as every mode.

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

const (
	renewEvery  = 10 * time.Second
	statusEvery = 5 * time.Minute
	asJSON      = "application/json"
	asMerge     = "application/strategic-merge-patch+json"
	listed      = "LISTED"
)

var nodesOptions struct {
	nodes     int
	pods      int
	observers int
	compress  float64
	podLife   float64
	name      string
	existing  bool
}

func init() {
	flag.IntVar(&nodesOptions.nodes, "nodes", 100, "nodes: number of nodes, one connection each")
	flag.IntVar(&nodesOptions.pods, "pods-per-node", 30, "nodes: pods on each")
	flag.IntVar(&nodesOptions.observers, "observers", 2, "nodes: clients that watch all pods, nodes and leases")
	flag.Float64Var(&nodesOptions.compress, "compress", 1, "nodes: multiple of the normal rate")
	flag.Float64Var(&nodesOptions.podLife, "pod-life", 7200, "nodes: seconds from a pod's creation to its deletion")
	flag.StringVar(&nodesOptions.name, "name", runID, "nodes: part of the names of nodes and their first pods")
	flag.BoolVar(&nodesOptions.existing, "existing", false, "nodes: the objects of these names exist")
	modes["nodes"] = runNodes
}

type cluster struct {
	o       options
	nodes   []*node
	tally   tally
	ctx     context.Context
	pending atomic.Int64 // pods that are starting or ending
	events  atomic.Int64
	watches sync.WaitGroup
	beating sync.WaitGroup
}

type node struct {
	cluster  *cluster
	name     string
	uid      string
	c        *client
	metadata []byte // of its Lease, in the last response

	lock    sync.Mutex
	pods    []string
	bound   map[string]time.Time // pods without a watch event yet
	leaving map[string]bool      // pods that are ending
}

func runNodes(o options) (map[string]any, error) {
	ctx, cancel := context.WithCancel(context.Background())
	k := &cluster{o: o, ctx: ctx, tally: newTally()}
	defer k.watches.Wait()
	defer cancel()
	began := time.Now()
	if err := k.fill(); err != nil {
		return nil, err
	}
	filled := time.Since(began)
	emit(map[string]any{"phase": "filled"})
	if err := k.connect(); err != nil {
		return nil, err
	}
	time.Sleep(time.Duration(o.warm * float64(time.Second)))
	var lost int64
	took := measured(func() {
		stop, halt := context.WithTimeout(ctx, time.Duration(o.seconds*float64(time.Second)))
		defer halt()
		lost = k.live(stop)
	})
	result := k.tally.result(took)
	result["lost"], result["errors"] = lost, result["errors"].(int)+int(lost)
	result["events"], result["fill_seconds"] = k.events.Load(), filled.Seconds()
	result["nodes"], result["pods"] = nodesOptions.nodes, nodesOptions.nodes*nodesOptions.pods
	return result, nil
}

// live sends the requests of nodes and pods until stop ends and no pod is pending. It returns the number of pods still
// pending after drainTimeout.
func (k *cluster) live(stop context.Context) int64 {
	for _, n := range k.nodes {
		k.beating.Add(2)
		go n.beat(stop, renewEvery, n.renew)
		go n.beat(stop, statusEvery, n.report)
	}
	k.churn(stop)
	k.beating.Wait()
	for since := time.Now(); k.pending.Load() > 0 && time.Since(since) < drainTimeout; {
		time.Sleep(time.Millisecond)
	}
	return k.pending.Load()
}

// connect opens each node's connection and watches, and the observers'.
func (k *cluster) connect() error {
	for range nodesOptions.observers {
		c := k.o.target.client(informersOptions.http1)
		for _, path := range []string{"/api/v1/pods", "/api/v1/nodes", "/apis/coordination.k8s.io/v1/leases"} {
			if err := k.watch(c, path+"?", nil); err != nil {
				return err
			}
		}
	}
	return inParallel(len(k.nodes), dialsAtOnce, func(i int) error {
		n := k.nodes[i]
		n.c = k.o.target.client(informersOptions.http1)
		if err := k.watch(n.c, "/api/v1/pods?fieldSelector=spec.nodeName%3D"+n.name+"&", n.handlePod); err != nil {
			return err
		}
		if err := k.watch(n.c, "/api/v1/nodes?fieldSelector=metadata.name%3D"+n.name+"&", nil); err != nil {
			return err
		}
		if err := k.watch(n.c, "/api/v1/services?", nil); err != nil {
			return err
		}
		lease, err := n.c.do(k.ctx, "GET", n.leasePath(), protobuf, "", nil)
		n.metadata = member(raw(lease), 1)
		return err
	})
}

// watch lists and watches. A watch that ends early counts as a failure and is restarted. handle is called for each event,
// and for each listed object with the kind listed.
func (k *cluster) watch(c *client, path string, handle func(string, object)) error {
	list, err := c.do(k.ctx, "GET", path+"resourceVersion=0", protobuf, "", nil)
	if err != nil {
		return err
	}
	version := string(member(member(raw(list), 1), 2))
	if handle != nil {
		_ = walk(raw(list), func(number uint64, item []byte) {
			if number == 2 {
				handle(listed, identify(item))
			}
		})
	}
	k.watches.Add(1)
	go func() {
		defer k.watches.Done()
		for k.ctx.Err() == nil {
			begun, length := time.Now(), lasting()
			query := fmt.Sprintf("%swatch=true&allowWatchBookmarks=true&timeoutSeconds=%.0f&resourceVersion=%s", path, length.Seconds(), version)
			answer, err := c.open(k.ctx, "GET", query, protobuf+";stream=watch", "", nil)
			if err == nil && answer.StatusCode != 200 {
				err = fmt.Errorf("watch: status %d", answer.StatusCode)
			}
			if err == nil {
				err = events(answer.Body, func(kind string, o object) {
					k.events.Add(1)
					version = o.version
					if handle != nil {
						handle(kind, o)
					}
				})
				answer.Body.Close()
			}
			if k.ctx.Err() == nil && time.Since(begun) < length-time.Second {
				k.tally.add("watch", 0, fmt.Errorf("a watch of %s ended: %w", path, err))
				time.Sleep(time.Second)
			}
		}
	}()
	return nil
}

// beat calls action once per period, with a random offset; calls never overlap.
func (n *node) beat(ctx context.Context, period time.Duration, action func()) {
	defer n.cluster.beating.Done()
	period = time.Duration(float64(period) / nodesOptions.compress)
	next := time.NewTimer(rand.N(period))
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
			next.Reset(period)
			action()
		}
	}
}

func (n *node) leasePath() string {
	return "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/" + n.name
}

func (n *node) renew() {
	began := time.Now()
	answer, err := n.c.do(n.cluster.ctx, "PUT", n.leasePath(), protobuf, protobuf, lease(n.metadata, n.name, began))
	n.cluster.tally.add("lease", time.Since(began), err)
	var refused *refusal
	if errors.As(err, &refused) && refused.status == 409 {
		answer, err = n.c.do(n.cluster.ctx, "GET", n.leasePath(), protobuf, "", nil)
	}
	if err == nil {
		n.metadata = member(raw(answer), 1)
	}
}

func (n *node) report() {
	began := time.Now()
	_, err := n.c.do(n.cluster.ctx, "PATCH", "/api/v1/nodes/"+n.name+"/status", protobuf, asMerge, nodeConditions(began))
	n.cluster.tally.add("node status", time.Since(began), err)
}

// handlePod reacts to an event of one of the node's pods as a kubelet does.
func (n *node) handlePod(kind string, pod object) {
	n.lock.Lock()
	if kind == listed && nodesOptions.existing && !pod.deleting {
		n.pods = append(n.pods, pod.name) // an earlier run may have replaced some of the first pods
	}
	since, awaited := n.bound[pod.name]
	delete(n.bound, pod.name)
	n.lock.Unlock()
	switch {
	case awaited:
		n.cluster.tally.addDelay(time.Since(since))
		go n.begin(pod, since)
	case kind == "MODIFIED" && pod.deleting && !n.startEnd(pod.name):
		go n.end(pod)
	}
}

func (n *node) begin(pod object, since time.Time) {
	path := n.cluster.podPath(pod.name)
	n.patch(path, podStatus(n, pod, "Pending", since))
	n.patch(path, podStatus(n, pod, "Running", since))
	for _, reason := range []string{"Pulled", "Created", "Started"} {
		n.cluster.event(n.c, pod.name, reason)
	}
	n.cluster.pending.Add(-1)
}

func (n *node) end(pod object) {
	path := n.cluster.podPath(pod.name)
	n.patch(path, podStatus(n, pod, "Succeeded", time.Now()))
	n.cluster.event(n.c, pod.name, "Killing")
	body := fmt.Sprintf(`{"gracePeriodSeconds":0,"preconditions":{"uid":%q}}`, pod.uid)
	started := time.Now()
	_, err := n.c.do(n.cluster.ctx, "DELETE", path, protobuf, asJSON, []byte(body))
	n.cluster.tally.add("pod delete", time.Since(started), err)
	n.cluster.pending.Add(-1)
}

// startEnd marks a pod as ending, and returns whether it was marked: its status updates are events, too.
func (n *node) startEnd(name string) bool {
	n.lock.Lock()
	defer n.lock.Unlock()
	was := n.leaving[name]
	n.leaving[name] = true
	return was
}

func (n *node) patch(path string, body []byte) {
	started := time.Now()
	_, err := n.c.do(n.cluster.ctx, "PATCH", path+"/status", protobuf, asMerge, body)
	var refused *refusal
	if errors.As(err, &refused) && refused.status == 404 {
		return // the pod was removed meanwhile; a kubelet ignores this, too
	}
	n.cluster.tally.add("pod status", time.Since(started), err)
}

func (k *cluster) podPath(name string) string {
	return "/api/v1/namespaces/" + k.o.namespace + "/pods/" + name
}

func (k *cluster) event(c *client, pod, reason string) {
	started := time.Now()
	_, err := c.do(k.ctx, "POST", "/api/v1/namespaces/"+k.o.namespace+"/events", protobuf, asJSON,
		eventBody(k.o.namespace, pod, reason, started))
	k.tally.add("event", time.Since(started), err)
}

// churn replaces pods, one node after another, at the rate for -pod-life.
func (k *cluster) churn(ctx context.Context) {
	rate := float64(nodesOptions.nodes*nodesOptions.pods) / nodesOptions.podLife * nodesOptions.compress
	if rate <= 0 {
		<-ctx.Done()
		return
	}
	c := k.o.target.client(informersOptions.http1)
	defer c.close()
	ticks := time.NewTicker(time.Duration(float64(time.Second) / rate))
	defer ticks.Stop()
	var group sync.WaitGroup
	slots := make(chan struct{}, 64)
	defer group.Wait()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		slots <- struct{}{}
		group.Add(1)
		go func() {
			defer func() { <-slots; group.Done() }()
			k.replace(c, k.nodes[i*7919%len(k.nodes)], fmt.Sprintf("pod-%s-%d", runID, i))
		}()
	}
}

func (k *cluster) replace(c *client, n *node, name string) {
	n.lock.Lock()
	var oldest string
	if len(n.pods) > 0 {
		oldest, n.pods = n.pods[0], n.pods[1:]
	}
	n.lock.Unlock()
	call := func(kind, method, path string, body []byte) bool {
		started := time.Now()
		_, err := c.do(k.ctx, method, path, protobuf, asJSON, body)
		k.tally.add(kind, time.Since(started), err)
		return err == nil
	}
	if oldest != "" {
		k.pending.Add(1)
		if !call("pod delete", "DELETE", k.podPath(oldest), nil) {
			k.pending.Add(-1)
		}
	}
	if !call("pod create", "POST", k.podPath("")[:len(k.podPath(""))-1], podBody(k.o.namespace, name, "")) {
		return
	}
	k.pending.Add(1)
	n.lock.Lock()
	n.bound[name] = time.Now()
	n.lock.Unlock()
	if !call("pod bind", "POST", k.podPath(name)+"/binding", bindingBody(k.o.namespace, name, n.name)) {
		k.pending.Add(-1)
		return
	}
	n.lock.Lock()
	n.pods = append(n.pods, name) // not before: a pod without a node is deleted at once, without an event for a node
	n.lock.Unlock()
	k.event(c, name, "Scheduled")
}
