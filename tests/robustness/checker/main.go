// checker reads a history of operations on registers, and says whether it is linearizable.
//
//	checker HISTORY.jsonl [PICTURE.html]
//
// One operation per line: {"client":1,"key":"r3","kind":"read|write|swap","old":"v1","new":"v2","start":10,"end":20,
// "outcome":"done|refused|unknown","value":"v1"}. Times are nanoseconds. Values are unique, so a resourceVersion stands for
// the value that was read with it. An operation with an unknown outcome may take effect at any later time, or never.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/anishathalye/porcupine"
)

const patience = 5 * time.Minute

type operation struct {
	Client  int    `json:"client"`
	Key     string `json:"key"`
	Kind    string `json:"kind"`
	Old     string `json:"old"`
	New     string `json:"new"`
	Start   int64  `json:"start"`
	End     int64  `json:"end"`
	Outcome string `json:"outcome"`
	Value   string `json:"value"`
}

var registers = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byKey := map[string][]porcupine.Operation{}
		for _, one := range history {
			key := one.Input.(operation).Key
			byKey[key] = append(byKey[key], one)
		}
		parts := make([][]porcupine.Operation, 0, len(byKey))
		for _, part := range byKey {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() interface{} { return "" },
	Step: func(state, input, _ interface{}) (bool, interface{}) {
		value, op := state.(string), input.(operation)
		switch {
		case op.Kind == "read":
			return op.Value == value, value
		case op.Kind == "write":
			return true, op.New
		case op.Outcome == "refused":
			return value != op.Old, value
		case value == op.Old:
			return true, op.New
		default:
			return op.Outcome == "unknown", value
		}
	},
	DescribeOperation: func(input, _ interface{}) string {
		op := input.(operation)
		return fmt.Sprintf("%s %s %s->%s (%s) %s", op.Kind, op.Key, op.Old, op.New, op.Outcome, op.Value)
	},
}

func main() {
	file, err := os.Open(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	var history []porcupine.Operation
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var op operation
		if err := json.Unmarshal(lines.Bytes(), &op); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		end := op.End
		if op.Outcome == "unknown" {
			end = math.MaxInt64
		}
		history = append(history, porcupine.Operation{ClientId: op.Client, Input: op, Call: op.Start, Output: nil, Return: end})
	}
	result, info := porcupine.CheckOperationsVerbose(registers, history, patience)
	fmt.Printf("%d operations: %s\n", len(history), result)
	if result != porcupine.Ok {
		if len(os.Args) > 2 {
			_ = porcupine.VisualizePath(registers, info, os.Args[2])
		}
		os.Exit(1)
	}
}
