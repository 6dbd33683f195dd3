package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// stand stands for a Lease of the namespace default whenever it is told `stand`, until it is told `leave`, and writes `leads NANOSECONDS` and
// `ends NANOSECONDS`. A term ends here when it is told to: client-go releases the Lease before it calls OnStoppedLeading.
func stand(ctx context.Context, config *rest.Config, name string) error {
	// Otherwise its own rate limit of 5 requests a second is what is measured.
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	leave := func() {}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		switch lines.Text() {
		case "stand":
			elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
				Lock: &resourcelock.LeaseLock{
					LeaseMeta:  metav1.ObjectMeta{Namespace: "default", Name: name},
					Client:     client.CoordinationV1(),
					LockConfig: resourcelock.ResourceLockConfig{Identity: "client-go"},
				},
				LeaseDuration:   15 * time.Second,
				RenewDeadline:   10 * time.Second,
				RetryPeriod:     100 * time.Millisecond,
				ReleaseOnCancel: true,
				Callbacks: leaderelection.LeaderCallbacks{
					OnStartedLeading: func(context.Context) { say("leads") },
					OnStoppedLeading: func() {},
				},
			})
			if err != nil {
				return err
			}
			term, cancel := context.WithCancel(ctx)
			ended := make(chan struct{})
			go func() {
				elector.Run(term)
				close(ended)
			}()
			leave = func() {
				say("ends")
				cancel()
				<-ended
			}
		case "leave":
			leave()
			leave = func() {}
		}
	}
	return nil
}

func say(what string) {
	fmt.Println(what, time.Now().UnixNano())
}
