// Client-go runs one of client-go's shared informers and says in JSON lines what it sees, for peers/compare.
//
// The lines and the commands are those of peers/protocol, which describes them.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

type options struct {
	kubeconfig  string
	resource    string
	namespace   string
	syncTimeout time.Duration
	reportEvery time.Duration
	watchList   string
	encoding    string
	events      string
	mark        string
	lease       string
}

func main() {
	if err := run(parse()); err != nil {
		fmt.Fprintln(os.Stderr, "client-go:", err)
		os.Exit(1)
	}
}

func parse() options {
	var o options
	seconds := func(name string, value float64, usage string) *float64 { return flag.Float64(name, value, usage) }
	flag.StringVar(&o.kubeconfig, "kubeconfig", "", "the server")
	flag.StringVar(&o.resource, "resource", "pods", "pods or configmaps")
	flag.StringVar(&o.namespace, "namespace", "", "only this namespace")
	syncTimeout := seconds("sync-timeout", 30, "seconds to wait for the first sync")
	reportEvery := seconds("report-every", 0, "seconds between usage lines; 0: none")
	flag.StringVar(&o.watchList, "watch-list", "default", "default, on or off")
	flag.StringVar(&o.encoding, "encoding", "protobuf", "protobuf or json")
	flag.StringVar(&o.events, "events", "all", "which events are written: all, live or none")
	flag.StringVar(&o.mark, "mark", "", "write the event of this object, and a usage line")
	flag.StringVar(&o.lease, "lease", "", "stand for this Lease instead of watching anything")
	flag.Parse()
	o.syncTimeout = time.Duration(*syncTimeout * float64(time.Second))
	o.reportEvery = time.Duration(*reportEvery * float64(time.Second))
	return o
}

func run(o options) error {
	if err := chooseWatchList(o.watchList); err != nil {
		return err
	}
	// What client-go logs is not what it tells its user.
	klog.LogToStderr(false)
	config, err := restConfig(o)
	if err != nil {
		return err
	}
	if o.lease != "" {
		return stand(context.Background(), config, o.lease)
	}
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	out := newReporter(o)
	out.start()

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	factory := informers.NewSharedInformerFactoryWithOptions(clientset, 0, informers.WithNamespace(o.namespace))
	informer, err := informerOf(factory, o.resource)
	if err != nil {
		return err
	}
	told := func(_ context.Context, _ *cache.Reflector, err error) { out.told("failing", err.Error()) }
	if err := informer.SetWatchErrorHandlerWithContext(told); err != nil {
		return err
	}
	registration, err := informer.AddEventHandler(out.handler())
	if err != nil {
		return err
	}
	factory.StartWithContext(ctx)
	go waitForSync(ctx, out, informer, registration, o.syncTimeout)
	if o.reportEvery > 0 {
		go out.reportEvery(ctx, o.reportEvery)
	}
	out.obey(os.Stdin, informer.GetStore())
	cancel()
	factory.Shutdown()
	return nil
}

// chooseWatchList has to come before anything asks for a feature gate, as they are read once.
func chooseWatchList(choice string) error {
	switch choice {
	case "default":
		return nil
	case "on":
		return os.Setenv("KUBE_FEATURE_WatchListClient", "true")
	case "off":
		return os.Setenv("KUBE_FEATURE_WatchListClient", "false")
	}
	return fmt.Errorf("--watch-list is default, on or off, not %q", choice)
}

func restConfig(o options) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return nil, err
	}
	config.UserAgent = "peer-client-go"
	switch o.encoding {
	case "json":
		// Said aloud: clients of built-in types ask for protobuf by themselves.
		config.ContentType = runtime.ContentTypeJSON
		config.AcceptContentTypes = runtime.ContentTypeJSON
	case "protobuf":
		// As kube-controller-manager sets it: JSON where the server has no protobuf.
		config.ContentType = runtime.ContentTypeProtobuf
		config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	default:
		return nil, fmt.Errorf("--encoding is protobuf or json, not %q", o.encoding)
	}
	return config, nil
}

func informerOf(factory informers.SharedInformerFactory, resource string) (cache.SharedIndexInformer, error) {
	switch resource {
	case "pods":
		return factory.Core().V1().Pods().Informer(), nil
	case "configmaps":
		return factory.Core().V1().ConfigMaps().Informer(), nil
	}
	return nil, fmt.Errorf("--resource is pods or configmaps, not %q", resource)
}

// waitForSync waits as long as the user is willing to, and says when that was in vain; then it waits on.
func waitForSync(ctx context.Context, out *reporter, informer cache.SharedIndexInformer,
	registration cache.ResourceEventHandlerRegistration, timeout time.Duration) {
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if !cache.WaitForCacheSync(bounded.Done(), informer.HasSynced, registration.HasSynced) && ctx.Err() == nil {
		// WaitForCacheSync returns false, and nothing else.
		out.syncTimeout("")
	}
	if cache.WaitForCacheSync(ctx.Done(), informer.HasSynced, registration.HasSynced) {
		out.synced(len(informer.GetStore().ListKeys()))
	}
}

// objectOf takes a pod, a config map or the tombstone of one.
func objectOf(obj any) (metav1.Object, bool) {
	switch obj := obj.(type) {
	case *corev1.Pod:
		return obj, true
	case *corev1.ConfigMap:
		return obj, true
	case cache.DeletedFinalStateUnknown:
		return objectOf(obj.Obj)
	}
	return nil, false
}
