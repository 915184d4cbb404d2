package main

// Two loads for one server, from two processes: "steady" are the nodes and people that must not suffer, "noisy" is one
// client with many connections that lists everything as fast as it can. All users are impersonated, so that the server
// needs no further credentials.

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

var fairness struct {
	nodes, users int
	interval     time.Duration
}

func init() {
	modes["steady"], modes["noisy"] = runSteady, runNoisy
	flag.IntVar(&fairness.nodes, "steady-nodes", 50, "steady: nodes that renew their Leases")
	flag.IntVar(&fairness.users, "steady-users", 5, "steady: people that get a short list")
	flag.DurationVar(&fairness.interval, "interval", time.Second, "steady: time between two requests of each")
}

// as sends a request as another user, and discards the body of the answer. It returns the number of its bytes.
func (c *client) as(ctx context.Context, user string, groups []string, method, path string, body []byte) (int64, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	request.Header.Set("Authorization", "Bearer "+c.token)
	request.Header.Set("Accept", "application/json")
	request.Header.Set("Content-Type", "application/json")
	if method == "PATCH" {
		request.Header.Set("Content-Type", "application/merge-patch+json")
	}
	request.Header.Set("Impersonate-User", user)
	for _, group := range groups {
		request.Header.Add("Impersonate-Group", group)
	}
	answer, err := c.http.Do(request)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	size, err := io.Copy(io.Discard, answer.Body)
	if err == nil && answer.StatusCode/100 != 2 {
		err = &refusal{status: answer.StatusCode, text: fmt.Sprintf("%s %s: %d", method, path, answer.StatusCode)}
	}
	return size, err
}

// samples are the latencies and the errors of one kind of request.
type samples struct {
	sync.Mutex
	took   []time.Duration
	failed map[string]int
}

func (s *samples) add(took time.Duration, err error) {
	s.Lock()
	defer s.Unlock()
	if err == nil {
		s.took = append(s.took, took)
		return
	}
	if s.failed == nil {
		s.failed = map[string]int{}
	}
	s.failed[err.Error()]++
}

func (s *samples) result(seconds float64) map[string]any {
	s.Lock()
	defer s.Unlock()
	return map[string]any{"operations": len(s.took), "per_second": float64(len(s.took)) / seconds, "failed": s.failed,
		"ms": latencies(s.took)}
}

func allowEverybody(o options) error {
	const path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
	body := []byte(`{"metadata":{"name":"bench-fairness"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole",` +
		`"name":"cluster-admin"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"Group","name":"bench"}]}`)
	_, err := o.target.client(true).do(context.Background(), "POST", path, "application/json", "application/json", body)
	var refused *refusal
	if errors.As(err, &refused) && refused.status == 409 {
		return nil
	}
	return err
}

func runSteady(o options) (map[string]any, error) {
	if err := allowEverybody(o); err != nil {
		return nil, err
	}
	var leases, reads samples
	ctx := context.Background()
	var group sync.WaitGroup
	start := time.Now()
	measuredFrom := start.Add(time.Duration(o.warm * float64(time.Second)))
	until := measuredFrom.Add(time.Duration(o.seconds * float64(time.Second)))
	each := func(number, of int, into *samples, step func(ctx context.Context, c *client) error) {
		group.Add(1)
		go func() {
			defer group.Done()
			c := o.target.client(true)
			defer c.close()
			next := start.Add(fairness.interval * time.Duration(number) / time.Duration(of))
			for ; next.Before(until); next = next.Add(fairness.interval) {
				time.Sleep(time.Until(next))
				began := time.Now()
				limited, cancel := context.WithTimeout(ctx, exchangeTimeout)
				err := step(limited, c)
				cancel()
				if began.After(measuredFrom) {
					into.add(time.Since(began), err)
				}
			}
		}()
	}
	for number := range fairness.nodes {
		name := fmt.Sprintf("steady-%03d", number)
		lease := fmt.Appendf(nil, `{"metadata":{"name":%q},"spec":{"holderIdentity":%q,"leaseDurationSeconds":40}}`, name, name)
		user, groups := "system:node:"+name, []string{"system:nodes", "system:authenticated"}
		path := "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
		made := false
		each(number, fairness.nodes, &leases, func(ctx context.Context, c *client) error {
			var err error
			if !made {
				if _, err = c.as(ctx, user, groups, "POST", path, lease); err == nil || isConflict(err) {
					made = true
				}
				return nil
			}
			renewed := fmt.Appendf(nil, `{"spec":{"renewTime":%q}}`, time.Now().UTC().Format("2006-01-02T15:04:05.000000Z"))
			_, err = c.as(ctx, user, groups, "PATCH", path+"/"+name, renewed)
			return err
		})
	}
	for number := range fairness.users {
		user := fmt.Sprintf("person-%d", number)
		each(number, fairness.users, &reads, func(ctx context.Context, c *client) error {
			_, err := c.as(ctx, user, []string{"bench", "system:authenticated"}, "GET", "/api/v1/namespaces/kube-system/pods", nil)
			return err
		})
	}
	group.Wait()
	return map[string]any{"operations": len(leases.took) + len(reads.took), "seconds": o.seconds, "errors": 0, "problem": "",
		"leases": leases.result(o.seconds), "people": reads.result(o.seconds)}, nil
}

func isConflict(err error) bool {
	var refused *refusal
	return errors.As(err, &refused) && refused.status == 409
}

func runNoisy(o options) (map[string]any, error) {
	if err := allowEverybody(o); err != nil {
		return nil, err
	}
	var lists samples
	var size int64
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration((o.warm+o.seconds)*float64(time.Second)))
	defer cancel()
	var group sync.WaitGroup
	for range o.conns {
		group.Add(1)
		go func() {
			defer group.Done()
			c := o.target.client(true)
			defer c.close()
			for ctx.Err() == nil {
				began := time.Now()
				got, err := c.as(ctx, "noisy", []string{"bench", "system:authenticated"}, "GET", o.collection()+"?"+o.query, nil)
				if ctx.Err() == nil {
					lists.add(time.Since(began), err)
				}
				if err != nil { // a client that keeps to Retry-After, in its shortest form
					time.Sleep(time.Second)
				} else {
					size = got
				}
			}
		}()
	}
	group.Wait()
	result := lists.result(o.warm + o.seconds)
	result["seconds"], result["bytes"], result["errors"], result["problem"] = o.seconds, size, 0, ""
	return result, nil
}
