package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand"
	"strings"
	"time"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource/tableconvertor"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/registry/rest"
)

// The types that a printer column may have; each path is tried with all of them.
var types = []string{"string", "integer", "number", "boolean", "date"}

// The objects that paths are tried on. Maps that a wildcard may meet have one entry: Go goes through maps in any order.
var objects = []string{
	`{"metadata": {"name": "a", "annotations": {"lab.test/x": "note", "plain": "p", "it's": "q"}},
	  "spec": {"items": [{"name": "i1", "n": 1, "f": 1.5, "on": true}, {"name": "i2", "n": 2, "f": 2.5, "flag": true, "on": false}, {"name": "i)]3", "n": 3, "flag": null, "deep": {"inner": "x"}}],
	           "q": {"inner": "deep"}, "size": 7, "half": 1.5, "text": "7", "whole": 2.0, "no": false, "yes": true, "none": null,
	           "big": 9223372036854775807, "bigger": 18446744073709551615, "tiny": 0.00001, "huge": 1e21, "wide": 123456789.25, "minus": -3, "exp": 1e20,
	           "empty": "", "list": [1, 2, 3, 4, 5], "texts": ["b", "a", "<&>"], "nested": [[1, 2], [3], []], "mixed": [1, "x", null, true, 1.5, {"k": "v"}],
	           "map": {"k": {"z": 1, "a": "<>"}}, "void": {}, "unicode": "é\u2028\n", "quotes": "a\"b'c"},
	  "status": {"conditions": [{"type": "A", "status": "True", "at": "AGO(5h)"}, {"type": "B", "status": "False", "at": "AGO(3d)"}, {"type": "C"}],
	             "at": "AGO(40m)", "bad": "yesterday", "zero": "0001-01-01T00:00:00Z", "null": "null", "noon": "2010-01-01T12:00:00+02:00", "loose": "2010-01-01 12:00:00Z", "lower": "2010-01-01t12:00:00z",
	             "fraction": "2010-01-01T12:00:00.123456789Z", "comma": "2010-01-01T12:00:00,5Z", "short": "2010-01-01T1:00:00Z", "bare": "2010-01-01T12:00:00", "future": "2200-01-01T00:00:00Z"}}`,
	`{"metadata": {"name": "b"}, "spec": {"items": [], "size": "x", "list": 5, "texts": "abc", "map": [], "q": [{"inner": 1}]}, "status": {"conditions": [{"type": "B", "status": 1}, {"type": 2}]}}`,
	`{"metadata": {"name": "c"}, "spec": {"items": null, "list": [3, 1]}}`,
}

