package main

import (
	"sync"
	"time"
)

// tally counts operations of several kinds and keeps how long each took.
type tally struct {
	lock     *sync.Mutex
	samples  map[string][]time.Duration
	failures map[string]int
	problem  string
	delays   []time.Duration // from binding a pod until its node hears of it: no operation
}

func newTally() tally {
	return tally{lock: new(sync.Mutex), samples: map[string][]time.Duration{}, failures: map[string]int{}}
}

func (t *tally) add(what string, took time.Duration, err error) {
	t.lock.Lock()
	defer t.lock.Unlock()
	if err == nil {
		t.samples[what] = append(t.samples[what], took)
		return
	}
	t.failures[what]++
	if t.problem == "" {
		t.problem = what + ": " + err.Error()
	}
}

func (t *tally) heardAfter(delay time.Duration) {
	t.lock.Lock()
	defer t.lock.Unlock()
	t.delays = append(t.delays, delay)
}

func (t *tally) result(took time.Duration) map[string]any {
	t.lock.Lock()
	defer t.lock.Unlock()
	kinds := map[string]any{}
	operations, errors := 0, 0
	for what, sample := range t.samples {
		kinds[what] = map[string]any{
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
