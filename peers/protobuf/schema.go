package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
)

const (
	metav1Package  = "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimePackage = "k8s.io/apimachinery/pkg/runtime"
)

// The modules that the table is made from.
var modules = []string{"k8s.io/api", "k8s.io/apimachinery", "k8s.io/apiextensions-apiserver", "k8s.io/kube-aggregator"}

// Types whose protobuf or JSON is their own; they have no message in the table.
var specials = map[string]string{
	metav1Package + ".Time":                           "Time",
	metav1Package + ".MicroTime":                      "MicroTime",
	metav1Package + ".Duration":                       "Duration",
	metav1Package + ".FieldsV1":                       "FieldsV1",
	runtimePackage + ".RawExtension":                  "RawExtension",
	"k8s.io/apimachinery/pkg/api/resource.Quantity":   "Quantity",
	"k8s.io/apimachinery/pkg/util/intstr.IntOrString": "IntOrString",
	apiextensionsPackage + "v1.JSON":                  "JSON",
	apiextensionsPackage + "v1beta1.JSON":             "JSON",
}

const apiextensionsPackage = "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/"

// Messages that are in the table, and whose JSON is their own nevertheless.
var ownJSON = []string{"JSONSchemaPropsOrArray", "JSONSchemaPropsOrBool", "JSONSchemaPropsOrStringArray"}

var marshalerInterface = reflect.TypeFor[json.Marshaler]()

// One line of a message.
type field struct {
	number   int
	jsonName string
	typeName string
	flags    []string
}

// The messages found so far, by name.
type table struct {
	fields map[string][]field
	types  map[string]reflect.Type
}

func schemaText() ([]byte, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	kinds, err := protobufKinds(scheme)
	if err != nil {
		return nil, err
	}
	t := table{fields: map[string][]field{}, types: map[string]reflect.Type{}}
	for _, kind := range kinds {
		if _, err := t.message(kind.goType); err != nil {
			return nil, fmt.Errorf("%s %s: %w", kind.apiVersion(), kind.gvk.Kind, err)
		}
	}
	header, err := schemaHeader()
	if err != nil {
		return nil, err
	}
	return t.text(header, kinds), nil
}

// Names the modules' versions, as they are linked in.
func schemaHeader() (string, error) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "", fmt.Errorf("this program knows nothing of its build")
	}
	var versions []string
	for _, path := range modules {
		at := slices.IndexFunc(info.Deps, func(module *debug.Module) bool { return module.Path == path })
		if at < 0 {
			return "", fmt.Errorf("%s is not linked in", path)
		}
		versions = append(versions, path+" "+info.Deps[at].Version)
	}
	return "# Protobuf of Kubernetes' built-in kinds. Written by peers/protobuf (`go run . schema`), from\n# " +
		strings.Join(versions, " ") + "\n", nil
}

func (t *table) text(header string, kinds []kind) []byte {
	var out bytes.Buffer
	out.WriteString(header)
	for _, kind := range kinds {
		fmt.Fprintf(&out, "kind %s %s %s\n", kind.apiVersion(), kind.gvk.Kind, messageName(kind.goType))
	}
	for _, name := range slices.Sorted(maps.Keys(t.types)) {
		fmt.Fprintf(&out, "message %s\n", name)
		for _, field := range t.fields[name] {
			words := append([]string{strconv.Itoa(field.number), field.jsonName, field.typeName}, field.flags...)
			fmt.Fprintln(&out, strings.Join(words, " "))
		}
	}
	return out.Bytes()
}

// The name that a Go type has in the table: the last two elements of its package's path, and its own.
func messageName(goType reflect.Type) string {
	elements := strings.Split(goType.PkgPath(), "/")
	return strings.Join(elements[max(0, len(elements)-2):], "/") + "." + goType.Name()
}

