// Package peer has what the informers written in Go share: the flags, lines and commands that peers/protocol describes.
package peer

import (
	"flag"
	"fmt"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Arguments are the flags of every informer.
type Arguments struct {
	Kubeconfig  string
	Resource    string
	Namespace   string
	SyncTimeout time.Duration
	ReportEvery time.Duration
	WatchList   string
	Encoding    string
	Events      string
	Mark        string
}

// Register adds the flags to a set.
func Register(flags *flag.FlagSet) *Arguments {
	a := &Arguments{SyncTimeout: 30 * time.Second}
	seconds := func(to *time.Duration, name, usage string) {
		flags.Func(name, usage, func(text string) error {
			value, err := time.ParseDuration(text + "s")
			*to = value
			return err
		})
	}
	flags.StringVar(&a.Kubeconfig, "kubeconfig", "", "the server")
	flags.StringVar(&a.Resource, "resource", "pods", "pods or configmaps")
	flags.StringVar(&a.Namespace, "namespace", "", "only this namespace")
	seconds(&a.SyncTimeout, "sync-timeout", "seconds to wait for the first sync (default 30)")
	seconds(&a.ReportEvery, "report-every", "seconds between usage lines; 0: none")
	flags.StringVar(&a.WatchList, "watch-list", "default", "default, on or off")
	flags.StringVar(&a.Encoding, "encoding", "protobuf", "protobuf or json")
	flags.StringVar(&a.Events, "events", "all", "which events are written: all, live or none")
	flags.StringVar(&a.Mark, "mark", "", "write the event of this object, and a usage line")
	return a
}

// ChooseWatchList has to come before anything asks for a feature gate, as they are read once.
func (a *Arguments) ChooseWatchList() error {
	switch a.WatchList {
	case "default":
		return nil
	case "on":
		return os.Setenv("KUBE_FEATURE_WatchListClient", "true")
	case "off":
		return os.Setenv("KUBE_FEATURE_WatchListClient", "false")
	}
	return fmt.Errorf("--watch-list is default, on or off, not %q", a.WatchList)
}

// RestConfig returns the configuration of the server, with the encoding that is asked for.
func (a *Arguments) RestConfig(userAgent string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", a.Kubeconfig)
	if err != nil {
		return nil, err
	}
	config.UserAgent = userAgent
	switch a.Encoding {
	case "json":
		// Said aloud: clients of built-in types ask for protobuf by themselves.
		config.ContentType = runtime.ContentTypeJSON
		config.AcceptContentTypes = runtime.ContentTypeJSON
	case "protobuf":
		// As kube-controller-manager sets it: JSON where the server has no protobuf.
		config.ContentType = runtime.ContentTypeProtobuf
		config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	default:
		return nil, fmt.Errorf("--encoding is protobuf or json, not %q", a.Encoding)
	}
	return config, nil
}
