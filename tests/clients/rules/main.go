// Check files for Prometheus as it does: rules by its own loader, and the queries of a dashboard by its parser. Prints the
// names of all metrics that they select, one a line.
package main

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"sort"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

type dashboard struct {
	Panels []struct {
		Title   string
		Targets []struct{ Expr string }
	}
}

func main() {
	names := map[string]bool{}
	groups, problems := rulefmt.ParseFile(os.Args[1], false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.Default())
	for _, problem := range problems {
		fail("%v", problem)
	}
	for _, group := range groups.Groups {
		for _, rule := range group.Rules {
			collect(rule.Expr, names)
		}
	}
	text, err := os.ReadFile(os.Args[2])
	if err != nil {
		fail("%v", err)
	}
	var found dashboard
	if err := json.Unmarshal(text, &found); err != nil {
		fail("%s: %v", os.Args[2], err)
	}
	for _, panel := range found.Panels {
		for _, target := range panel.Targets {
			collect(strings.ReplaceAll(target.Expr, "$job", "job"), names)
		}
	}
	sorted := make([]string, 0, len(names))
	for name := range names {
		sorted = append(sorted, name)
	}
	sort.Strings(sorted)
	fmt.Println(strings.Join(sorted, "\n"))
}

func collect(text string, names map[string]bool) {
	parsed, err := parser.NewParser(parser.Options{}).ParseExpr(text)
	if err != nil {
		fail("%s: %v", text, err)
	}
	for _, path := range parser.ExtractSelectors(parsed) {
		for _, matcher := range path {
			if matcher.Name == "__name__" {
				names[matcher.Value] = true
			}
		}
	}
}

func fail(format string, arguments ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", arguments...)
	os.Exit(1)
}
