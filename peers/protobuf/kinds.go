package main

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	admissionv1beta1 "k8s.io/api/admission/v1beta1"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apidiscoveryv2beta1 "k8s.io/api/apidiscovery/v2beta1"
	imagepolicyv1alpha1 "k8s.io/api/imagepolicy/v1alpha1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsv1beta1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1beta1 "k8s.io/apimachinery/pkg/apis/meta/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistrationv1beta1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1beta1"
)

// One kind that travels as protobuf.
type kind struct {
	// Where it is registered; of one that every group registers again, the first.
	gvk schema.GroupVersionKind
	// Whether every group registers it again.
	everywhere bool
	goType     reflect.Type
}

// As the table names it.
func (k kind) apiVersion() string {
	if k.everywhere {
		return "*"
	}
	return k.gvk.GroupVersion().String()
}

type protobufMessage interface {
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

var messageInterface = reflect.TypeFor[protobufMessage]()

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	builder := runtime.SchemeBuilder{
		clientscheme.AddToScheme,
		admissionv1.AddToScheme,
		admissionv1beta1.AddToScheme,
		apidiscoveryv2.AddToScheme,
		apidiscoveryv2beta1.AddToScheme,
		imagepolicyv1alpha1.AddToScheme,
		apiextensionsv1.AddToScheme,
		apiextensionsv1beta1.AddToScheme,
		apiregistrationv1.AddToScheme,
		apiregistrationv1beta1.AddToScheme,
		metav1.AddMetaToScheme,
		metav1beta1.AddMetaToScheme,
	}
	return scheme, builder.AddToScheme(scheme)
}

// The kinds of the scheme that have protobuf methods, sorted by apiVersion and kind.
func protobufKinds(scheme *runtime.Scheme) ([]kind, error) {
	registered := map[reflect.Type][]schema.GroupVersionKind{}
	for gvk, goType := range scheme.AllKnownTypes() {
		// TableOptions are parameters of a URL; their methods are an embedded struct's.
		isOptions := goType == reflect.TypeFor[metav1.TableOptions]()
		if gvk.Version != runtime.APIVersionInternal && isMessage(goType) && !isOptions {
			registered[goType] = append(registered[goType], gvk)
		}
	}
	var kinds []kind
	for goType, gvks := range registered {
		slices.SortFunc(gvks, compareGVK)
		if groups(gvks) == 1 || goType.PkgPath() != metav1Package {
			for _, gvk := range gvks {
				kinds = append(kinds, kind{gvk: gvk, goType: goType})
			}
			continue
		}
		if slices.ContainsFunc(gvks, func(gvk schema.GroupVersionKind) bool { return gvk.Kind != gvks[0].Kind }) {
			return nil, fmt.Errorf("%v is registered under several names", goType)
		}
		kinds = append(kinds, kind{gvk: gvks[0], everywhere: true, goType: goType})
	}
	slices.SortFunc(kinds, func(a, b kind) int {
		return cmp.Or(cmp.Compare(a.apiVersion(), b.apiVersion()), cmp.Compare(a.gvk.Kind, b.gvk.Kind))
	})
	return kinds, nil
}

func isMessage(goType reflect.Type) bool {
	return reflect.PointerTo(goType).Implements(messageInterface)
}

func compareGVK(a, b schema.GroupVersionKind) int {
	return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Kind, b.Kind))
}

func groups(gvks []schema.GroupVersionKind) int {
	seen := map[string]bool{}
	for _, gvk := range gvks {
		seen[gvk.Group] = true
	}
	return len(seen)
}
