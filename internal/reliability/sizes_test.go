package reliability

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/image"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const longLine = 10 << 20

// TestLineOfTenMiBOnEngine writes a line of 10 MiB between two short ones and reads it from the engine's file and from
// serve's log, as text, as JSON and with follow. It needs the engine for itself, because the serve of another test
// would replace the link to the engine's log.
func TestLineOfTenMiBOnEngine(t *testing.T) {
	h := newHost(t)
	k := newKiller(t, h)
	line := strings.Repeat("x", longLine)
	want := sha256.Sum256([]byte("first\n" + line + "\nlast\n"))
	for name, endpoint := range map[string]string{"serve": k.serve.endpoint(), "one command": embedded(h.endpoint())} {
		t.Run(name, func(t *testing.T) {
			p := h.pod(t)
			crishim := h.crishim(t, endpoint)
			config := p.container()
			config.Command = []string{"sh", "-c", fmt.Sprintf("echo first; head -c %d /dev/zero | tr '\\0' x; echo; echo last", longLine)}
			podFile, file := p.json(t, p.config), p.json(t, config)
			made := crishim.run(t.Context(), "runp", podFile)
			if made.code != 0 {
				t.Fatalf("%+v", made)
			}
			ref := "reliability/" + p.config.GetMetadata().GetName() + "/main"
			for _, args := range [][]string{{"create", strings.TrimSpace(made.out), file, podFile}, {"start", ref}} {
				if r := crishim.run(t.Context(), args...); r.code != 0 {
					t.Fatalf("%v: %+v", args, r)
				}
			}
			// logs -f ends with the container after the last line.
			for _, args := range [][]string{{"logs", "-f", ref}, {"logs", ref}, {"logs", "--tail", "3", ref}} {
				r := crishim.run(t.Context(), args...)
				if got := sha256.Sum256([]byte(r.out)); r.code != 0 || got != want {
					t.Errorf("%v: %d bytes, status %d, %s", args, len(r.out), r.code, r.err)
				}
			}
			r := crishim.run(t.Context(), "logs", "-o", "json", ref)
			var logs []string
			for d := json.NewDecoder(strings.NewReader(r.out)); d.More(); {
				var record struct{ Log string }
				if err := d.Decode(&record); err != nil {
					t.Fatal(err)
				}
				logs = append(logs, record.Log)
			}
			if len(logs) != 3 || logs[1] != line {
				t.Errorf("as JSON: %d lines, status %d, %s", len(logs), r.code, r.err)
			}
			if r := crishim.run(t.Context(), "rmp", "-f", strings.TrimSpace(made.out)); r.code != 0 {
				t.Errorf("%+v", r)
			}
			wait(t, func() error { return p.left(t.Context()) })
		})
	}
	k.serve.stop()
}

func (p *pod) json(t testing.TB, config any) string {
	t.Helper()
	text, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	return p.file(t, "config.json", string(text))
}

const manyTags = 1000

// TestImageWithAThousandTagsOnEngine checks that such an image is listed once with all tags, and that removing it by
// any name removes all, as CRI requires.
func TestImageWithAThousandTagsOnEngine(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	unique := h.pod(t).uid()
	if err := w.WriteHeader(&tar.Header{Name: unique, Mode: 0o600, Typeflag: tar.TypeReg}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	tag := func(n int) string { return fmt.Sprintf("%s/app:%d", unique, n) }
	answer, err := h.engine.ImageImport(t.Context(), image.ImportSource{Source: &layer, SourceName: "-"}, tag(0), image.ImportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var imported bytes.Buffer
	_, err = imported.ReadFrom(answer) // the import is complete at EOF
	if answer.Close(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.crishim(t, embedded(h.endpoint())).run(contextWithoutEnd(t), "rmi", tag(0)) })
	inspected, err := h.engine.ImageInspect(t.Context(), tag(0))
	if err != nil {
		t.Fatal(err)
	}
	for n := 1; n < manyTags; n++ {
		if err := h.engine.ImageTag(t.Context(), inspected.ID, tag(n)); err != nil {
			t.Fatal(err)
		}
	}
	k := newKiller(t, h)
	crishim := h.crishim(t, k.serve.endpoint())
	tags := func() int {
		t.Helper()
		r, err := k.serve.images.ImageStatus(t.Context(), &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: inspected.ID}})
		if err != nil {
			t.Error(err)
		}
		return len(r.GetImage().GetRepoTags())
	}
	if n := tags(); n != manyTags {
		t.Errorf("the image has %d tags, want %d", n, manyTags)
	}
	for _, args := range [][]string{{"images"}, {"images", "--no-trunc"}, {"images", "-o", "json"}, {"inspecti", tag(7)}, {"inspecti", "-o", "yaml", inspected.ID}} {
		r := crishim.run(t.Context(), args...)
		if r.code != 0 || args[0] == "inspecti" && strings.Count(r.out, unique+"/app:") < manyTags {
			t.Errorf("%v: status %d, %d bytes, %s", args, r.code, len(r.out), r.err)
		}
	}
	if r := crishim.run(t.Context(), "rmi", tag(manyTags-1)); r.code != 0 {
		t.Errorf("remove the image: %+v", r)
	}
	if n := tags(); n != 0 {
		t.Errorf("in the end the image has %d tags", n)
	}
	k.serve.stop()
}
