package main

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsv1beta1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

var (
	int32Values = []int64{1, -1, 80, math.MaxInt32, 0, math.MinInt32, 300, -128}
	// Most are beyond what a double holds.
	int64Values = []int64{1, -1, 1<<53 + 1, 3600, math.MinInt64, 0, math.MaxInt64, -1<<53 - 1, 1 << 32}
	floatValues = []float64{0.1, 1e21, 1e-7, -0.5, 1e20, 0, 3, 123456789.125, 1e-6, math.Copysign(0, -1),
		math.MaxFloat64, math.SmallestNonzeroFloat64, -1e21, 100}
	// What JSON has to escape, and what Go's escapes in addition to that. Few strings are of these.
	oddStrings = []string{"<a>&b", `q"b\s`, "line\nnext", "\ttab\r", "\b\f", "\u2028\u2029", "é", "😀", "\x01\x1f",
		"\x7f", "'/", "\x00", "\uffff", ""}
	// Each pair is sorted differently by different rules: by UTF-8, by UTF-16, without regard to case, by numbers.
	keyPairs = [][2]string{{"b", "a"}, {"a.b/c", "a-b/c"}, {"a", "B"}, {"\uff61", "😀"}, {"10", "9"}, {"a", ""}, {"é", "z"},
		{"<k>", "ab"}, {"a", "aa"}}
	bytesValues = [][]byte{[]byte("data"), {0, 255, 254}, {}, []byte("x"), {0xfb, 0xff}}
	quantities  = []string{"0.5", "1024Ki", "1500m", "12e6", "5Gi", "-1", "0", "1.5Gi", "100n", "1e3", "0.1Ki",
		"12345678901234567890", "100m", "2", "0.001u", "-0.5Mi", "1000000", "9223372036854775807", "1E"}
	times = []time.Time{
		{},
		time.Unix(0, 0),
		time.Date(1969, 12, 31, 23, 59, 58, 0, time.UTC),
		time.Date(2026, 11, 28, 4, 5, 6, 0, time.UTC),
		time.Date(1, 1, 1, 0, 0, 1, 0, time.UTC),
		time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
	}
	nanoseconds  = []int{0, 1500, 999999999, 120000000}
	intOrStrings = []intstr.IntOrString{intstr.FromInt32(80), intstr.FromString("25%"), intstr.FromInt32(-1),
		intstr.FromString(""), intstr.FromInt32(0), intstr.FromString("<http>"), intstr.FromString("8080")}
	// None is JSON's null. Of bytes that are there but empty, RawExtension cannot write JSON.
	rawValues = []string{`{"a":1}`, " { \"b\" : [ 1 , 2.50 , { } ] ,\n\t\"a\":\"<x> &\" }", "", `"s"`, `[]`,
		`{"n":{"n":{"e":1e+2,"u":"\u00e9é\u2028` + "\u2028" + `"}}}`, `null`, ` true `, `-0.0`}
	fieldsValues = []string{`{"f:metadata":{"f:labels":{".":{},"f:a":{}}}}`,
		"{ \"f:spec\" : {\"k:{\\\"p\\\":\\\"<\\\"}\":{}} }\n", "", `{}`}
)

// Hands out the values of each pool in turn.
type pools struct {
	taken   map[string]int
	strings int
}

func next[T any](p *pools, name string, values []T) T {
	if p.taken == nil {
		p.taken = map[string]int{}
	}
	p.taken[name]++
	return values[(p.taken[name]-1)%len(values)]
}

// Sets a value of a type whose protobuf or JSON is its own; answers whether it is one.
func (p *pools) setSpecial(value reflect.Value) bool {
	switch special := value.Addr().Interface().(type) {
	case *metav1.Time:
		special.Time = next(p, "Time", times)
	case *metav1.MicroTime:
		special.Time = next(p, "MicroTime", times)
		if !special.IsZero() {
			special.Time = special.Add(time.Duration(next(p, "nanoseconds", nanoseconds)))
		}
	case *metav1.FieldsV1:
		special.SetRawBytes([]byte(next(p, "FieldsV1", fieldsValues)))
	case *runtime.RawExtension:
		special.Raw = p.raw("RawExtension")
	case *apiextensionsv1.JSON:
		special.Raw = p.raw("JSON")
	case *apiextensionsv1beta1.JSON:
		special.Raw = p.raw("JSON")
	case *resource.Quantity:
		*special = resource.MustParse(next(p, "Quantity", quantities))
	case *intstr.IntOrString:
		*special = next(p, "IntOrString", intOrStrings)
	case *[]byte:
		*special = next(p, "bytes", bytesValues)
	default:
		return false
	}
	return true
}

// Raw JSON, or nil.
func (p *pools) raw(name string) []byte {
	text := next(p, name, rawValues)
	if text == "" {
		return nil
	}
	return []byte(text)
}

func (p *pools) setScalar(value reflect.Value) error {
	switch value.Kind() {
	case reflect.String:
		value.SetString(p.text())
	case reflect.Bool:
		value.SetBool(true)
	case reflect.Int32:
		value.SetInt(next(p, "int32", int32Values))
	case reflect.Int64:
		value.SetInt(next(p, "int64", int64Values))
	case reflect.Float64:
		value.SetFloat(next(p, "float64", floatValues))
	default:
		return fmt.Errorf("nothing is known to fill %v with", value.Type())
	}
	return nil
}

// Every ninth string is an odd one; the others are told apart by a number.
func (p *pools) text() string {
	p.strings++
	if p.strings%9 == 0 {
		return next(p, "string", oddStrings)
	}
	return "s" + strconv.Itoa(p.strings%1000)
}

func (p *pools) keys() []string {
	pair := next(p, "key", keyPairs)
	return pair[:]
}
