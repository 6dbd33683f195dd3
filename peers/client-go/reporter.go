package main

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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// A reporter writes what happens, one JSON object a line, and carries out what is asked of it.
type reporter struct {
	options options
	began   time.Time
	mu      sync.Mutex
	out     *json.Encoder
	initial uint64
	live    uint64
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

func newReporter(o options) *reporter {
	return &reporter{options: o, began: time.Now(), out: json.NewEncoder(os.Stdout)}
}

func (r *reporter) start() { r.write(line{Kind: "start", Client: "client-go", usage: r.usage()}) }

func (r *reporter) synced(objects int) {
	r.write(line{Kind: "synced", Objects: &objects, usage: r.usage()})
}

func (r *reporter) syncTimeout(reason string) { r.write(line{Kind: "sync_timeout", Reason: reason}) }

func (r *reporter) told(state, reason string) {
	r.write(line{Kind: "told", State: state, Reason: reason})
}

func (r *reporter) handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    func(obj any, initial bool) { r.event("added", obj, nil, initial) },
		UpdateFunc: func(old, obj any) { r.event("updated", obj, old, false) },
		DeleteFunc: func(obj any) { r.event("deleted", obj, nil, false) },
	}
}

func (r *reporter) event(what string, obj, old any, initial bool) {
	object, ok := objectOf(obj)
	if !ok {
		r.told("failing", fmt.Sprintf("an event with a %T", obj))
		return
	}
	marked := r.options.mark != "" && object.GetName() == r.options.mark
	r.mu.Lock()
	if initial {
		r.initial++
	} else {
		r.live++
	}
	r.mu.Unlock()
	if r.options.events == "all" || r.options.events == "live" && !initial || marked {
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

func (r *reporter) reportEvery(ctx context.Context, every time.Duration) {
	ticker := time.NewTicker(every)
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

// obey carries out commands until the end of the input or `quit`.
func (r *reporter) obey(in io.Reader, store cache.Store) {
	scanner := bufio.NewScanner(in)
	for scanner.Scan() {
		switch strings.TrimSpace(scanner.Text()) {
		case "digest":
			objects, hash := digest(store)
			r.write(line{Kind: "digest", Objects: &objects, Hash: hash})
		case "usage":
			r.write(line{Kind: "usage", usage: r.usage()})
		case "quit":
			return
		}
	}
}

func (r *reporter) write(l line) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l.AtMs = float64(time.Since(r.began).Microseconds()) / 1000
	// Nobody reads any more: then nobody misses the line.
	_ = r.out.Encode(l)
}

func (r *reporter) usage() *usage {
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
func digest(store cache.Store) (int, string) {
	lines := []string{}
	for _, item := range store.List() {
		if object, ok := objectOf(item); ok {
			lines = append(lines, fmt.Sprintf("%s %s %s\n", keyOf(object), object.GetUID(), object.GetResourceVersion()))
		}
	}
	sort.Strings(lines)
	sum := sha256.Sum256([]byte(strings.Join(lines, "")))
	return len(lines), hex.EncodeToString(sum[:])
}
