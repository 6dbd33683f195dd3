// Writes what Kubernetes' own libraries make of label selectors, field selectors and resource versions, one JSON object a
// line. The texts are made of pieces of the grammars with a fixed seed; the sets they are matched with come first.
package main

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// One text and what became of it.
type vector struct {
	Kind string `json:"kind"`
	Text string `json:"text"`
	// The error's text; empty if it was accepted.
	Error string `json:"error,omitempty"`
	// As it is written back.
	Printed string `json:"printed,omitempty"`
	// The sets that it selects: 0101 for the second and the fourth.
	Matches string `json:"matches,omitempty"`
	// Of two resource versions: -1, 0 or 1.
	Order int `json:"order,omitempty"`
}

var sets = []map[string]string{
	{},
	{"a": "1", "b": "", "app": "web"},
	{"app": "db", "x.io/a": "2", "in": "notin"},
	{"a": "-3", "b": "b", "notin": "in", "metadata.name": "web"},
	{"a": "9223372036854775807", "metadata.name": "a,b=c\\", "spec.nodeName": ""},
}

var labelPieces = []string{
	"a", "b", "app", "web", "in", "notin", "x.io/a", "1", "-3", "2", "9223372036854775807", "9223372036854775808", "=", "==",
	"!=", "!", ">", "<", "(", ")", ",", " ", " ", "\t", "\n", "-", "_", ".", "/", "é", "A", "===", "=!", "''", "\"", "\x00",
}

// Whole requirements, which random pieces seldom make.
var labelWholes = []string{
	"a", "!a", "a=1", "a==1", "a!=1", "a in (1)", "a in (1,2)", "a in (,1)", "a in ()", "a notin (1,-3)", "a notin (2, 1,2)",
	"a>0", "a<0", "a > -4", "a<9223372036854775808", "a>x", "b=", "b!=", "b in (b,)", "b==", "app=web", "app in (db,web)",
	"x.io/a", "x.io/a=2", "in", "notin", "in in (in)", "notin notin (notin)", "in notin (notin)", "a=1 2", "a=(", " a = 1 ",
	"!in", "! a", "!!a", "a in1", "a in (1", "a in 1)", "a=1,", ",a=1", "app=-web", "app=web-", "é=1", "a=é", "missing notin (1)",
	"missing!=1", strings.Repeat("k", 63), strings.Repeat("k", 64), strings.Repeat("p", 253) + "/a", strings.Repeat("p", 254) + "/a",
	"a=" + strings.Repeat("v", 63), "a=" + strings.Repeat("v", 64), "X.io/a", "a..b/c", "a/b/c", "/a", "a/", "a in (in,notin)", "b notin (,)", "a in (1,(2))", "a=in", "a=notin", "a<1>0", "a=\"1\"", "", " ",
}

var fieldPieces = []string{
	"metadata.name", "spec.nodeName", "a", "b", "web", "=", "==", "!=", "!", ",", "\\", "\\,", "\\=", "\\\\", " ", "é", "\x00",
	">", "(", "1",
}

var fieldWholes = []string{
	"", ",", ",,", "metadata.name=web", "metadata.name==web", "metadata.name!=web", `metadata.name=a\,b\=c\\`, "spec.nodeName=",
	"spec.nodeName!=", "a=1", "a==", "a!==1", "a=!1", "a=1=2", "a=1,", ",a=1", "=", "==", "!=", "=1", "a", `a=\x`, `a=\`, "b=,a=1",
	"missing=", "missing!=", "missing!=x", "a = 1", "a>1", `a\=1=2`, "metadata.name in (web)",
}

var versionPieces = []string{"", "0", "1", "9", "10", "00", "01", "-1", "+1", " 1", "1 ", "1.0", "a", "18446744073709551615",
	"18446744073709551616", "99999999999999999999", "100000000000000000000", "0x1", "１", "1e3",
	strings.Repeat("9", 127), strings.Repeat("9", 128), strings.Repeat("1", 129)}

func main() {
	out := json.NewEncoder(os.Stdout)
	out.SetEscapeHTML(false)
	write := func(value any) {
		if err := out.Encode(value); err != nil {
			panic(err)
		}
	}
	write(map[string]any{"kind": "sets", "sets": sets})

	random := rand.New(rand.NewSource(1))
	for _, text := range texts(random, labelWholes, labelPieces, 250, 300) {
		write(label(text))
	}
	for _, text := range texts(random, fieldWholes, fieldPieces, 100, 250) {
		write(field(text))
	}
	for i, a := range versionPieces {
		for _, b := range []string{a, versionPieces[(i+1)%len(versionPieces)], "9", "18446744073709551616"} {
			write(version(a, b))
			write(version(b, a))
		}
	}
}

// All wholes, then some of them joined, then some made of pieces.
func texts(random *rand.Rand, wholes, pieces []string, joined, pieced int) []string {
	seen := map[string]bool{}
	var all []string
	add := func(text string) {
		// JSON holds nothing but Unicode, and long texts tell little.
		if !seen[text] && len(text) < 300 {
			seen[text] = true
			all = append(all, text)
		}
	}
	for _, whole := range wholes {
		add(whole)
	}
	for range joined {
		add(join(random, wholes, 2+random.Intn(2), ","))
	}
	for range pieced {
		add(join(random, pieces, 1+random.Intn(8), ""))
	}
	return all
}

func join(random *rand.Rand, pieces []string, count int, separator string) string {
	var chosen []string
	for range count {
		chosen = append(chosen, pieces[random.Intn(len(pieces))])
	}
	return strings.Join(chosen, separator)
}

func label(text string) vector {
	selector, err := labels.Parse(text)
	if err != nil {
		return vector{Kind: "label", Text: text, Error: err.Error()}
	}
	matches := matching(func(set map[string]string) bool { return selector.Matches(labels.Set(set)) })
	return vector{Kind: "label", Text: text, Printed: selector.String(), Matches: matches}
}

func field(text string) vector {
	selector, err := fields.ParseSelector(text)
	if err != nil {
		return vector{Kind: "field", Text: text, Error: err.Error()}
	}
	matches := matching(func(set map[string]string) bool { return selector.Matches(fields.Set(set)) })
	return vector{Kind: "field", Text: text, Printed: selector.String(), Matches: matches}
}

func version(a, b string) vector {
	text := fmt.Sprintf("%s|%s", a, b)
	order, err := resourceversion.CompareResourceVersion(a, b)
	if err != nil {
		return vector{Kind: "version", Text: text, Error: err.Error()}
	}
	return vector{Kind: "version", Text: text, Order: order}
}

func matching(selects func(map[string]string) bool) string {
	var bits strings.Builder
	for _, set := range sets {
		if selects(set) {
			bits.WriteByte('1')
		} else {
			bits.WriteByte('0')
		}
	}
	return bits.String()
}
