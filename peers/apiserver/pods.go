package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/utils/ptr"
)

const (
	podNamespaces = 20
	podsPerSet    = 5
	podNodes      = 200
)

// loadPods stores n pods like those of the test server's generator: some 4 KB of JSON each, in 20 namespaces, five to a
// ReplicaSet, on 200 nodes. They go straight into the storage, as they were in a cluster: running.
func (s *server) loadPods(ctx context.Context, n int, managed bool) error {
	for i := range min(n, podNamespaces) {
		if err := s.createNamespace(ctx, podNamespace(i)); err != nil {
			return err
		}
	}
	workers, ctx := errgroup.WithContext(ctx)
	workers.SetLimit(32)
	for i := range n {
		workers.Go(func() error {
			pod := generatedPod(i)
			if !managed {
				pod.ManagedFields = nil
			}
			ctx := request.WithNamespace(ctx, pod.Namespace)
			key, err := s.pods.KeyFunc(ctx, pod.Name)
			if err != nil {
				return err
			}
			return s.pods.Storage.Create(ctx, key, pod, &corev1.Pod{}, 0, false)
		})
	}
	return workers.Wait()
}

func podNamespace(i int) string { return fmt.Sprintf("team-%02d", i%podNamespaces) }

// generatedPod gives pod number i: always the same.
func generatedPod(i int) *corev1.Pod {
	set := i / podsPerSet
	shared, own := rand.New(rand.NewPCG(1, uint64(set))), rand.New(rand.NewPCG(2, uint64(i)))
	app := []string{"api", "auth", "billing", "cart", "catalog", "checkout", "gateway", "ingest"}[set%8]
	replicaSet := fmt.Sprintf("%s-%s", app, letters(shared, 10))
	version := fmt.Sprintf("%d.%d.%d", 1+shared.IntN(4), shared.IntN(30), shared.IntN(10))
	owner := uid(shared)
	node := own.IntN(podNodes)
	created := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(-time.Duration(60+own.IntN(30*24*3600)) * time.Second))
	image := fmt.Sprintf("registry.example.com/core/%s:%s", app, version)
	token := "kube-api-access-" + letters(own, 5)
	ip := fmt.Sprintf("10.%d.%d.%d", node%250, i/250%250, i%250+1)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:              fmt.Sprintf("%s-%05d", replicaSet, i),
			GenerateName:      replicaSet + "-",
			Namespace:         podNamespace(set),
			UID:               uid(own),
			CreationTimestamp: created,
			Generation:        1,
			Labels: map[string]string{
				"app.kubernetes.io/name": app, "app.kubernetes.io/part-of": "core", "app.kubernetes.io/version": version,
				"pod-template-hash": replicaSet[len(app)+1:], "tier": []string{"backend", "frontend", "worker"}[set%3],
			},
			Annotations: map[string]string{"prometheus.io/port": "9090", "prometheus.io/scrape": "true"},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "ReplicaSet", Name: replicaSet, UID: owner,
				Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
			}},
			ManagedFields: []metav1.ManagedFieldsEntry{
				managed("kube-controller-manager", "", created, fmt.Sprintf(createdFields, owner)),
				managed("kubelet", "status", created, statusFields),
			},
		},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{
				Name: "app", Image: image, ImagePullPolicy: corev1.PullIfNotPresent,
				Env:   []corev1.EnvVar{{Name: "LOG_LEVEL", Value: "info"}},
				Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}},
				ReadinessProbe: &corev1.Probe{
					ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
						Path: "/ready", Port: intstr.FromString("http"), Scheme: corev1.URISchemeHTTP,
					}},
					PeriodSeconds: 10, TimeoutSeconds: 1, SuccessThreshold: 1, FailureThreshold: 3,
				},
				Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{
						corev1.ResourceCPU:    *quantity.NewMilliQuantity(int64(50*(1+own.IntN(19))), quantity.DecimalSI),
						corev1.ResourceMemory: *quantity.NewQuantity(int64(64*(1+own.IntN(31)))<<20, quantity.BinarySI),
					},
				},
				TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: corev1.TerminationMessageReadFile,
				VolumeMounts: []corev1.VolumeMount{{
					Name: token, MountPath: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true,
				}},
			}},
			DNSPolicy: corev1.DNSClusterFirst, EnableServiceLinks: ptr.To(true), NodeName: fmt.Sprintf("node-%03d", node),
			PreemptionPolicy: ptr.To(corev1.PreemptLowerPriority), Priority: ptr.To[int32](0),
			RestartPolicy: corev1.RestartPolicyAlways, SchedulerName: corev1.DefaultSchedulerName,
			SecurityContext: &corev1.PodSecurityContext{}, ServiceAccountName: "default", DeprecatedServiceAccount: "default",
			TerminationGracePeriodSeconds: ptr.To[int64](30),
			Tolerations:                   []corev1.Toleration{toleration("not-ready"), toleration("unreachable")},
			Volumes: []corev1.Volume{{Name: token, VolumeSource: corev1.VolumeSource{
				Projected: &corev1.ProjectedVolumeSource{
					DefaultMode: ptr.To[int32](420),
					Sources: []corev1.VolumeProjection{
						{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{ExpirationSeconds: ptr.To[int64](3607), Path: "token"}},
						{ConfigMap: &corev1.ConfigMapProjection{
							LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"},
							Items:                []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
						}},
					},
				},
			}}},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning,
			Conditions: []corev1.PodCondition{
				condition(corev1.PodScheduled, created), condition(corev1.PodInitialized, created),
				condition(corev1.ContainersReady, created), condition(corev1.PodReady, created),
			},
			ContainerStatuses: []corev1.ContainerStatus{{
				Name: "app", ContainerID: "containerd://" + hex(own, 64), Image: image,
				ImageID: fmt.Sprintf("registry.example.com/core/%s@sha256:%s", app, hex(shared, 64)),
				Ready:   true, Started: ptr.To(true),
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: created}},
			}},
			HostIP: fmt.Sprintf("172.16.0.%d", node+1), PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}},
			QOSClass: corev1.PodQOSBurstable, StartTime: &created,
		},
	}
}

