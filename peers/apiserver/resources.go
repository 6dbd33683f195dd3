package main

import (
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// resource is one of the served resources.
type resource struct {
	groupVersion schema.GroupVersion
	plural       string
	singular     string
	kind         string
	shortNames   []string
	cluster      bool
	// hasStatus: there is a status subresource, and the object itself cannot change the status.
	hasStatus bool
	// hasGeneration: metadata.generation counts the changes of the spec.
	hasGeneration bool
	// uncached: lists and watches come from etcd alone.
	uncached  bool
	newObject func() runtime.Object
	newList   func() runtime.Object
	// fields are what field selectors may name beside name and namespace.
	fields map[string]func(runtime.Object) string
}

var (
	core         = corev1.SchemeGroupVersion
	apps         = appsv1.SchemeGroupVersion
	coordination = coordinationv1.SchemeGroupVersion
	discovery    = discoveryv1.SchemeGroupVersion
)

var resources = []*resource{
	{groupVersion: core, plural: "configmaps", singular: "configmap", kind: "ConfigMap", shortNames: []string{"cm"},
		newObject: of[corev1.ConfigMap](), newList: of[corev1.ConfigMapList]()},
	{groupVersion: core, plural: "endpoints", singular: "endpoints", kind: "Endpoints", shortNames: []string{"ep"},
		newObject: of[corev1.Endpoints](), newList: of[corev1.EndpointsList]()},
	// As in kube-apiserver, which has no watch cache for them: their watches bring no bookmarks.
	{groupVersion: core, plural: "events", singular: "event", kind: "Event", shortNames: []string{"ev"}, uncached: true,
		newObject: of[corev1.Event](), newList: of[corev1.EventList](), fields: eventFields},
	{groupVersion: core, plural: "namespaces", singular: "namespace", kind: "Namespace", shortNames: []string{"ns"},
		cluster: true, hasStatus: true, newObject: of[corev1.Namespace](), newList: of[corev1.NamespaceList](),
		fields: map[string]func(runtime.Object) string{
			"name":         func(o runtime.Object) string { return o.(*corev1.Namespace).Name },
			"status.phase": func(o runtime.Object) string { return string(o.(*corev1.Namespace).Status.Phase) },
		}},
	{groupVersion: core, plural: "nodes", singular: "node", kind: "Node", shortNames: []string{"no"},
		cluster: true, hasStatus: true, newObject: of[corev1.Node](), newList: of[corev1.NodeList](),
		fields: map[string]func(runtime.Object) string{
			"spec.unschedulable": func(o runtime.Object) string {
				return strconv.FormatBool(o.(*corev1.Node).Spec.Unschedulable)
			},
		}},
	{groupVersion: core, plural: "pods", singular: "pod", kind: "Pod", shortNames: []string{"po"},
		hasStatus: true, hasGeneration: true, newObject: of[corev1.Pod](), newList: of[corev1.PodList](),
		fields: podFields},
	{groupVersion: core, plural: "secrets", singular: "secret", kind: "Secret",
		newObject: of[corev1.Secret](), newList: of[corev1.SecretList](),
		fields: map[string]func(runtime.Object) string{
			"type": func(o runtime.Object) string { return string(o.(*corev1.Secret).Type) },
		}},
	{groupVersion: core, plural: "serviceaccounts", singular: "serviceaccount", kind: "ServiceAccount", shortNames: []string{"sa"},
		newObject: of[corev1.ServiceAccount](), newList: of[corev1.ServiceAccountList]()},
	{groupVersion: core, plural: "services", singular: "service", kind: "Service", shortNames: []string{"svc"},
		hasStatus: true, newObject: of[corev1.Service](), newList: of[corev1.ServiceList](),
		fields: map[string]func(runtime.Object) string{
			"spec.clusterIP": func(o runtime.Object) string { return o.(*corev1.Service).Spec.ClusterIP },
			"spec.type":      func(o runtime.Object) string { return string(o.(*corev1.Service).Spec.Type) },
		}},
	{groupVersion: apps, plural: "daemonsets", singular: "daemonset", kind: "DaemonSet", shortNames: []string{"ds"},
		hasStatus: true, hasGeneration: true, newObject: of[appsv1.DaemonSet](), newList: of[appsv1.DaemonSetList]()},
	{groupVersion: apps, plural: "deployments", singular: "deployment", kind: "Deployment", shortNames: []string{"deploy"},
		hasStatus: true, hasGeneration: true, newObject: of[appsv1.Deployment](), newList: of[appsv1.DeploymentList]()},
	{groupVersion: apps, plural: "replicasets", singular: "replicaset", kind: "ReplicaSet", shortNames: []string{"rs"},
		hasStatus: true, hasGeneration: true, newObject: of[appsv1.ReplicaSet](), newList: of[appsv1.ReplicaSetList](),
		fields: map[string]func(runtime.Object) string{
			"status.replicas": func(o runtime.Object) string {
				return strconv.Itoa(int(o.(*appsv1.ReplicaSet).Status.Replicas))
			},
		}},
	{groupVersion: apps, plural: "statefulsets", singular: "statefulset", kind: "StatefulSet", shortNames: []string{"sts"},
		hasStatus: true, hasGeneration: true, newObject: of[appsv1.StatefulSet](), newList: of[appsv1.StatefulSetList]()},
	{groupVersion: coordination, plural: "leases", singular: "lease", kind: "Lease",
		newObject: of[coordinationv1.Lease](), newList: of[coordinationv1.LeaseList]()},
	{groupVersion: discovery, plural: "endpointslices", singular: "endpointslice", kind: "EndpointSlice",
		newObject: of[discoveryv1.EndpointSlice](), newList: of[discoveryv1.EndpointSliceList]()},
}

var podFields = map[string]func(runtime.Object) string{
	"spec.nodeName":      func(o runtime.Object) string { return o.(*corev1.Pod).Spec.NodeName },
	"spec.restartPolicy": func(o runtime.Object) string { return string(o.(*corev1.Pod).Spec.RestartPolicy) },
	"spec.schedulerName": func(o runtime.Object) string { return o.(*corev1.Pod).Spec.SchedulerName },
	"spec.serviceAccountName": func(o runtime.Object) string {
		return o.(*corev1.Pod).Spec.ServiceAccountName
	},
	"spec.hostNetwork": func(o runtime.Object) string {
		return strconv.FormatBool(o.(*corev1.Pod).Spec.HostNetwork)
	},
	"status.phase":             func(o runtime.Object) string { return string(o.(*corev1.Pod).Status.Phase) },
	"status.podIP":             func(o runtime.Object) string { return o.(*corev1.Pod).Status.PodIP },
	"status.nominatedNodeName": func(o runtime.Object) string { return o.(*corev1.Pod).Status.NominatedNodeName },
}

var eventFields = map[string]func(runtime.Object) string{
	"involvedObject.kind":      func(o runtime.Object) string { return o.(*corev1.Event).InvolvedObject.Kind },
	"involvedObject.namespace": func(o runtime.Object) string { return o.(*corev1.Event).InvolvedObject.Namespace },
	"involvedObject.name":      func(o runtime.Object) string { return o.(*corev1.Event).InvolvedObject.Name },
	"involvedObject.uid":       func(o runtime.Object) string { return string(o.(*corev1.Event).InvolvedObject.UID) },
	"reason":                   func(o runtime.Object) string { return o.(*corev1.Event).Reason },
	"source":                   func(o runtime.Object) string { return o.(*corev1.Event).Source.Component },
	"type":                     func(o runtime.Object) string { return o.(*corev1.Event).Type },
}

func of[T any, P interface {
	*T
	runtime.Object
}]() func() runtime.Object {
	return func() runtime.Object { return P(new(T)) }
}

func (r *resource) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: r.groupVersion.Group, Resource: r.plural}
}