// Whole paths, which random pieces seldom make.
var wholes = []string{
	".metadata.name", ".spec.size", ".spec.half", ".spec.text", ".spec.whole", ".spec.no", ".spec.yes", ".spec.none", ".spec.big", ".spec.bigger", ".spec.tiny",
	".spec.huge", ".spec.wide", ".spec.minus", ".spec.exp", ".spec.empty", ".spec.list", ".spec.texts", ".spec.nested", ".spec.mixed", ".spec.map", ".spec.void", ".spec.unicode", ".spec.quotes", ".spec",
	".missing", ".missing.x", ".spec.size.x", ".spec.text.x", ".", "..", ".spec.", ".spec..inner", "..inner", "..n", "..*", ".*", ".spec.q.*", ".spec.q.*.x", ".spec.text.*", "..x",
	".spec.list[0]", ".spec.list[4]", ".spec.list[5]", ".spec.list[-1]", ".spec.list[-5]", ".spec.list[-6]", ".spec.list[*]", ".spec.list[]", ".spec.list[:]", ".spec.list[1:]", ".spec.list[:2]", ".spec.list[-2:]",
	".spec.list[:-1]", ".spec.list[1:3]", ".spec.list[3:1]", ".spec.list[2:2]", ".spec.list[0:9]", ".spec.list[9:9]", ".spec.list[::2]", ".spec.list[1::2]", ".spec.list[1:5:3]", ".spec.list[::-1]", ".spec.list[::0]", ".spec.list[0:]",
	".spec.list[-0]", ".spec.list[+1]", ".spec.list[ 1 ]", ".spec.list[1.5]", ".spec.list[x]", ".spec.list[99999999999999999999]", ".spec.list[1,0]", ".spec.list[1, 0]", ".spec.list[0,9]", ".spec.list[1:3,0]", ".spec.list[,]", ".spec.list[*,0]",
	".spec['size','text']", ".spec['size']", ".spec[\"size\"]", ".spec['size'].x", ".spec['si ze']", ".spec['']", ".spec[size]", ".metadata.annotations.lab\\.test/x", ".metadata.annotations['lab\\.test/x']", ".metadata.annotations['lab.test/x']",
	".metadata.annotations.plain", ".metadata.annotations['it\\'s']", ".spec.nested[0][1]", ".spec.nested[*][0]", ".spec.nested[1:][0]", ".spec.items[*].name", ".spec.items[-1:].name", ".spec.items[:1].name", ".spec.items[1,0].name",
	".spec.items[?(@.n>1)].name", ".spec.items[?(@.n>=2)].name", ".spec.items[?(@.n<2)].name", ".spec.items[?(@.n<=1)].name", ".spec.items[?(@.n==3)].name", ".spec.items[?(@.n!=1)].name", ".spec.items[?(@.n=1)].name", ".spec.items[?(@.n<>1)].name",
	".spec.items[?(@.n>1.5)].name", ".spec.items[?(@.f>1.5)].name", ".spec.items[?(@.f==1.5)].name", ".spec.items[?(@.f>1)].name", ".spec.items[?(@.flag)].name", ".spec.items[?(@.deep)].name", ".spec.items[?(@.deep.inner)].name", ".spec.items[?(@.missing)].name",
	".spec.items[?(@.on==true)].name", ".spec.items[?(@.on==false)].name", ".spec.items[?(@.on!=true)].name", ".spec.items[?(@.on>false)].name", ".spec.items[?(@.name==\"i2\")].n", ".spec.items[?(@.name=='i2')].n", ".spec.items[?(@.name=='i)]3')].n", ".spec.items[?(@.name==\"i)]3\")].n",
	".spec.items[?(@.name>\"i1\")].n", ".spec.items[?(@.name==i2)].n", ".spec.items[?(@.name==2)].n", ".spec.items[?(@.flag==null)].n", ".spec.items[?(@.flag==true)].n", ".spec.items[?(@.deep=='x')].n", ".spec.items[?(@.n==@.n)].name", ".spec.items[?(@.n!=@.f)].name", ".spec.items[?(1==@.n)].name",
	".spec.items[?( @.n == 2 )].name", ".spec.items[?(@.n==2 )].name", ".spec.items[?(@.name=='i\\'2')].n", ".spec.items[?(@.name==\"\\u00692\")].n", ".spec.items[?(@.n>-1)].name", ".spec.items[?(@['n']==2)].name", ".spec.items[?(@.deep[0])].name", ".spec.items[?(@..inner)].name", ".spec.items[?(@.*)].name",
	".spec.items[?(@.n==2)", ".spec.items[?(@.n==2]", ".spec.items[?()].name", ".spec.items[?(@)].name", ".spec.items[?(@.n==)].name", ".spec.items[?(==2)].name", ".spec.items[?(@.n==2&&@.on)].name", ".spec.items[?(@.n==2)][0]", ".spec.list[?(@>3)]", ".spec.list[?(@==3)]", ".spec.list[?(@)]", ".spec.mixed[?(@.k)]", ".spec.mixed[?(@.k==\"v\")].k",
	".spec.mixed[?(@==1)]", ".spec.texts[?(@=='a')]", ".spec.texts[*]", ".spec.size[?(@.x)]", ".spec.q[?(@.inner)]", ".status.conditions[?(@.type==\"B\")].status", ".status.conditions[?(@.type!=\"A\")].type", ".status.conditions[?(@.status==\"True\")].type", ".status.conditions[?(@.type=='C')].status",
	".status.conditions[-1:].type", ".status.conditions[*].at", ".status.at", ".status.bad", ".status.zero", ".status.null", ".status.noon", ".status.loose", ".status.lower", ".status.fraction", ".status.comma", ".status.short", ".status.bare", ".status.future", ".status.missing",
	"'text'", "\"text\"", "'te\\tx'", "\"t", "5", "-5", "1.5", "1.5.5", "true", "false", "range .spec.list[*]", "end", "word", "$.spec.size", "@.spec.size", "spec.size", " .spec.size", ".spec .size", ".spec.size ", ".spec@.size", ".spec$size", ".spec{", ".spec}", ".spec}{.spec.size", "}{.spec.size", ".spec.size}tail", ".spec.size,.spec.text", ".spec[0", ".spec]",
	"...", "....inner", "..[0]", "..['inner']", "..items[0].name", "..items[*].name", "..conditions[?(@.type=='A')].status", ".spec.map.k", ".spec.map.k.a", ".spec.map.*.a", ".spec.void.*", ".spec\\.size", ".spec.s\\ize", ".spec.size\\", "", " ", "\\", "?", "é", ".é", ".spec.unicode.x", "[0]", "['spec']", "['spec']['size']", ".['spec']", "[?(@.x)]", "*", "[*]",
	".spec.nested[*]", ".spec.nested[*][*]", ".spec.nested[2][0]", ".spec.nested[?(@[0]==3)]", ".spec.list[0:5:2]", ".spec.list[1:4:]", ".spec.list[::]", ".spec.list[:::]", ".spec.list[--1]", ".spec.list[1:-1]", ".spec.list[-3:-1]", ".spec.list[-1:-3]", ".spec.list[0:0]", ".spec.list[5:]", ".spec.list[6:]", ".spec.list[:6]", ".spec.list[:5]", ".spec.list[:-6]",
}

