package main

import (
	"encoding/binary"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// What Kubernetes' own types never write and read nevertheless: messages put together by hand.
func (w *vectorWriter) addOdd() error {
	odd := slices.Concat(oddMaps(), oddMessages(), oddStringLists(), oddScalars(), oddSpecials())
	for _, o := range odd {
		unknown := runtime.Unknown{Raw: o.message}
		unknown.APIVersion, unknown.Kind = o.gvk.ToAPIVersionAndKind()
		encoded, err := encode(w.protobuf, &unknown)
		if err != nil {
			return err
		}
		if err := w.addEncoded(o.gvk, "odd: "+o.what, encoded); err != nil {
			return fmt.Errorf("%s: %w", o.what, err)
		}
	}
	return nil
}

type oddMessage struct {
	gvk     schema.GroupVersionKind
	what    string
	message []byte
}

func odd(kind, what string, fields ...[]byte) oddMessage {
	return oddMessage{schema.GroupVersionKind{Version: "v1", Kind: kind}, what, slices.Concat(fields...)}
}

func oddMaps() []oddMessage {
	entry := func(fields ...[]byte) []byte { return message(2, fields...) }
	full := func(key, value string) []byte { return entry(text(1, key), text(2, value)) }
	return []oddMessage{
		odd("ConfigMap", "map entries unsorted", full("b", "2"), full("c", "3"), full("a", "1")),
		odd("ConfigMap", "map key twice", full("a", "1"), full("b", "2"), full("a", "3")),
		odd("ConfigMap", "map entry without value", full("a", "1"), entry(text(1, "b"))),
		odd("ConfigMap", "map entry without key", entry(text(2, "1"))),
		odd("ConfigMap", "map entry empty", entry()),
		odd("ConfigMap", "map entry with value first", entry(text(2, "1"), text(1, "a"))),
		odd("ConfigMap", "map entry with value twice", entry(text(1, "a"), text(2, "1"), text(2, "2"))),
		odd("ConfigMap", "map entry with unknown field", entry(text(1, "a"), number(9, 5), text(2, "1"))),
		odd("ConfigMap", "map entry whose wire types are those of numbers", entry([]byte("\x08\x01a\x10\x01b"))),
		odd("Secret", "map of bytes, entry without value", entry(text(1, "a"))),
		odd("Secret", "map of bytes, value empty", entry(text(1, "a"), text(2, ""))),
		odd("ResourceQuota", "map of messages, entry without value", message(2, message(1, text(1, "cpu")))),
		odd("ResourceQuota", "map of messages, value empty", message(2, message(1, text(1, "cpu"), text(2, "")))),
	}
}

func oddMessages() []oddMessage {
	labels := func(key, value string) []byte { return message(11, text(1, key), text(2, value)) }
	context := func(fields ...[]byte) []byte { return message(2, message(14, fields...)) }
	return []oddMessage{
		odd("ConfigMap", "message twice", message(1, text(1, "a"), text(3, "x"), labels("k", "1")),
			message(1, text(1, "b"), labels("l", "2"))),
		odd("Pod", "pointer to message twice", context(number(2, 1), number(6, 2)), context(number(2, 3))),
		odd("Pod", "pointer to message empty", context()),
		odd("Pod", "fields in falling order",
			message(3, text(1, "Running")), message(2, text(10, "node")), message(1, text(1, "a"))),
		odd("Pod", "unknown fields", number(100, 7), fixed64(101), text(102, "x"), fixed32(103),
			group(104, number(1, 1), group(2)), message(1, text(1, "a"), text(15, "cluster"), group(500))),
		odd("ConfigMap", "nothing"),
	}
}

// Lists of strings that are messages of their own.
func oddStringLists() []oddMessage {
	entry := func(fields ...[]byte) []byte { return message(2, message(5, fields...)) }
	review := odd("SubjectAccessReview", "lists in a map absent, empty, of an empty string", entry(text(1, "a")),
		entry(text(1, "b"), message(2)), entry(text(1, "c"), message(2, text(1, ""))))
	review.gvk.Group = "authorization.k8s.io"
	resource := func(fields ...[]byte) []byte { return message(2, fields...) }
	return []oddMessage{
		review,
		odd("APIResourceList", "verbs absent, empty, of an empty string, twice", text(1, "v1"), resource(), resource(message(4)),
			resource(message(4, text(1, ""))), resource(message(4, text(1, "get")), message(4, text(1, "list")))),
	}
}

func oddScalars() []oddMessage {
	groups := func(fields ...[]byte) []byte { return message(2, message(14, fields...)) }
	return []oddMessage{
		odd("Pod", "list packed", groups(text(4, "\x01\x96\x01\x03"))),
		odd("Pod", "list packed and not", groups(number(4, 9), text(4, "\x01\x02"), text(4, ""), number(4, 8))),
		odd("Pod", "list packed and empty", groups(text(4, ""))),
		odd("Pod", "negative int64", groups(number(2, 1<<64-1))),
		odd("Event", "int32 out of range", number(8, 1<<32+5)),
		odd("Event", "int32 negative in five bytes", number(8, 1<<32-1)),
		odd("Event", "int32 negative in ten bytes", number(8, 1<<64-2)),
		odd("Event", "varint longer than it has to be", []byte{8 << 3, 0x85, 0x80, 0x00}),
		odd("Pod", "bool beyond 1", message(2, number(11, 2), number(12, 0), number(21, 1<<40))),
		odd("Pod", "string twice", message(1, text(1, "a"), text(1, "b"))),
		odd("Pod", "string that is no UTF-8", message(1, text(1, "a\xff\xc3b\xed\xa0\x80\xf0\x9f\x98"))),
		odd("ConfigMap", "key that is no UTF-8",
			message(2, text(1, "\xff"), text(2, "1")), message(2, text(1, "\ufffd"), text(2, "2"))),
		odd("ConfigMap", "pointer to bool false", number(4, 0)),
		odd("Pod", "list of strings with empty ones", message(1, text(14, ""), text(14, "a"), text(14, ""))),
	}
}

func oddSpecials() []oddMessage {
	metadata := func(fields ...[]byte) []byte { return message(1, fields...) }
	port := func(fields ...[]byte) []byte { return message(2, message(1, message(4, fields...))) }
	return []oddMessage{
		odd("ResourceQuota", "quantities as they are written", writtenQuantities()),
		odd("Event", "times empty", message(6), message(10), metadata(message(9))),
		odd("Event", "time twice", message(6, number(1, 5)), message(6), message(10, number(1, 5)), message(10, number(2, 1000))),
		odd("Event", "times with nanoseconds",
			message(6, number(1, 5), number(2, 999999999)), message(10, number(1, 5), number(2, 1999))),
		odd("Event", "times with nanoseconds out of range",
			message(6, number(1, 5), number(2, 1999999999)), message(10, number(1, 5), number(2, 1<<64-1000))),
		odd("Event", "times before 1970 and after the year 9999", message(6, number(1, 1<<64-1)),
			message(10, number(1, 1<<64-1), number(2, 1000)), message(7, number(1, 253402300800))),
		odd("Event", "time without seconds", message(6, number(2, 5)), message(10, number(2, 5000))),
		odd("Event", "time that is Go's zero", message(6, number(1, 1<<64-62135596800))),
		odd("Service", "IntOrString empty", port()),
		odd("Service", "IntOrString with both", port(number(1, 1), number(2, 80), text(3, "http"))),
		odd("Service", "IntOrString of an int with both", port(number(1, 0), number(2, 80), text(3, "http"))),
		odd("Pod", "fieldsV1 empty", metadata(message(17, text(6, "FieldsV1"), message(7)), message(17, message(7, text(1, ""))))),
	}
}

// The limits of a quota, each written as its key says.
func writtenQuantities() []byte {
	var limits []byte
	written := slices.Concat(quantities, []string{"+5", "+1k", "-0", "00.5", "10.0", ".5", "5.", "1000m", "010", "8Ki", "3Ki",
		"1000k", "1E3", "1e-3", "0.1n", "-0.1n", "9Ei", "16Ei", "1.0", "1000", "1024", "0Ki", "0m", "0e3", "+0"})
	for i, quantity := range written {
		key := text(1, fmt.Sprintf("q%02d %s", i, quantity))
		limits = append(limits, message(1, key, message(2, text(1, quantity)))...)
	}
	return message(2, limits)
}

// The key of a field, and what follows it.
func tagged(field, wireType uint64, content ...byte) []byte {
	return append(binary.AppendUvarint(nil, field<<3|wireType), content...)
}

func number(field, value uint64) []byte {
	return tagged(field, 0, binary.AppendUvarint(nil, value)...)
}

func fixed64(field uint64) []byte {
	return tagged(field, 1, make([]byte, 8)...)
}

func text(field uint64, content string) []byte {
	return append(tagged(field, 2, binary.AppendUvarint(nil, uint64(len(content)))...), content...)
}

func message(field uint64, fields ...[]byte) []byte {
	return text(field, string(slices.Concat(fields...)))
}

func group(field uint64, fields ...[]byte) []byte {
	return slices.Concat(tagged(field, 3), slices.Concat(fields...), tagged(field, 4))
}

func fixed32(field uint64) []byte {
	return tagged(field, 5, make([]byte, 4)...)
}
