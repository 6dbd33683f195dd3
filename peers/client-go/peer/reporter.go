package peer

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// A Reporter writes what happens, one JSON object a line, and carries out what is asked of it.
type Reporter struct {
	arguments *Arguments
	began     time.Time
	mu        sync.Mutex
	out       *json.Encoder
	initial   uint64
	live      uint64
}

// line has the fields of every kind of line; those that a kind does not have are left out.
type line struct {
	AtMs    float64  `json:"at_ms"`
	Kind    string   `json:"kind"`
	Client  string   `json:"client,omitempty"`
	Type    string   `json:"type,omitempty"`
	Initial bool     `json:"initial,omitempty"`
	Key     string   `json:"key,omitempty"`
	UID     string   `json:"uid,omitempty"`
	RV      string   `json:"rv,omitempty"`
	Old     *version `json:"old,omitempty"`
	State   string   `json:"state,omitempty"`
	Reason  string   `json:"reason,omitempty"`
	Objects *int     `json:"objects,omitempty"`
	Hash    string   `json:"hash,omitempty"`
	*usage
}

type version struct {
	UID string `json:"uid"`
	RV  string `json:"rv"`
}

type usage struct {
	CPUMicros     int64  `json:"cpu_us"`
	ResidentKiB   int64  `json:"rss_kib"`
	PeakKiB       int64  `json:"peak_kib"`
	InitialEvents uint64 `json:"initial_events"`
	LiveEvents    uint64 `json:"live_events"`
}

// Start writes the first line, with the name of the library.
func Start(client string, arguments *Arguments) *Reporter {
	r := &Reporter{arguments: arguments, began: time.Now(), out: json.NewEncoder(os.Stdout)}
	r.write(line{Kind: "start", Client: client, usage: r.usage()})
	return r
}

// WaitForSync waits as long as the user is willing to, and says when that was in vain; then it waits on. `count` returns the
// number of objects in the store.
func (r *Reporter) WaitForSync(ctx context.Context, count func() int, synced ...cache.InformerSynced) {
	bounded, cancel := context.WithTimeout(ctx, r.arguments.SyncTimeout)
	defer cancel()
	if !cache.WaitForCacheSync(bounded.Done(), synced...) && ctx.Err() == nil {
		// WaitForCacheSync returns false, and nothing else.
		r.write(line{Kind: "sync_timeout"})
	}
	if cache.WaitForCacheSync(ctx.Done(), synced...) {
		objects := count()
		r.write(line{Kind: "synced", Objects: &objects, usage: r.usage()})
	}
}

// Told tells what the library tells its user.
func (r *Reporter) Told(state, reason string) {
	r.write(line{Kind: "told", State: state, Reason: reason})
}

// Handler tells each event.
func (r *Reporter) Handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    func(obj any, initial bool) { r.event("added", obj, nil, initial) },
		UpdateFunc: func(old, obj any) { r.event("updated", obj, old, false) },
		DeleteFunc: func(obj any) { r.event("deleted", obj, nil, false) },
	}
}

func (r *Reporter) event(what string, obj, old any, initial bool) {
	object, ok := objectOf(obj)
	if !ok {
		r.Told("failing", fmt.Sprintf("an event with a %T", obj))
		return
	}
	marked := r.arguments.Mark != "" && object.GetName() == r.arguments.Mark
	r.mu.Lock()
	if initial {
		r.initial++
	} else {
		r.live++
	}
	r.mu.Unlock()
	if r.arguments.Events == "all" || r.arguments.Events == "live" && !initial || marked {
		event := line{Kind: "event", Type: what, Initial: initial, Key: keyOf(object),
			UID: string(object.GetUID()), RV: object.GetResourceVersion()}
		if before, ok := objectOf(old); ok {
			event.Old = &version{UID: string(before.GetUID()), RV: before.GetResourceVersion()}
		}
		r.write(event)
	}
	if marked {
		r.write(line{Kind: "usage", usage: r.usage()})
	}
}

// ReportEvery writes usage lines until the context ends, if they are asked for.
func (r *Reporter) ReportEvery(ctx context.Context) {
	if r.arguments.ReportEvery <= 0 {
		return
	}
	ticker := time.NewTicker(r.arguments.ReportEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			r.write(line{Kind: "usage", usage: r.usage()})
		}
	}
}

// Obey carries out commands until the end of the input or `quit`. `list` returns the objects of the store.
func (r *Reporter) Obey(in io.Reader, list func() []any) {
	scanner := bufio.NewScanner(in)
	for scanner.Scan() {
		switch strings.TrimSpace(scanner.Text()) {
		case "digest":
			objects, hash := digest(list())
			r.write(line{Kind: "digest", Objects: &objects, Hash: hash})
		case "usage":
			r.write(line{Kind: "usage", usage: r.usage()})
		case "quit":
			return
		}
	}
}

func (r *Reporter) write(l line) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l.AtMs = float64(time.Since(r.began).Microseconds()) / 1000
	// Nobody reads any more: then nobody misses the line.
	_ = r.out.Encode(l)
}

func (r *Reporter) usage() *usage {
	var used syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &used)
	status := procStatus()
	r.mu.Lock()
	defer r.mu.Unlock()
	return &usage{
		CPUMicros:     (used.Utime.Nano() + used.Stime.Nano()) / 1000,
		ResidentKiB:   status["VmRSS"],
		PeakKiB:       status["VmHWM"],
		InitialEvents: r.initial,
		LiveEvents:    r.live,
	}
}

// procStatus reads the figures in kB of /proc/self/status. The peak of getrusage would be that of the parent, if that
// was larger.
func procStatus() map[string]int64 {
	figures := map[string]int64{}
	text, _ := os.ReadFile("/proc/self/status")
	for _, row := range strings.Split(string(text), "\n") {
		name, value, _ := strings.Cut(row, ":")
		if kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(value, "kB")), 10, 64); err == nil {
			figures[name] = kib
		}
	}
	return figures
}

func keyOf(object metav1.Object) string {
	if object.GetNamespace() == "" {
		return object.GetName()
	}
	return object.GetNamespace() + "/" + object.GetName()
}

// digest is the SHA-256 of a sorted line for each object of the store: key, uid and resourceVersion.
func digest(items []any) (int, string) {
	lines := []string{}
	for _, item := range items {
		if object, ok := objectOf(item); ok {
			lines = append(lines, fmt.Sprintf("%s %s %s\n", keyOf(object), object.GetUID(), object.GetResourceVersion()))
		}
	}
	sort.Strings(lines)
	sum := sha256.Sum256([]byte(strings.Join(lines, "")))
	return len(lines), hex.EncodeToString(sum[:])
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