// Puts a struct with protobuf methods into the table, and everything that it is made of; answers its name.
func (t *table) message(goType reflect.Type) (string, error) {
	name := messageName(goType)
	if known, ok := t.types[name]; ok {
		if known != goType {
			return "", fmt.Errorf("%s is the name of both %s and %s", name, known.PkgPath(), goType.PkgPath())
		}
		return name, nil
	}
	if err := checkMessage(goType); err != nil {
		return "", err
	}
	t.types[name] = goType
	for i := range goType.NumField() {
		structField := goType.Field(i)
		field, err := t.field(structField, isOwnJSON(goType))
		if err != nil {
			return "", fmt.Errorf("%s.%s: %w", name, structField.Name, err)
		}
		t.fields[name] = append(t.fields[name], field)
	}
	if err := checkNumbers(t.fields[name]); err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	if err := checkNames(goType); err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return name, nil
}

func isOwnJSON(goType reflect.Type) bool {
	return strings.HasPrefix(goType.PkgPath(), apiextensionsPackage) && slices.Contains(ownJSON, goType.Name())
}

// Fails on what is no plain message: one whose methods are an embedded struct's, or that writes JSON of its own.
func checkMessage(goType reflect.Type) error {
	pointer := reflect.PointerTo(goType)
	switch {
	case goType.Kind() != reflect.Struct:
		return fmt.Errorf("%v is no struct", goType)
	case !isMessage(goType) || isPromoted(pointer, "Unmarshal"):
		return fmt.Errorf("%v has no protobuf methods of its own", goType)
	case pointer.Implements(marshalerInterface) && !isOwnJSON(goType):
		return fmt.Errorf("%v writes JSON of its own", goType)
	}
	return nil
}

// Whether a method is an embedded field's: the compiler wrote what calls it then.
func isPromoted(pointer reflect.Type, name string) bool {
	method, _ := pointer.MethodByName(name)
	code := method.Func.Pointer()
	file, _ := runtime.FuncForPC(code).FileLine(code)
	return file == "<autogenerated>"
}

func indirect(goType reflect.Type) reflect.Type {
	if goType.Kind() == reflect.Pointer {
		return goType.Elem()
	}
	return goType
}

// One field of a message. Unlike others, a message with JSON of its own needs no JSON names.
func (t *table) field(structField reflect.StructField, ownJSON bool) (field, error) {
	jsonTag, hasJSON := structField.Tag.Lookup("json")
	protobufTag, hasProtobuf := structField.Tag.Lookup("protobuf")
	if isTypeMeta(structField) {
		if hasProtobuf || (jsonTag != ",inline" && jsonTag != "") {
			return field{}, fmt.Errorf("tags of TypeMeta are not understood: %s", structField.Tag)
		}
		return field{0, "-", "TypeMeta", []string{"<"}}, nil
	}
	if !hasProtobuf || !structField.IsExported() {
		return field{}, fmt.Errorf("no protobuf tag")
	}
	number, protobufName, err := parseProtobufTag(protobufTag)
	if err != nil {
		return field{}, err
	}
	if !hasJSON && ownJSON {
		jsonTag = protobufName
	}
	jsonName, flags, err := parseJSONTag(structField, jsonTag)
	if err != nil {
		return field{}, err
	}
	typeName, err := t.typeName(structField.Type)
	return field{number, jsonName, typeName, flags}, err
}

func isTypeMeta(structField reflect.StructField) bool {
	return structField.Anonymous && structField.Type.PkgPath() == metav1Package && structField.Type.Name() == "TypeMeta"
}

// The number and the name that a protobuf tag gives. The rest of it is not to be relied on: the generator goes by the Go
// type, and tags without opt, with req on what need not be there and with bytes on numbers are all in use.
func parseProtobufTag(text string) (int, string, error) {
	parts := strings.Split(text, ",")
	if len(parts) < 2 {
		return 0, "", fmt.Errorf("protobuf tag %q is too short", text)
	}
	number, err := strconv.Atoi(parts[1])
	if err != nil || number < 1 {
		return 0, "", fmt.Errorf("protobuf tag %q has no number", text)
	}
	if slices.Contains(parts, "packed") {
		return 0, "", fmt.Errorf("protobuf tag %q is of a packed field", text)
	}
	name := ""
	for _, part := range parts[2:] {
		if value, ok := strings.CutPrefix(part, "name="); ok {
			name = value
		}
	}
	return number, name, nil
}

