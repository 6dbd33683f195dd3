package main

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

var (
	scheme = newScheme()
	codecs = serializer.NewCodecFactory(scheme)
)

// newScheme knows the v1 types, and the same types once more as the internal version that the generic registry works
// with: so nothing has to be converted.
func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(corev1.AddToScheme(s))
	utilruntime.Must(appsv1.AddToScheme(s))
	utilruntime.Must(coordinationv1.AddToScheme(s))
	utilruntime.Must(discoveryv1.AddToScheme(s))
	for _, group := range []schema.GroupVersion{core, apps, coordination, discovery} {
		for kind := range s.KnownTypes(group) {
			if !isOfGroup(kind) {
				continue
			}
			object, err := s.New(group.WithKind(kind))
			utilruntime.Must(err)
			s.AddKnownTypeWithName(schema.GroupKind{Group: group.Group, Kind: kind}.WithVersion(runtime.APIVersionInternal), object)
		}
		utilruntime.Must(s.SetVersionPriority(group))
	}
	// Options and Status travel as v1, whatever the group.
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	s.AddUnversionedTypes(schema.GroupVersion{Version: "v1"},
		&metav1.Status{}, &metav1.APIVersions{}, &metav1.APIGroupList{}, &metav1.APIGroup{}, &metav1.APIResourceList{})
	for _, r := range resources {
		utilruntime.Must(s.AddFieldLabelConversionFunc(r.groupVersion.WithKind(r.kind), r.fieldLabel))
	}
	return s
}

// isOfGroup tells the types of a group from those that every group has.
func isOfGroup(kind string) bool {
	common := []string{
		"WatchEvent", "InternalEvent", "ListOptions", "GetOptions", "DeleteOptions", "CreateOptions", "UpdateOptions",
		"PatchOptions", "Status", "APIVersions", "APIGroupList", "APIGroup", "APIResourceList",
	}
	return !slices.Contains(common, kind)
}

// fieldLabel says whether a field selector may name a field.
func (r *resource) fieldLabel(label, value string) (string, string, error) {
	if label == "metadata.name" || label == "metadata.namespace" {
		return label, value, nil
	}
	if _, known := r.fields[label]; known {
		return label, value, nil
	}
	if len(r.fields) > 0 {
		return "", "", fmt.Errorf("field label not supported: %s", label)
	}
	return runtime.DefaultMetaV1FieldSelectorConversion(label, value)
}
