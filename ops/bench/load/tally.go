package main

import (
	"sync"
	"time"
)

// tally collects the latencies and failures of operations by kind.
type tally struct {
	lock     *sync.Mutex
	samples  map[string][]time.Duration
	failures map[string]int
	problem  string
	delays   []time.Duration // from binding a pod to its node's watch event; not an operation
}

func newTally() tally {
	return tally{lock: new(sync.Mutex), samples: map[string][]time.Duration{}, failures: map[string]int{}}
}

func (t *tally) add(kind string, took time.Duration, err error) {
	t.lock.Lock()
	defer t.lock.Unlock()
	if err == nil {
		t.samples[kind] = append(t.samples[kind], took)
		return
	}
	t.failures[kind]++
	if t.problem == "" {
		t.problem = kind + ": " + err.Error()
	}
}

func (t *tally) addDelay(delay time.Duration) {
	t.lock.Lock()
	defer t.lock.Unlock()
	t.delays = append(t.delays, delay)
}

func (t *tally) result(took time.Duration) map[string]any {
	t.lock.Lock()
	defer t.lock.Unlock()
	kinds := map[string]any{}
	operations, errors := 0, 0
	for kind, sample := range t.samples {
		kinds[kind] = map[string]any{
			"operations": len(sample), "per_second": float64(len(sample)) / took.Seconds(), "ms": latencies(sample),
		}
		operations += len(sample)
	}
	for _, count := range t.failures {
		errors += count
	}
	return map[string]any{
		"operations": operations, "seconds": took.Seconds(), "errors": errors, "failures": t.failures, "problem": t.problem,
		"per_second": float64(operations) / took.Seconds(), "kinds": kinds,
		"heard_ms": latencies(t.delays),
	}
}
