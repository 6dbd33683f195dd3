// Command apiserver is a Kubernetes API server made of the published libraries: the generic registry, the watch cache
// and an embedded etcd of k8s.io/apiserver, serving core/v1, apps/v1, leases and EndpointSlices on loopback. It is what Skopos is measured
// against: the real list and watch code, in one process, without a cluster.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/klog/v2"
)

// options are what the command line says.
type options struct {
	port         int
	dataDir      string
	kubeconfig   string
	token        string
	watchCache   bool
	pods         int
	managed      bool
	fsync        bool
	shutdownSecs int
	goawayChance float64
	requestLog   string
}

func main() {
	var o options
	flag.IntVar(&o.port, "port", 0, "the port on 127.0.0.1; 0 is any free one")
	flag.StringVar(&o.dataDir, "data-dir", "", "where etcd and the certificate live; a temporary directory, removed at the end, unless set")
	flag.StringVar(&o.kubeconfig, "kubeconfig-out", "", "write a kubeconfig to this file once the server is ready")
	flag.StringVar(&o.token, "token", "", "demand this bearer token; everybody is let in unless set")
	flag.BoolVar(&o.watchCache, "watch-cache", true, "serve lists and watches from the watch cache; otherwise from etcd alone")
	flag.IntVar(&o.pods, "pods", 0, "store this many generated pods before the server is ready")
	flag.BoolVar(&o.managed, "managed-fields", true, "give the generated pods managedFields; caches leave them out")
	flag.BoolVar(&o.fsync, "fsync", false, "let etcd wait for the disk, as it does in production")
	flag.IntVar(&o.shutdownSecs, "shutdown-seconds", 2, "how long open requests are waited for when the server is told to stop")
	flag.Float64Var(&o.goawayChance, "goaway-chance", 0, "how likely an answer asks the client to connect anew; a kube-apiserver takes up to 0.02")
	flag.StringVar(&o.requestLog, "request-log", "", "append a line for each request to this file")
	verbose := flag.Bool("verbose", false, "let the libraries log more than errors")
	flag.Parse()
	logErrorsOnly(!*verbose)

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "apiserver:", err)
		os.Exit(1)
	}
}

// logErrorsOnly sends errors of the libraries to stderr, and the rest nowhere.
func logErrorsOnly(yes bool) {
	if !yes {
		return
	}
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
}

// run serves until the context ends.
func run(ctx context.Context, o options) error {
	if o.dataDir == "" {
		dir, err := os.MkdirTemp("", "skopos-apiserver-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		o.dataDir = dir
	}
	etcd, err := startEtcd(o)
	if err != nil {
		return fmt.Errorf("etcd does not start: %w", err)
	}
	defer etcd.close()

	server, err := newServer(o, etcd)
	if err != nil {
		return fmt.Errorf("the server cannot be set up: %w", err)
	}
	stopped := make(chan error, 1)
	serving, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { stopped <- server.run(serving) }()

	if err := server.makeReady(serving, o); err != nil {
		cancel()
		<-stopped
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	fmt.Printf("ready %s\n", server.url)
	return <-stopped
}
