package main

import (
	"fmt"
	"net/http"
	"time"
)

// logOf writes a line of the log, and with follow=true three more each second until the client leaves.
func logOf(w http.ResponseWriter, req *http.Request) {
	flusher := w.(http.Flusher)
	w.Header().Set("Transfer-Encoding", "chunked")
	ticks := time.NewTicker(time.Second / 3)
	defer ticks.Stop()
	for number := 0; ; number++ {
		if _, err := fmt.Fprintf(w, "line %d\n", number); err != nil {
			return
		}
		flusher.Flush()
		if req.URL.Query().Get("follow") != "true" {
			return
		}
		select {
		case <-ticks.C:
		case <-req.Context().Done():
			return
		}
	}
}
