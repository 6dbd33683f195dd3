// Client-go runs one of client-go's shared informers and says in JSON lines what it sees, for peers/compare.
//
// The lines and the commands are those of peers/protocol, which describes them.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"skopos.dev/peers/client-go/peer"
)

func main() {
	arguments := peer.Register(flag.CommandLine)
	lease := flag.String("lease", "", "stand for this Lease instead of watching anything")
	flag.Parse()
	if err := run(arguments, *lease); err != nil {
		fmt.Fprintln(os.Stderr, "client-go:", err)
		os.Exit(1)
	}
}

func run(arguments *peer.Arguments, lease string) error {
	if err := arguments.ChooseWatchList(); err != nil {
		return err
	}
	// What client-go logs is not what it tells its user.
	klog.LogToStderr(false)
	config, err := arguments.RestConfig("peer-client-go")
	if err != nil {
		return err
	}
	if lease != "" {
		return stand(context.Background(), config, lease)
	}
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	out := peer.Start("client-go", arguments)

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	factory := informers.NewSharedInformerFactoryWithOptions(clientset, 0, informers.WithNamespace(arguments.Namespace))
	informer, err := informerOf(factory, arguments.Resource)
	if err != nil {
		return err
	}
	told := func(_ context.Context, _ *cache.Reflector, err error) { out.Told("failing", err.Error()) }
	if err := informer.SetWatchErrorHandlerWithContext(told); err != nil {
		return err
	}
	registration, err := informer.AddEventHandler(out.Handler())
	if err != nil {
		return err
	}
	factory.StartWithContext(ctx)
	go out.WaitForSync(ctx, func() int { return len(informer.GetStore().ListKeys()) }, informer.HasSynced, registration.HasSynced)
	go out.ReportEvery(ctx)
	out.Obey(os.Stdin, informer.GetStore().List)
	cancel()
	factory.Shutdown()
	return nil
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
