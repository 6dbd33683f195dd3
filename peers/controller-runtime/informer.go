package main

import (
	"context"
	"fmt"
	"os"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"skopos.dev/peers/client-go/peer"
)

// inform runs a manager with its defaults, and says what the cache sees that all its controllers read from.
func inform(o options) error {
	if err := o.ChooseWatchList(); err != nil {
		return err
	}
	// What is logged is not what a library tells its user.
	ctrl.SetLogger(logr.Discard())
	klog.LogToStderr(false)
	config, err := o.RestConfig("peer-controller-runtime")
	if err != nil {
		return err
	}
	object, newList, err := kindOf(o.Resource)
	if err != nil {
		return err
	}
	out := peer.Start("controller-runtime", o.Arguments)
	told := func(_ context.Context, _ *toolscache.Reflector, err error) { out.Told("failing", err.Error()) }
	options := cache.Options{DefaultWatchErrorHandler: told}
	if o.Namespace != "" {
		options.DefaultNamespaces = map[string]cache.Config{o.Namespace: {}}
	}
	manager, err := ctrl.NewManager(config, ctrl.Options{Cache: options, Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	informer, err := manager.GetCache().GetInformer(ctx, object, cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	registration, err := informer.AddEventHandler(out.Handler())
	if err != nil {
		return err
	}
	items := func() []any {
		list := newList()
		if err := manager.GetClient().List(ctx, list); err != nil {
			out.Told("failing", err.Error())
			return nil
		}
		return itemsOf(list)
	}
	go out.WaitForSync(ctx, func() int { return len(items()) }, registration.HasSynced)
	go out.ReportEvery(ctx)
	out.Obey(os.Stdin, items)
	cancel()
	return <-ended
}

func kindOf(resource string) (client.Object, func() client.ObjectList, error) {
	switch resource {
	case "pods":
		return &corev1.Pod{}, func() client.ObjectList { return &corev1.PodList{} }, nil
	case "configmaps":
		return &corev1.ConfigMap{}, func() client.ObjectList { return &corev1.ConfigMapList{} }, nil
	}
	return nil, nil, fmt.Errorf("--resource is pods or configmaps, not %q", resource)
}

func itemsOf(list client.ObjectList) []any {
	var items []any
	_ = meta.EachListItem(list, func(item runtime.Object) error {
		items = append(items, item)
		return nil
	})
	return items
}