func managed(manager, subresource string, at metav1.Time, fields string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{
		Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &at,
		Subresource: subresource, FieldsType: "FieldsV1", FieldsV1: &metav1.FieldsV1{Raw: []byte(fields)},
	}
}

func toleration(of string) corev1.Toleration {
	return corev1.Toleration{
		Key: "node.kubernetes.io/" + of, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute,
		TolerationSeconds: ptr.To[int64](300),
	}
}

func condition(kind corev1.PodConditionType, since metav1.Time) corev1.PodCondition {
	return corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: since}
}

func uid(random *rand.Rand) types.UID {
	return types.UID(fmt.Sprintf("%s-%s-4%s-8%s-%s", hex(random, 8), hex(random, 4), hex(random, 3), hex(random, 3), hex(random, 12)))
}

func hex(random *rand.Rand, n int) string { return pick(random, "0123456789abcdef", n) }

// letters are those that Kubernetes makes names of.
func letters(random *rand.Rand, n int) string { return pick(random, "bcdfghjklmnpqrstvwxz2456789", n) }

func pick(random *rand.Rand, from string, n int) string {
	text := make([]byte, n)
	for i := range text {
		text[i] = from[random.IntN(len(from))]
	}
	return string(text)
}

const (
	createdFields = `{"f:metadata":{"f:annotations":{".":{},"f:prometheus.io/port":{},"f:prometheus.io/scrape":{}},` +
		`"f:generateName":{},"f:labels":{".":{},"f:app.kubernetes.io/name":{},"f:app.kubernetes.io/part-of":{},` +
		`"f:app.kubernetes.io/version":{},"f:pod-template-hash":{},"f:tier":{}},"f:ownerReferences":{".":{},` +
		`"k:{\"uid\":\"%s\"}":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"app\"}":{".":{},"f:image":{},` +
		`"f:imagePullPolicy":{},"f:name":{},"f:ports":{".":{},"k:{\"containerPort\":8080,\"protocol\":\"TCP\"}":{".":{},` +
		`"f:containerPort":{},"f:name":{},"f:protocol":{}}},"f:resources":{".":{},"f:limits":{".":{},"f:memory":{}},` +
		`"f:requests":{".":{},"f:cpu":{},"f:memory":{}}}}},"f:dnsPolicy":{},"f:restartPolicy":{},"f:schedulerName":{},` +
		`"f:terminationGracePeriodSeconds":{}}}`
	statusFields = `{"f:status":{"f:conditions":{"k:{\"type\":\"ContainersReady\"}":{".":{},"f:lastTransitionTime":{},` +
		`"f:status":{},"f:type":{}},"k:{\"type\":\"Ready\"}":{".":{},"f:lastTransitionTime":{},"f:status":{},"f:type":{}}},` +
		`"f:containerStatuses":{},"f:hostIP":{},"f:phase":{},"f:podIP":{},"f:startTime":{}}}`
)