var pieces = []string{
	".spec", ".items", ".list", ".name", ".n", ".f", ".on", ".size", ".text", ".q", ".inner", "..", ".*", "[*]", "[0]", "[1]", "[-1]", "[1:]", "[:2]", "[0,1]", "[::2]", "['spec']", "['size']", "[?(@.n>1)]", "[?(@.n==2)]", "[?(@.name=='i2')]", "[?(@.flag)]", "[?(@.f>=1.5)]", "[?(@.on==true)]",
	"[?(@>2)]", ".nested", ".mixed", ".texts", ".none", ".missing", ".status", ".conditions", ".type", "\\.", "$", "@", " ", "'x'", "7", "[", "]", "(", ")", "{", "}", "?", ",",
}

type pathVector struct {
	Path string `json:"path"`
	// Whether the path is refused.
	Invalid bool `json:"invalid,omitempty"`
	// The cells of each object, by the types of columns.
	Cells [][]any `json:"cells,omitempty"`
}

func jsonPaths(emit func(any)) error {
	recorded, printed := make([]*unstructured.Unstructured, 0), make([]*unstructured.Unstructured, 0)
	raw := make([]json.RawMessage, 0)
	for _, text := range objects {
		kept := withTimes(text, recordedNow)
		recorded = append(recorded, object(kept))
		printed = append(printed, object(withTimes(text, time.Now())))
		raw = append(raw, json.RawMessage(withKind(kept)))
	}
	emit(map[string]any{"now": recordedNow.Format(time.RFC3339), "types": types, "objects": raw})
	for _, path := range paths() {
		if vector, ok := tryPath(path, recorded, printed); ok {
			emit(vector)
		}
	}
	return nil
}

func object(text string) *unstructured.Unstructured {
	parsed := &unstructured.Unstructured{}
	if err := parsed.UnmarshalJSON([]byte(withKind(text))); err != nil {
		fail(err)
	}
	return parsed
}

func withKind(text string) string {
	return strings.Replace(text, "{", `{"apiVersion": "lab.test/v1", "kind": "Cell", `, 1)
}

func paths() []string {
	random := rand.New(rand.NewSource(1))
	all := append([]string{}, wholes...)
	seen := map[string]bool{}
	for _, path := range all {
		seen[path] = true
	}
	for len(all) < len(wholes)+700 {
		var path strings.Builder
		for range 1 + random.Intn(5) {
			path.WriteString(pieces[random.Intn(len(pieces))])
		}
		if !seen[path.String()] {
			seen[path.String()] = true
			all = append(all, path.String())
		}
	}
	return all
}

// What a path gives; false where it depends on the order of a map.
func tryPath(path string, recorded, printed []*unstructured.Unstructured) (pathVector, bool) {
	var columns []apiextensions.CustomResourceColumnDefinition
	for _, kind := range types {
		columns = append(columns, apiextensions.CustomResourceColumnDefinition{Name: kind, Type: kind, JSONPath: path})
	}
	vector := pathVector{Path: path}
	convertor, err := tableconvertor.New(columns)
	if err != nil {
		vector.Invalid = true
		return vector, true
	}
	for i := range recorded {
		cells := cellsOf(convertor, recorded[i])
		for range 30 {
			if fmt.Sprint(cellsOf(convertor, recorded[i])) != fmt.Sprint(cells) {
				return vector, false
			}
		}
		cells[len(cells)-1] = cellsOf(convertor, printed[i])[len(cells)-1]
		vector.Cells = append(vector.Cells, cells)
	}
	return vector, true
}

func cellsOf(convertor rest.TableConvertor, object *unstructured.Unstructured) []any {
	table, err := convertor.ConvertToTable(context.Background(), object, nil)
	if err != nil {
		fail(err)
	}
	return table.Rows[0].Cells[1:]
}
