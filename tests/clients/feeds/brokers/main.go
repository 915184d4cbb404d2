// Command kafka runs kfake, which speaks Kafka's protocol in memory, on a port until its stdin is closed.
//
//	kafka PORT TOPIC [TOPIC …]
package main

import (
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/twmb/franz-go/pkg/kfake"
)

func main() {
	port, err := strconv.Atoi(os.Args[1])
	if err != nil {
		fail(err)
	}
	cluster, err := kfake.NewCluster(kfake.Ports(port), kfake.NumBrokers(1), kfake.SeedTopics(2, os.Args[2:]...))
	if err != nil {
		fail(err)
	}
	defer cluster.Close()
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
