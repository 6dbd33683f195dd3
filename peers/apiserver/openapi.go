package main

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// openAPIDefinitions describes every kind as "some object": the real definitions are not published apart from
// kube-apiserver. It is what the registry needs for managedFields; /openapi is not served.
func openAPIDefinitions(common.ReferenceCallback) map[string]common.OpenAPIDefinition {
	definitions := map[string]common.OpenAPIDefinition{}
	for _, r := range resources {
		for _, object := range []runtime.Object{r.newObject(), r.newList()} {
			schema := spec.Schema{
				SchemaProps:      spec.SchemaProps{Type: []string{"object"}},
				VendorExtensible: spec.VendorExtensible{Extensions: spec.Extensions{"x-kubernetes-preserve-unknown-fields": true}},
			}
			definitions[util.GetCanonicalTypeName(object)] = common.OpenAPIDefinition{Schema: schema}
		}
	}
	return definitions
}
