// Command compare reads the reports of controller-runtime's suites, and fails if a test fails through the gateway that passes on the cluster
// itself. A report is called SUITE-WAY-ROUND.json, where WAY is member, http or tls.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/onsi/ginkgo/v2/types"

	// The suites. With their tests they are in go.mod; run.sh builds them with `go test -c`.
	_ "sigs.k8s.io/controller-runtime/pkg/cache"
	_ "sigs.k8s.io/controller-runtime/pkg/client"
	_ "sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	_ "sigs.k8s.io/controller-runtime/pkg/source"
)

// member is the way without a gateway.
const member = "member"

// outcomes counts the results of one test on one way.
type outcomes struct{ passed, failed int }

// results are the outcomes of all tests of a suite: by way, then by the name of the test.
type results map[string]map[string]*outcomes

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: compare FOLDER, with reports SUITE-WAY-ROUND.json")
		os.Exit(2)
	}
	wrong, err := run(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(2)
	}
	if wrong > 0 {
		fmt.Printf("%d tests fail through the gateway and never on the cluster itself\n", wrong)
		os.Exit(1)
	}
	fmt.Println("No test fails through the gateway that passes on the cluster itself.")
}

// run prints a line for each suite and way, and the tests that fail. It returns how many fail through the gateway only.
func run(folder string) (int, error) {
	suites, err := readAll(folder)
	if err != nil {
		return 0, err
	}
	wrong := 0
	for _, suite := range sorted(suites) {
		ways := suites[suite]
		if len(ways) < 2 || ways[member] == nil {
			return 0, fmt.Errorf("%s: there are no reports of the cluster itself and of the gateway", suite)
		}
		for _, way := range sorted(ways) {
			total := outcomes{}
			for _, test := range ways[way] {
				total.passed += test.passed
				total.failed += test.failed
			}
			fmt.Printf("%-15s %-7s %5d passed %4d failed\n", suite, way, total.passed, total.failed)
			wrong += printFailures(ways, way)
		}
	}
	return wrong, nil
}

// printFailures prints the tests that fail on a way, and returns how many of them never fail on the cluster itself.
func printFailures(ways results, way string) int {
	wrong := 0
	for _, name := range sorted(ways[way]) {
		test := ways[way][name]
		if test.failed == 0 {
			continue
		}
		there := ways[member][name]
		mark := "    "
		if there == nil || there.failed == 0 {
			mark = "NEW "
			wrong++
		}
		fmt.Printf("  %s%d of %d: %s\n", mark, test.failed, test.passed+test.failed, name)
	}
	return wrong
}

func readAll(folder string) (map[string]results, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("no reports in %s: %w", folder, err)
	}
	suites := map[string]results{}
	for _, file := range files {
		parts := strings.Split(strings.TrimSuffix(filepath.Base(file), ".json"), "-")
		if len(parts) != 3 {
			return nil, fmt.Errorf("%s is not called SUITE-WAY-ROUND.json", file)
		}
		suite, way := parts[0], parts[1]
		if suites[suite] == nil {
			suites[suite] = results{}
		}
		if suites[suite][way] == nil {
			suites[suite][way] = map[string]*outcomes{}
		}
		if err := read(file, suites[suite][way]); err != nil {
			return nil, err
		}
	}
	return suites, nil
}

func read(file string, tests map[string]*outcomes) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var reports []types.Report
	if err := json.Unmarshal(text, &reports); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	for _, report := range reports {
		for _, spec := range report.SpecReports {
			skipped := spec.State.Is(types.SpecStateSkipped | types.SpecStatePending)
			// The nodes around all tests count where they fail.
			around := spec.LeafNodeType != types.NodeTypeIt && !spec.Failed()
			if skipped || around {
				continue
			}
			name := spec.FullText()
			if name == "" {
				name = spec.LeafNodeType.String()
			}
			if tests[name] == nil {
				tests[name] = &outcomes{}
			}
			if spec.Failed() {
				tests[name].failed++
			} else {
				tests[name].passed++
			}
		}
	}
	return nil
}

func sorted[V any](values map[string]V) []string {
	keys := make([]string, 0, len(values))
	for key := range values {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
