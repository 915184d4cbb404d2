package main

// Mode hour: the requests of an idle cluster, at a multiple of their rate. Nodes renew Leases, report status, and have a
// few pods that come and go, as in mode nodes. Components renew the Lease of their leader election. Informers restart
// ended watches. A mark {"phase":"minute N"} after each minute lets the caller sample memory.

import (
	"context"
	"fmt"
	"time"
)

const (
	elections   = 10 // scheduler, controller managers, operators
	retryPeriod = 2 * time.Second
)

func init() { modes["hour"] = runHour }

func runHour(o options) (map[string]any, error) {
	ctx, cancel := context.WithCancel(context.Background())
	k := &cluster{o: o, ctx: ctx, tally: newTally()}
	defer k.watches.Wait()
	defer cancel()
	if err := k.fill(); err != nil {
		return nil, err
	}
	if err := k.connect(); err != nil {
		return nil, err
	}
	candidates, err := k.candidates()
	if err != nil {
		return nil, err
	}
	all, err := openInformers(o)
	if err != nil {
		return nil, err
	}
	defer all.close()
	time.Sleep(time.Duration(o.warm * float64(time.Second)))
	took := measured(func() {
		stop, halt := context.WithTimeout(ctx, time.Duration(o.seconds*float64(time.Second)))
		defer halt()
		go marks(stop)
		for _, n := range candidates {
			k.beating.Add(1)
			go n.beat(stop, retryPeriod, n.renewElection)
		}
		k.live(stop)
	})
	result := k.tally.result(took)
	ended := all.ended.Load()
	if ended > 0 {
		result["problem"] = fmt.Sprintf("%d watches of informers ended early. %s", ended, result["problem"])
	}
	result["errors"] = result["errors"].(int) + int(ended)
	result["watches"], result["turned"], result["listed"] = len(all.clients)*informersOptions.watches, all.turned.Load(), all.listed.Load()
	result["events"] = k.events.Load() + all.events.Load()
	return result, nil
}

// marks writes a mark after each minute.
func marks(ctx context.Context) {
	minutes := time.NewTicker(time.Minute)
	defer minutes.Stop()
	for minute := 1; ; minute++ {
		select {
		case <-ctx.Done():
			return
		case <-minutes.C:
			emit(map[string]any{"phase": fmt.Sprintf("minute %d", minute)})
		}
	}
}

// candidates returns the components' clients. Each holds a Lease.
func (k *cluster) candidates() ([]*node, error) {
	var made []*node
	for i := range elections {
		n := &node{cluster: k, name: fmt.Sprintf("election-%s-%d", runID, i), c: k.o.target.client(informersOptions.http1)}
		body := fmt.Appendf(nil, `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":%q},"spec":`+
			`{"holderIdentity":%q,"leaseDurationSeconds":15}}`, n.name, n.name)
		if _, err := n.c.do(k.ctx, "POST", electionPath, protobuf, asJSON, body); err != nil {
			return nil, err
		}
		made = append(made, n)
	}
	return made, nil
}

const electionPath = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"

func (n *node) renewElection() {
	began := time.Now()
	body := fmt.Appendf(nil, `{"spec":{"renewTime":%q}}`, began.UTC().Format("2006-01-02T15:04:05.000000Z"))
	_, err := n.c.do(n.cluster.ctx, "PATCH", electionPath+"/"+n.name, protobuf, "application/merge-patch+json", body)
	n.cluster.tally.add("election", time.Since(began), err)
}
