// Controller-runtime runs a controller of controller-runtime at the job that the compared controllers have: peers/protocol/src/job.rs says
// which, and peers/protocol describes the flags and lines. With --informer it runs a manager that says what its cache sees.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"os"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	apply "k8s.io/client-go/applyconfigurations/core/v1"
	applymeta "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"skopos.dev/peers/client-go/peer"
)

type options struct {
	*peer.Arguments
	informer       bool
	workers        int
	readYourWrites bool
}

func main() {
	flags := flag.NewFlagSet("controller-runtime", flag.ExitOnError)
	o := options{Arguments: peer.Register(flags)}
	flags.BoolVar(&o.informer, "informer", false, "watch a resource by a manager's cache instead of the job")
	flags.IntVar(&o.workers, "workers", 16, "the most reconciliations at the same time")
	flags.BoolVar(&o.readYourWrites, "read-your-writes", false, "let reads from the cache wait for the writes of this program")
	_ = flags.Parse(os.Args[1:])
	program := run
	if o.informer {
		program = inform
	}
	if err := program(o); err != nil {
		fmt.Fprintln(os.Stderr, "controller-runtime:", err)
		os.Exit(1)
	}
}

func run(o options) error {
	// What is logged tells nobody anything here, and costs.
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	config, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	if err != nil {
		return err
	}
	config.UserAgent = "peer-controller-runtime"
	// No limit of its own.
	config.QPS = -1
	counts := startTally()
	manager, err := newManager(config, o)
	if err != nil {
		return err
	}
	reconciler := &reconciler{client: manager.GetClient(), tally: counts}
	err = ctrl.NewControllerManagedBy(manager).
		Named("children").
		For(&corev1.ConfigMap{}, builder.WithPredicates(predicate.NewPredicateFuncs(isParent))).
		Owns(&corev1.ConfigMap{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: o.workers}).
		Complete(reconciler)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		counts.obey(os.Stdin)
		cancel()
	}()
	return manager.Start(ctx)
}

func newManager(config *rest.Config, o options) (ctrl.Manager, error) {
	everything, err := labels.Parse("job")
	if err != nil {
		return nil, err
	}
	return ctrl.NewManager(config, ctrl.Options{
		Cache: cache.Options{
			DefaultNamespaces: map[string]cache.Config{"default": {}},
			ByObject:          map[client.Object]cache.ByObject{&corev1.ConfigMap{}: {Label: everything}},
		},
		Client: client.Options{
			Cache: &client.CacheOptions{EnableReadYourWritesConsistency: &o.readYourWrites},
		},
		Metrics: metricsserver.Options{BindAddress: "0"},
	})
}

func isParent(object client.Object) bool { return object.GetLabels()["job"] == "parent" }

type reconciler struct {
	client client.Client
	tally  *tally
}

// Reconcile lets the child of a parent be as it is wanted.
func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	wrote, err := r.reconcile(ctx, request)
	r.tally.ended(wrote, err)
	return ctrl.Result{}, err
}

// reconcile applies the child if it is not as it is wanted, and tells whether it did.
func (r *reconciler) reconcile(ctx context.Context, request ctrl.Request) (bool, error) {
	var parent, child corev1.ConfigMap
	if err := r.client.Get(ctx, request.NamespacedName, &parent); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	key := client.ObjectKey{Namespace: parent.Namespace, Name: parent.Name + "-child"}
	value := childValue(parent.Data["value"])
	err := r.client.Get(ctx, key, &child)
	if err != nil && !errors.IsNotFound(err) {
		return false, err
	}
	if err == nil && isRight(&child, &parent, value) {
		return false, nil
	}
	err = r.client.Apply(ctx, wanted(&parent, key.Name, value), client.FieldOwner("peer-controller-runtime"), client.ForceOwnership)
	return err == nil, err
}

func childValue(value string) string {
	hash := sha256.Sum256([]byte(value))
	return value + " " + hex.EncodeToString(hash[:])
}

func isRight(child, parent *corev1.ConfigMap, value string) bool {
	owners := child.OwnerReferences
	return len(child.Data) == 1 && child.Data["value"] == value &&
		len(owners) == 1 && owners[0].UID == parent.UID && owners[0].Controller != nil && *owners[0].Controller
}

func wanted(parent *corev1.ConfigMap, name, value string) *apply.ConfigMapApplyConfiguration {
	owner := applymeta.OwnerReference().WithAPIVersion("v1").WithKind("ConfigMap").WithName(parent.Name).WithUID(parent.UID).
		WithController(true).WithBlockOwnerDeletion(true)
	return apply.ConfigMap(name, parent.Namespace).
		WithLabels(map[string]string{"job": "child"}).
		WithOwnerReferences(owner).
		WithData(map[string]string{"value": value})
}
