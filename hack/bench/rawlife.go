package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// recordedLife is the calls of a pod's life that change something, by step: no
// runtime on this engine can do with less time than they take.
type recordedLife struct {
	steps map[string][]request
	names [2]string // of the pod's and of the container's container in the engine
	ids   [2]string
}

// recordLife takes a pod through its life on a serve of its own, the second time
// for the record.
func (b *bench) recordLife(ctx context.Context) (*recordedLife, error) {
	c, err := b.startCounter("life")
	if err != nil {
		return nil, err
	}
	r, err := b.startServe(ctx, "life", c.host)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.stop() }()
	var rec *recordedLife
	for range 2 {
		c.take()
		rec = &recordedLife{steps: map[string][]request{}}
		err := b.lifeOf(ctx, r, map[string][]float64{}, func(step string, made [2]string) {
			for _, call := range c.take() {
				if call.method == http.MethodPost || call.method == http.MethodDelete {
					rec.steps[step] = append(rec.steps[step], call)
				}
			}
			rec.ids = made
		})
		if err != nil {
			return nil, err
		}
	}
	for i, step := range []string{"RunPodSandbox", "CreateContainer"} {
		for _, call := range rec.steps[step] {
			if m := nameParameter.FindStringSubmatch(call.path); m != nil {
				rec.names[i] = m[1]
			}
		}
		if rec.names[i] == "" {
			return nil, fmt.Errorf("%s created nothing", step)
		}
	}
	return rec, nil
}

// rawLife makes the calls of a recorded life once more, for containers of other
// names, and notes how long those of each step take.
func (b *bench) rawLife(ctx context.Context, rec *recordedLife, took map[string][]float64) error {
	suffix := fmt.Sprintf("-%d", time.Now().UnixNano())
	var ids [2]string
	made := 0
	defer func() {
		for _, id := range ids {
			if id != "" { // gone already, unless a step failed
				_ = b.call(context.WithoutCancel(ctx), http.MethodDelete, "/containers/"+id+"?force=1&v=1", nil, nil)
			}
		}
	}()
	for _, s := range steps() {
		start := time.Now()
		for _, call := range rec.steps[s.name] {
			var created struct{ ID string }
			answer := any(nil)
			isCreate := strings.HasPrefix(call.path, "/containers/create")
			if isCreate {
				answer = &created
			}
			replace := strings.NewReplacer(pairs(rec, ids, suffix)...)
			if err := b.call(ctx, call.method, replace.Replace(call.path), bytes.NewReader([]byte(replace.Replace(string(call.body)))), answer); err != nil {
				return fmt.Errorf("%s on the engine: %w", s.name, err)
			}
			if isCreate && made < len(ids) {
				ids[made] = created.ID
				made++
			}
		}
		if len(rec.steps[s.name]) > 0 {
			took[s.name] = append(took[s.name], since(start))
		}
	}
	return nil
}

// pairs are what is replaced in a recorded call, and by what.
func pairs(rec *recordedLife, ids [2]string, suffix string) []string {
	var list []string
	for i, name := range rec.names {
		list = append(list, name, name+suffix)
		if rec.ids[i] != "" && ids[i] != "" {
			list = append(list, rec.ids[i], ids[i])
		}
	}
	return list
}
