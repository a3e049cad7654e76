package bundle

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/output"
)

// Span is a line of the timeline: an attempt of a container.
type Span struct {
	Name, Text string
	From, To   time.Time // To is zero while it goes on
	Tone       string    // good, warn or bad
}

// Series is a plot of a few samples.
type Series struct {
	Name   string
	CPU    []float64 // per cent of a core
	Memory []float64 // bytes
	Limit  float64   // of the memory; 0: none
}

// spans returns a span for each attempt of each container, ordered by pod.
func (n *Node) spans(statuses []*runtimeapi.ContainerStatusResponse, names map[string][]string) []*Span {
	var all []*Span
	for _, r := range statuses {
		s := r.GetStatus()
		span := &Span{Name: strings.Trim(strings.Join(names[s.GetId()], "/"), "/"), Tone: "good"}
		span.From = time.Unix(0, cmp.Or(s.GetStartedAt(), s.GetCreatedAt()))
		state := strings.ToLower(strings.TrimPrefix(s.GetState().String(), "CONTAINER_"))
		span.Text = fmt.Sprintf("attempt %d, %s", s.GetMetadata().GetAttempt(), state)
		if s.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
			span.To = time.Unix(0, s.GetFinishedAt())
			span.Text += fmt.Sprintf(" with status %d %s", s.GetExitCode(), s.GetReason())
		}
		switch {
		case s.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED && s.GetExitCode() != 0:
			span.Tone = "bad"
		case n.isUnhealthy(s):
			span.Tone = "warn"
		}
		all = append(all, span)
	}
	slices.SortStableFunc(all, func(a, b *Span) int { return cmp.Or(strings.Compare(a.Name, b.Name), a.From.Compare(b.From)) })
	return all
}

// stats takes a few samples, for rates and plots.
func (n *Node) stats(ctx context.Context, conn *client.Conn, f *Files) error {
	var taken [][]*runtimeapi.ContainerStats
	var failed error
	for len(taken) < samples && failed == nil {
		var res *runtimeapi.ListContainerStatsResponse
		if res, failed = conn.Runtime.ListContainerStats(ctx, &runtimeapi.ListContainerStatsRequest{}); failed == nil {
			taken = append(taken, res.GetStats())
			if len(taken) < samples {
				failed = pause(ctx, cmp.Or(n.Second, time.Second))
			}
		}
	}
	if len(taken) == 0 {
		return failed
	}
	last := taken[len(taken)-1]
	var rows []output.Usage
	var series []*Series
	at := func(sample []*runtimeapi.ContainerStats, id string) *runtimeapi.ContainerStats {
		i := slices.IndexFunc(sample, func(s *runtimeapi.ContainerStats) bool { return s.GetAttributes().GetId() == id })
		if i < 0 {
			return nil
		}
		return sample[i]
	}
	for _, s := range last {
		id := s.GetAttributes().GetId()
		first := at(taken[0], id)
		usage := n.Usage(first, s)
		rows = append(rows, usage)
		plot := &Series{Name: strings.Trim(usage.Namespace+"/"+usage.Pod+"/"+usage.Name, "/"), Limit: float64(usage.MemoryLimit)}
		for i, sample := range taken {
			now := at(sample, id)
			if now == nil {
				continue
			}
			plot.Memory = append(plot.Memory, float64(now.GetMemory().GetWorkingSetBytes().GetValue()))
			if i > 0 {
				plot.CPU = append(plot.CPU, max(0, n.Usage(at(taken[i-1], id), now).CPUPercent))
			}
		}
		series = append(series, plot)
	}
	slices.SortStableFunc(rows, func(a, b output.Usage) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Pod, b.Pod), strings.Compare(a.Name, b.Name))
	})
	f.Draw(nil, series)
	return errors.Join(failed, f.View("stats.json", "Use of resources", output.Options{Now: n.Now()}, func(w io.Writer, o output.Options) error {
		return output.ContainerStats(w, &runtimeapi.ListContainerStatsResponse{Stats: last}, rows, o)
	}))
}

func (n *Node) podStats(ctx context.Context, conn *client.Conn, f *Files) error {
	res, err := conn.Runtime.ListPodSandboxStats(ctx, &runtimeapi.ListPodSandboxStatsRequest{})
	if err != nil {
		return err
	}
	return f.View("pod-stats.json", "", output.Options{}, func(w io.Writer, o output.Options) error { return output.PodStats(w, res, nil, o) })
}

// EventsSince is how far back events are read where they are kept.
const EventsSince = 15 * time.Minute

// events reads those of the last minutes where the runtime keeps them, and watches for as long as stats are sampled: in a crash
// loop there are some.
func (n *Node) events(ctx context.Context, conn *client.Conn, f *Files) error {
	kept, err := conn.EngineEvents(ctx, n.Now().Add(-EventsSince), n.Now())
	switch {
	case errors.Is(err, client.ErrNotDockershim):
		f.Note("this runtime keeps no events: at most there are those since dump began")
		err = nil
	case err == nil:
		text, failed := json.Marshal(map[string]any{"events": kept})
		err = errors.Join(failed, f.Document("engine-events.json", text, true))
		var rows [][]string
		for _, e := range kept[max(0, len(kept)-shownEvents):] {
			rows = append(rows, []string{e.Time.UTC().Format(time.RFC3339), e.Action, strings.Trim(e.Namespace+"/"+e.Pod+"/"+e.Container, "/"), fmt.Sprint(e.Attempt), fmt.Sprint(e.ExitCode), e.Signal})
		}
		f.Rows(fmt.Sprintf("Events of the last %.0f minutes", EventsSince.Minutes()), []string{"TIME", "EVENT", "CONTAINER", "ATTEMPT", "EXIT", "SIGNAL"}, rows)
	}
	return errors.Join(err, n.watch(ctx, conn, f))
}

// shownEvents is how many are on the page: the last ones.
const shownEvents = 300

func (n *Node) watch(ctx context.Context, conn *client.Conn, f *Files) error {
	watched := samples * cmp.Or(n.Second, time.Second)
	ctx, cancel := context.WithTimeout(ctx, watched)
	defer cancel()
	stream, err := conn.Runtime.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		return err
	}
	var all [][]byte
	for {
		e, err := stream.Recv()
		if status.Code(err) == codes.Unimplemented && len(all) == 0 { // containerd 1.6
			f.Note("this runtime sends no events")
			return nil
		}
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, io.EOF) {
				err = nil
			}
			text := slices.Concat([]byte(`{"events":[`), bytes.Join(all, []byte(",")), []byte("]}"))
			return errors.Join(err, f.Document("events.json", text, true))
		}
		var one bytes.Buffer
		if err := output.Message(&one, e, output.Options{Format: output.Format{Kind: output.JSONL}}); err != nil {
			return err
		}
		all = append(all, one.Bytes())
	}
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
