package main

import (
	"bytes"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
)

var podKind = corev1.SchemeGroupVersion.WithKind("Pod")

// Pages of lists.
func (w *vectorWriter) addLists() error {
	remaining := int64(3)
	page := metav1.ListMeta{ResourceVersion: "42", Continue: "eyJ2IjoibWV0YSJ9", RemainingItemCount: &remaining}
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Namespace: "default", Labels: map[string]string{"b": "2", "a": "1"}}
	}
	// What is in a list carries no kind, even if it has one.
	named := metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	pods := corev1.PodList{ListMeta: page, Items: []corev1.Pod{
		{TypeMeta: named, ObjectMeta: meta("first"), Spec: corev1.PodSpec{NodeName: "node"}},
		{ObjectMeta: meta("second"), Status: corev1.PodStatus{Phase: corev1.PodRunning}},
	}}
	maps := corev1.ConfigMapList{ListMeta: page, Items: []corev1.ConfigMap{
		{ObjectMeta: meta("first"), Data: map[string]string{"key": "<value>"}},
		{ObjectMeta: meta("second"), BinaryData: map[string][]byte{"key": {0, 255}}},
	}}
	partials := metav1.PartialObjectMetadataList{ListMeta: page, Items: []metav1.PartialObjectMetadata{
		{TypeMeta: named, ObjectMeta: meta("first")},
		{ObjectMeta: meta("second")},
	}}
	for _, list := range []struct {
		gvk    schema.GroupVersionKind
		object runtime.Object
	}{
		{corev1.SchemeGroupVersion.WithKind("PodList"), &pods},
		{corev1.SchemeGroupVersion.WithKind("ConfigMapList"), &maps},
		{schema.GroupVersionKind{Group: "meta.k8s.io", Version: "v1", Kind: "PartialObjectMetadataList"}, &partials},
	} {
		if err := w.add(list.gvk, "list", list.object); err != nil {
			return fmt.Errorf("%v: %w", list.gvk, err)
		}
	}
	return nil
}

// Events of a watch of pods: as frames of the stream in protobuf, and as lines of the one in JSON.
func (w *vectorWriter) addWatch() error {
	added := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "added", Namespace: "default", UID: "u-1", ResourceVersion: "7"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "image", Args: []string{"<&>"}}}},
	}
	bookmark := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		ResourceVersion: "8",
		Annotations:     map[string]string{metav1.InitialEventsAnnotationKey: "true"},
	}}
	expired := apierrors.NewResourceExpired("too old resource version: 1 (5)").ErrStatus
	events := []watch.Event{
		{Type: watch.Added, Object: added},
		{Type: watch.Bookmark, Object: bookmark},
		{Type: watch.Error, Object: &expired},
	}
	for _, event := range events {
		frame, err := w.watchFrame(runtime.ContentTypeProtobuf, event)
		if err != nil {
			return err
		}
		line, err := w.watchFrame(runtime.ContentTypeJSON, event)
		if err != nil {
			return err
		}
		gvk := podKind
		if event.Type == watch.Error {
			gvk.Kind = "Status"
		}
		w.append(gvk, "watch "+string(event.Type), frame, string(bytes.TrimSuffix(line, []byte("\n"))))
	}
	return nil
}

// What the API server's watchEncoder does (k8s.io/apiserver/pkg/endpoints/handlers/response.go), with the serializers that
// its handler takes (watch.go beside it): the media type's own for the object, and around it the one for streams.
func (w *vectorWriter) watchFrame(mediaType string, event watch.Event) ([]byte, error) {
	codecs := serializer.NewCodecFactory(w.scheme)
	info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), mediaType)
	if !ok || info.StreamSerializer == nil {
		return nil, fmt.Errorf("%s has no streams", mediaType)
	}
	object, err := encode(codecs.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion), event.Object)
	if err != nil {
		return nil, err
	}
	outer := &metav1.WatchEvent{Type: string(event.Type), Object: runtime.RawExtension{Raw: object}}
	message, err := encode(codecs.EncoderForVersion(info.StreamSerializer.Serializer, corev1.SchemeGroupVersion), outer)
	if err != nil {
		return nil, err
	}
	var frame bytes.Buffer
	_, err = info.StreamSerializer.Framer.NewFrameWriter(&frame).Write(message)
	return frame.Bytes(), err
}
