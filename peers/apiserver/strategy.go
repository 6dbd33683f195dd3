package main

import (
	"context"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage/names"
)

// strategy is what the generic registry asks about a resource. It does what the list and watch contract can show:
// status apart from the rest, generations, the grace of pods. The kinds' own defaults and validations (beyond that of
// the metadata) are not here: they are not part of the published libraries.
type strategy struct {
	*runtime.Scheme
	names.NameGenerator
	resource *resource
}

var (
	_ rest.RESTCreateStrategy         = strategy{}
	_ rest.RESTUpdateStrategy         = strategy{}
	_ rest.RESTGracefulDeleteStrategy = strategy{}
)

func newStrategy(r *resource) strategy {
	return strategy{scheme, names.SimpleNameGenerator, r}
}

func (s strategy) NamespaceScoped() bool { return !s.resource.cluster }

func (s strategy) PrepareForCreate(_ context.Context, object runtime.Object) {
	if s.resource.hasStatus {
		part(object, "Status").SetZero()
	}
	if s.resource.hasGeneration {
		accessor(object).SetGeneration(1)
	}
	switch object := object.(type) {
	case *corev1.Pod:
		object.Status.Phase = corev1.PodPending
	case *corev1.Namespace:
		object.Status.Phase = corev1.NamespaceActive
		object.Spec.Finalizers = []corev1.FinalizerName{corev1.FinalizerKubernetes}
	case *corev1.Secret:
		if object.Type == "" {
			object.Type = corev1.SecretTypeOpaque
		}
	}
}

func (s strategy) PrepareForUpdate(_ context.Context, object, old runtime.Object) {
	if s.resource.hasStatus {
		part(object, "Status").Set(part(old, "Status"))
	}
	if !s.resource.hasGeneration {
		return
	}
	generation := accessor(old).GetGeneration()
	if !equality.Semantic.DeepEqual(part(object, "Spec").Interface(), part(old, "Spec").Interface()) {
		generation++
	}
	accessor(object).SetGeneration(generation)
}

// CheckGracefulDelete gives pods that a node runs their time.
func (s strategy) CheckGracefulDelete(_ context.Context, object runtime.Object, options *metav1.DeleteOptions) bool {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return false
	}
	grace := int64(corev1.DefaultTerminationGracePeriodSeconds)
	switch {
	case options.GracePeriodSeconds != nil:
		grace = *options.GracePeriodSeconds
	case pod.Spec.TerminationGracePeriodSeconds != nil:
		grace = *pod.Spec.TerminationGracePeriodSeconds
	}
	if pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		grace = 0
	}
	if grace < 0 {
		grace = 1
	}
	options.GracePeriodSeconds = &grace
	return true
}

func (strategy) DefaultGarbageCollectionPolicy(context.Context) rest.GarbageCollectionPolicy {
	return rest.DeleteDependents
}

// Validate looks at the metadata, as the validation of most kinds begins.
func (s strategy) Validate(_ context.Context, object runtime.Object) field.ErrorList {
	return validation.ValidateObjectMetaAccessor(accessor(object), !s.resource.cluster, validation.NameIsDNSSubdomain, field.NewPath("metadata"))
}

func (s strategy) ValidateUpdate(_ context.Context, object, old runtime.Object) field.ErrorList {
	path := field.NewPath("metadata")
	problems := validation.ValidateObjectMetaAccessorUpdate(accessor(object), accessor(old), path)
	return append(problems, validation.ValidateObjectMetaAccessor(accessor(object), !s.resource.cluster, validation.NameIsDNSSubdomain, path)...)
}

func (strategy) WarningsOnCreate(context.Context, runtime.Object) []string { return nil }
func (strategy) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string {
	return nil
}
func (strategy) Canonicalize(runtime.Object)                   {}
func (strategy) AllowCreateOnUpdate(context.Context) bool      { return false }
func (strategy) AllowUnconditionalUpdate(context.Context) bool { return true }

// statusStrategy changes nothing but the status.
type statusStrategy struct{ strategy }

func (s statusStrategy) PrepareForUpdate(_ context.Context, object, old runtime.Object) {
	status := reflect.New(part(object, "Status").Type()).Elem()
	status.Set(part(object, "Status"))
	kept, managers := old.DeepCopyObject(), accessor(object).GetManagedFields()
	version := accessor(object).GetResourceVersion()
	reflect.ValueOf(object).Elem().Set(reflect.ValueOf(kept).Elem())
	part(object, "Status").Set(status)
	accessor(object).SetManagedFields(managers)
	accessor(object).SetResourceVersion(version)
}

func part(object runtime.Object, name string) reflect.Value {
	return reflect.ValueOf(object).Elem().FieldByName(name)
}

func accessor(object runtime.Object) metav1.Object {
	metadata, err := meta.Accessor(object)
	if err != nil {
		panic(err)
	}
	return metadata
}
