package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	jsonserializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
)

// Old groups whose kinds are those of newer ones: one full object of each is enough.
var oldGroups = []string{"extensions/v1beta1", "apps/v1beta1", "apps/v1beta2"}

// One line: an object in protobuf, and the JSON that the API server writes for what it reads from that.
type vector struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	What       string `json:"what"`
	Protobuf   []byte `json:"pb"`
	JSON       string `json:"json"`
}

// Writes vectors with the API server's own serializers.
type vectorWriter struct {
	scheme   *runtime.Scheme
	protobuf *protobuf.Serializer
	// With and without writing lists item by item; both must write the same.
	json, jsonStream runtime.Encoder
	vectors          []vector
}

func vectorsText(gz bool) ([]byte, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	writer := newVectorWriter(scheme)
	if err := writer.addAll(); err != nil {
		return nil, err
	}
	text, err := writer.text()
	if err != nil || !gz {
		return text, err
	}
	return compressed(text)
}

func newVectorWriter(scheme *runtime.Scheme) *vectorWriter {
	encoder := func(streaming bool) runtime.Encoder {
		options := jsonserializer.SerializerOptions{StreamingCollectionsEncoding: streaming}
		return jsonserializer.NewSerializerWithOptions(jsonserializer.DefaultMetaFactory, scheme, scheme, options)
	}
	return &vectorWriter{
		scheme:     scheme,
		protobuf:   protobuf.NewSerializer(scheme, scheme),
		json:       encoder(false),
		jsonStream: encoder(true),
	}
}

func (w *vectorWriter) addAll() error {
	kinds, err := protobufKinds(w.scheme)
	if err != nil {
		return err
	}
	values := &pools{}
	for _, kind := range kinds {
		if err := w.addKind(kind, values); err != nil {
			return fmt.Errorf("%v: %w", kind.gvk, err)
		}
	}
	if err := w.addLists(); err != nil {
		return err
	}
	if err := w.addOdd(); err != nil {
		return err
	}
	return w.addWatch()
}

// The lines of one kind: nothing set, everything set, and a little of it.
func (w *vectorWriter) addKind(kind kind, values *pools) error {
	fillers := []struct {
		what   string
		filler *filler
	}{
		{"zero", nil},
		{"full", newFiller(values, kind, 0)},
		{"random 1", newFiller(values, kind, 1)},
		{"random 2", newFiller(values, kind, 2)},
		{"random 3", newFiller(values, kind, 3)},
	}
	if slices.Contains(oldGroups, kind.apiVersion()) {
		fillers = fillers[:2]
	}
	for _, f := range fillers {
		object := reflect.New(kind.goType)
		if f.filler != nil {
			if err := f.filler.fill(object.Elem()); err != nil {
				return fmt.Errorf("%s: %w", f.what, err)
			}
		}
		if err := w.add(kind.gvk, f.what, object.Interface().(runtime.Object)); err != nil {
			return fmt.Errorf("%s: %w", f.what, err)
		}
	}
	return nil
}

// Adds the line of an object, whose kind it sets.
func (w *vectorWriter) add(gvk schema.GroupVersionKind, what string, object runtime.Object) error {
	object.GetObjectKind().SetGroupVersionKind(gvk)
	encoded, err := encode(w.protobuf, object)
	if err != nil {
		return err
	}
	return w.addEncoded(gvk, what, encoded)
}

// Adds the line of an object that is in protobuf already.
func (w *vectorWriter) addEncoded(gvk schema.GroupVersionKind, what string, encoded []byte) error {
	into, err := w.scheme.New(gvk)
	if err != nil {
		return err
	}
	decoded, _, err := w.protobuf.Decode(encoded, nil, into)
	if err != nil {
		return err
	}
	text, err := w.jsonText(decoded)
	if err != nil {
		return err
	}
	w.append(gvk, what, encoded, text)
	return nil
}

func (w *vectorWriter) append(gvk schema.GroupVersionKind, what string, encoded []byte, text string) {
	w.vectors = append(w.vectors, vector{gvk.GroupVersion().String(), gvk.Kind, what, encoded, text})
}

// The JSON of an object, without the line feed at its end.
func (w *vectorWriter) jsonText(object runtime.Object) (string, error) {
	whole, err := encode(w.json, object)
	if err != nil {
		return "", err
	}
	streamed, err := encode(w.jsonStream, object)
	if err != nil {
		return "", err
	}
	if !bytes.Equal(whole, streamed) {
		return "", fmt.Errorf("written item by item, the JSON differs:\n%s%s", whole, streamed)
	}
	return string(bytes.TrimSuffix(whole, []byte("\n"))), nil
}

func encode(encoder runtime.Encoder, object runtime.Object) ([]byte, error) {
	var buffer bytes.Buffer
	err := encoder.Encode(object, &buffer)
	return buffer.Bytes(), err
}

func (w *vectorWriter) text() ([]byte, error) {
	var out bytes.Buffer
	lines := json.NewEncoder(&out)
	// Keeps the lines short: most of them are JSON that is escaped already.
	lines.SetEscapeHTML(false)
	for _, vector := range w.vectors {
		if err := lines.Encode(vector); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}

// The same text gives the same bytes: gzip's header has neither a name nor a time.
func compressed(text []byte) ([]byte, error) {
	var out bytes.Buffer
	writer, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := writer.Write(text); err != nil {
		return nil, err
	}
	err = writer.Close()
	return out.Bytes(), err
}
