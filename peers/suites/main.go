// Command compare reads the reports of controller-runtime's suites, and fails if a test fails or does not run through the gateway that passes on
// the cluster itself. A report is called SUITE-WAY-ROUND.json, where WAY is member, http or tls.
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

// results are the outcomes of all tests of a suite on one way, by the name of the test.
type results struct {
	rounds int
	tests  map[string]*outcomes
}

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
		fmt.Printf("%d tests pass on the cluster itself and not through the gateway: see NEW above\n", wrong)
		os.Exit(1)
	}
	fmt.Println("No test fails through the gateway that passes on the cluster itself.")
}

// run prints a line for each suite and way, and the tests that fail. It returns how many pass on the cluster itself and not through the gateway.
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
			if ways[way].rounds != ways[member].rounds {
				return 0, fmt.Errorf("%s: %d reports of %s and %d of the cluster itself: a suite that ends early writes none, see its log",
					suite, ways[way].rounds, way, ways[member].rounds)
			}
			total := outcomes{}
			for _, test := range ways[way].tests {
				total.passed += test.passed
				total.failed += test.failed
			}
			fmt.Printf("%-15s %-7s %5d passed %4d failed\n", suite, way, total.passed, total.failed)
			wrong += printFailures(ways[member], ways[way])
		}
	}
	return wrong, nil
}

// printFailures prints the tests that fail on a way, and returns how many of them are not as on the cluster itself.
func printFailures(direct, through *results) int {
	wrong := 0
	names := sorted(through.tests)
	for name := range direct.tests {
		if through.tests[name] == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		test := through.tests[name]
		if test == nil {
			test = &outcomes{}
		}
		mark := "    "
		if isNew(direct.tests[name], test) {
			mark = "NEW "
			wrong++
		} else if test.failed == 0 {
			continue
		}
		fmt.Printf("  %s%d failed and %d passed in %d rounds: %s\n", mark, test.failed, test.passed, through.rounds, name)
	}
	return wrong
}

// isNew says whether a test fails through the gateway and never on the cluster itself, or passes there and never through the gateway.
func isNew(direct, through *outcomes) bool {
	if direct == nil {
		return through.failed > 0
	}
	return (direct.failed == 0 && through.failed > 0) || (direct.passed > 0 && through.passed == 0)
}

func readAll(folder string) (map[string]map[string]*results, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no reports in %s", folder)
	}
	suites := map[string]map[string]*results{}
	for _, file := range files {
		parts := strings.Split(strings.TrimSuffix(filepath.Base(file), ".json"), "-")
		if len(parts) != 3 {
			return nil, fmt.Errorf("%s is not called SUITE-WAY-ROUND.json", file)
		}
		suite, way := parts[0], parts[1]
		if suites[suite] == nil {
			suites[suite] = map[string]*results{}
		}
		if suites[suite][way] == nil {
			suites[suite][way] = &results{tests: map[string]*outcomes{}}
		}
		suites[suite][way].rounds++
		if err := read(file, suites[suite][way].tests); err != nil {
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
