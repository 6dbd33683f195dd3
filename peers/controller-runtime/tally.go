package main

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// A tally counts what the controller does, and writes it, one JSON object a line, when it is asked.
type tally struct {
	began      time.Time
	reconciles atomic.Uint64
	failed     atomic.Uint64
	writes     atomic.Uint64
}

type line struct {
	AtMs       float64 `json:"at_ms"`
	Kind       string  `json:"kind"`
	Client     string  `json:"client,omitempty"`
	Reconciles uint64  `json:"reconciles"`
	Failed     uint64  `json:"failed"`
	Writes     uint64  `json:"writes"`
	usage
}

type usage struct {
	CPUMicros     int64  `json:"cpu_us"`
	ResidentKiB   int64  `json:"rss_kib"`
	PeakKiB       int64  `json:"peak_kib"`
	InitialEvents uint64 `json:"initial_events"`
	LiveEvents    uint64 `json:"live_events"`
}

// startTally writes the start line.
func startTally() *tally {
	t := &tally{began: time.Now()}
	t.write("start", "controller-runtime")
	return t
}

// ended counts a reconciliation.
func (t *tally) ended(wrote bool, err error) {
	t.reconciles.Add(1)
	if err != nil {
		t.failed.Add(1)
	}
	if wrote {
		t.writes.Add(1)
	}
}

// obey carries out commands until the end of the input or `quit`.
func (t *tally) obey(in io.Reader) {
	scanner := bufio.NewScanner(in)
	for scanner.Scan() {
		switch strings.TrimSpace(scanner.Text()) {
		case "usage":
			t.write("reconciled", "")
		case "quit":
			return
		}
	}
}

func (t *tally) write(kind, client string) {
	// Nobody reads any more: then nobody misses the line.
	_ = json.NewEncoder(os.Stdout).Encode(line{
		AtMs:       float64(time.Since(t.began).Microseconds()) / 1000,
		Kind:       kind,
		Client:     client,
		Reconciles: t.reconciles.Load(),
		Failed:     t.failed.Load(),
		Writes:     t.writes.Load(),
		usage:      used(),
	})
}

// used reads the process's CPU time and memory. The peak of getrusage would be that of the parent, if that was larger.
func used() usage {
	var rusage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &rusage)
	figures := map[string]int64{}
	text, _ := os.ReadFile("/proc/self/status")
	for _, row := range strings.Split(string(text), "\n") {
		name, value, _ := strings.Cut(row, ":")
		if kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(value, "kB")), 10, 64); err == nil {
			figures[name] = kib
		}
	}
	return usage{
		CPUMicros:   (rusage.Utime.Nano() + rusage.Stime.Nano()) / 1000,
		ResidentKiB: figures["VmRSS"],
		PeakKiB:     figures["VmHWM"],
	}
}