// The name and the flags of a field's JSON; - for a struct that is written into the one around it.
func parseJSONTag(structField reflect.StructField, text string) (string, []string, error) {
	name, rest, _ := strings.Cut(text, ",")
	var flags []string
	inline := name == "" && structField.Anonymous && indirect(structField.Type).Kind() == reflect.Struct
	for option := range strings.SplitSeq(rest, ",") {
		switch option {
		case "":
		case "omitempty":
			flags = append(flags, "?")
		case "omitzero":
			flags = append(flags, "!")
		case "inline":
			if !inline {
				return "", nil, fmt.Errorf("JSON tag %q on what is not embedded", text)
			}
		default:
			return "", nil, fmt.Errorf("JSON tag %q: %q is not understood", text, option)
		}
	}
	switch {
	case inline:
		return "-", append(flags, "<"), nil
	case name == "-":
		return "", nil, fmt.Errorf("in protobuf and not in JSON")
	case name == "":
		return "", nil, fmt.Errorf("no JSON name")
	}
	return name, flags, nil
}

// The type of a field, in the table's words.
func (t *table) typeName(goType reflect.Type) (string, error) {
	if isMessage(goType) || goType.Kind() == reflect.Struct {
		return t.namedType(goType)
	}
	switch goType.Kind() {
	case reflect.Pointer:
		return t.prefixed("*", goType.Elem())
	case reflect.Slice:
		if goType.Elem().Kind() == reflect.Uint8 {
			return "bytes", nil
		}
		return t.prefixed("[]", goType.Elem())
	case reflect.Map:
		if goType.Key().Kind() != reflect.String {
			return "", fmt.Errorf("keys of %v are no strings", goType)
		}
		return t.prefixed("{}", goType.Elem())
	}
	return t.scalar(goType)
}

// The type of a pointer's, a list's or a map's elements, with what they are in.
func (t *table) prefixed(prefix string, element reflect.Type) (string, error) {
	name, err := t.typeName(element)
	if err != nil {
		return "", err
	}
	if strings.ContainsAny(name, "*[{") {
		return "", fmt.Errorf("%s of %s", prefix, name)
	}
	return prefix + name, nil
}

// A type with protobuf methods: one of the special ones, a list of strings in a message of its own, or a message.
func (t *table) namedType(goType reflect.Type) (string, error) {
	if special, ok := specials[goType.PkgPath()+"."+goType.Name()]; ok {
		return special, nil
	}
	if goType.Kind() == reflect.Slice && goType.Elem().Kind() == reflect.String {
		if reflect.PointerTo(goType).Implements(marshalerInterface) {
			return "", fmt.Errorf("%v writes JSON of its own", goType)
		}
		return "Strings", nil
	}
	return t.message(goType)
}

func (t *table) scalar(goType reflect.Type) (string, error) {
	if reflect.PointerTo(goType).Implements(marshalerInterface) {
		return "", fmt.Errorf("%v writes JSON of its own", goType)
	}
	switch goType.Kind() {
	case reflect.String, reflect.Bool, reflect.Int32, reflect.Int64, reflect.Uint32, reflect.Uint64:
		return goType.Kind().String(), nil
	case reflect.Float32:
		return "float", nil
	case reflect.Float64:
		return "double", nil
	}
	return "", fmt.Errorf("%v is not understood", goType)
}

// Fails on two fields with the same number. TypeMeta has none.
func checkNumbers(fields []field) error {
	seen := map[int]bool{}
	for _, field := range fields {
		if field.number != 0 && seen[field.number] {
			return fmt.Errorf("two fields have number %d", field.number)
		}
		seen[field.number] = true
	}
	return nil
}

// Fails on two fields with the same JSON name, of the message itself or of a struct that is written into it.
func checkNames(goType reflect.Type) error {
	seen := map[string]bool{}
	for _, name := range flatNames(goType) {
		if seen[name] {
			return fmt.Errorf("two fields are %q in JSON", name)
		}
		seen[name] = true
	}
	return nil
}

func flatNames(goType reflect.Type) []string {
	var names []string
	for structField := range goType.Fields() {
		name, _, _ := strings.Cut(structField.Tag.Get("json"), ",")
		switch {
		case name != "":
			names = append(names, name)
		case structField.Anonymous:
			names = append(names, flatNames(indirect(structField.Type))...)
		}
	}
	return names
}
