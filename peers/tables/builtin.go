package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration"
	aggregator "k8s.io/kube-aggregator/pkg/apis/apiregistration/install"
	apiservices "k8s.io/kube-aggregator/pkg/registry/apiservice/etcd"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/admissionregistration/install"
	_ "k8s.io/kubernetes/pkg/apis/apiserverinternal/install"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	_ "k8s.io/kubernetes/pkg/apis/autoscaling/install"
	_ "k8s.io/kubernetes/pkg/apis/batch/install"
	_ "k8s.io/kubernetes/pkg/apis/certificates/install"
	_ "k8s.io/kubernetes/pkg/apis/coordination/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/discovery/install"
	_ "k8s.io/kubernetes/pkg/apis/events/install"
	_ "k8s.io/kubernetes/pkg/apis/flowcontrol/install"
	_ "k8s.io/kubernetes/pkg/apis/networking/install"
	_ "k8s.io/kubernetes/pkg/apis/node/install"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	_ "k8s.io/kubernetes/pkg/apis/rbac/install"
	_ "k8s.io/kubernetes/pkg/apis/resource/install"
	_ "k8s.io/kubernetes/pkg/apis/scheduling/install"
	_ "k8s.io/kubernetes/pkg/apis/storage/install"
	_ "k8s.io/kubernetes/pkg/apis/storagemigration/install"
	"k8s.io/kubernetes/pkg/printers"
	printersinternal "k8s.io/kubernetes/pkg/printers/internalversion"
	printerstorage "k8s.io/kubernetes/pkg/printers/storage"
	"sigs.k8s.io/yaml"
)

// The moment that the recorded objects are printed at. Printers take the machine's clock, so each object is made twice: with
// times of today to be printed, and with times before this moment to be recorded.
var recordedNow = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

// What is recorded of one object.
type row struct {
	Now        string          `json:"now"`
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"`
	Columns    []column        `json:"columns"`
	Cells      []any           `json:"cells"`
	Conditions []any           `json:"conditions,omitempty"`
	Object     json.RawMessage `json:"object"`
}

type column struct {
	Name     string `json:"name"`
	Type     string `json:"type"`
	Format   string `json:"format"`
	Priority int32  `json:"priority"`
}

func builtin(emit func(any)) error {
	aggregator.Install(legacyscheme.Scheme)
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	for _, document := range strings.Split(string(text), "\n---\n") {
		if strings.TrimSpace(document) == "" {
			continue
		}
		recorded, err := record(document)
		if err != nil {
			return fmt.Errorf("%w in\n%s", err, document)
		}
		emit(recorded)
	}
	return nil
}

func record(document string) (*row, error) {
	printed, version, err := parse(document, time.Now())
	if err != nil {
		return nil, err
	}
	table, err := convertor(version).ConvertToTable(context.Background(), printed, nil)
	if err != nil {
		return nil, err
	}
	kept, _, err := parse(document, recordedNow)
	if err != nil {
		return nil, err
	}
	external, err := legacyscheme.Scheme.ConvertToVersion(kept, version.GroupVersion())
	if err != nil {
		return nil, err
	}
	object, err := json.Marshal(external)
	if err != nil {
		return nil, err
	}
	recorded := &row{
		Now: recordedNow.Format(time.RFC3339), APIVersion: version.GroupVersion().String(), Kind: version.Kind,
		Cells: table.Rows[0].Cells, Object: object,
	}
	for _, condition := range table.Rows[0].Conditions {
		recorded.Conditions = append(recorded.Conditions, condition)
	}
	for _, c := range table.ColumnDefinitions {
		recorded.Columns = append(recorded.Columns, column{c.Name, c.Type, c.Format, c.Priority})
	}
	return recorded, nil
}

// The object as a server has it in memory: with its defaults, in the internal version.
func parse(document string, now time.Time) (runtime.Object, schema.GroupVersionKind, error) {
	text, err := yaml.YAMLToJSON([]byte(withTimes(document, now)))
	if err != nil {
		return nil, schema.GroupVersionKind{}, err
	}
	object, version, err := legacyscheme.Codecs.UniversalDeserializer().Decode(text, nil, nil)
	if err != nil {
		return nil, schema.GroupVersionKind{}, err
	}
	legacyscheme.Scheme.Default(object)
	internal, err := legacyscheme.Scheme.ConvertToVersion(object, schema.GroupVersion{Group: version.Group, Version: runtime.APIVersionInternal})
	return internal, *version, err
}

var ago = regexp.MustCompile(`AGO\(([0-9]+)([smhdy])\)`)
var agoMicro = regexp.MustCompile(`MICROAGO\(([0-9]+)([smhdy])\)`)

// Puts a time in the place of AGO(5h). Some seconds are added, so that the age does not change while the program runs.
func withTimes(document string, now time.Time) string {
	at := func(text string, pattern *regexp.Regexp, layout string) string {
		parts := pattern.FindStringSubmatch(text)
		unit := map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour, "y": 365 * 24 * time.Hour}[parts[2]]
		var count int
		fmt.Sscan(parts[1], &count)
		return now.Add(-time.Duration(count)*unit - 20*time.Second).UTC().Format(layout)
	}
	document = agoMicro.ReplaceAllStringFunc(document, func(text string) string { return at(text, agoMicro, "2006-01-02T15:04:05.000000Z") })
	return ago.ReplaceAllStringFunc(document, func(text string) string { return at(text, ago, time.RFC3339) })
}

var generator = printerstorage.TableConvertor{TableGenerator: printers.NewTableGenerator().With(printersinternal.AddHandlers)}

// The kinds that kube-apiserver prints with the columns of kinds that have none.
var defaults = map[schema.GroupKind]bool{
	{Group: "", Kind: "LimitRange"}:                           true,
	{Group: "rbac.authorization.k8s.io", Kind: "Role"}:        true,
	{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole"}: true,
	{Group: "storage.k8s.io", Kind: "CSIStorageCapacity"}:     true,
}

func convertor(version schema.GroupVersionKind) rest.TableConvertor {
	switch {
	case version.Group == apiregistration.GroupName:
		return &apiservices.REST{}
	case defaults[version.GroupKind()]:
		return rest.NewDefaultTableConvertor(schema.GroupResource{Group: version.Group, Resource: version.Kind})
	default:
		return generator
	}
}
