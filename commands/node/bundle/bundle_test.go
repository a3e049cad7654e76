package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func collected(t *testing.T, parts ...Part) *Bundle {
	t.Helper()
	b, err := Collect(t.Context(), parts, Options{Title: "bundle", Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestPartsEachFail: one that hangs, one that fails and one that panics are in the bundle with their errors, and what they
// had until then.
func TestPartsEachFail(t *testing.T) {
	t.Parallel()
	never, late := make(chan struct{}), make(chan *Files, 1)
	defer close(never)
	b := collected(t,
		Part{Name: "well", Collect: func(_ context.Context, f *Files) error {
			f.Log("well.txt", []byte("fine"))
			return nil
		}},
		Part{Name: "hangs", Limit: time.Millisecond, Collect: func(_ context.Context, f *Files) error {
			f.Log("begun.txt", []byte("as far as it came"))
			<-never // whatever its context says, as a call into the kernel
			late <- f
			return nil
		}},
		Part{Name: "fails", Collect: func(context.Context, *Files) error { return errors.New("login password=hunter22 refused") }},
		Part{Name: "panics", Collect: func(context.Context, *Files) error { panic("oh") }},
	)
	var got []string
	for _, r := range b.Results {
		got = append(got, r.Part+" "+strings.Join(r.Files, " ")+" "+r.Error)
	}
	want := "well well.txt \nhangs begun.txt not done within 1ms\nfails  login password=[removed] refused\npanics  a fault of crishim: oh"
	if text := strings.Join(got, "\n"); text != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
	var archive bytes.Buffer
	if err := b.Write(&archive); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	zipped, err := gzip.NewReader(&archive)
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(zipped); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		text, failed := io.ReadAll(r)
		if err != nil || failed != nil {
			t.Fatal(err, failed)
		}
		files[h.Name] = string(text)
	}
	if files["bundle/well.txt"] != "fine" || !strings.Contains(files["bundle/index.html"], "not done within 1ms") || strings.Contains(files["bundle/index.html"], "hunter22") {
		t.Errorf("got %v", files)
	}
}

// TestLimits: a text is cut to its end, and what is too much is left out and said.
func TestLimits(t *testing.T) {
	t.Parallel()
	big := Part{Name: "big", Collect: func(_ context.Context, f *Files) error {
		f.Log("long.log", []byte(strings.Repeat("x\n", 1024)+"password=hunter2 "+strings.Repeat("z", 1005)+"\nthe end")) // cut within the password
		for range 4 {
			f.Log("more.log", bytes.Repeat([]byte("y\n"), 512))
		}
		return f.Document("huge.json", []byte(`"`+strings.Repeat("z", 4096)+`"`), true)
	}}
	b, err := Collect(t.Context(), []Part{big, big}, Options{Now: time.Now, sizes: sizes{part: 4096, total: 5120, text: 1024}})
	if err != nil {
		t.Fatal(err)
	}
	r := b.Results[0]
	if len(b.files) != 6 || b.files[0].text != "the end" {
		t.Errorf("%d files, the first is %q", len(b.files), b.files[0].text)
	}
	notes := strings.Join(append(r.Notes, b.Results[1].Notes...), "\n")
	if !strings.Contains(notes, "long.log: only the last 1 KiB") || !strings.Contains(notes, "huge.json is left out: a part has at most 4 KiB") || !strings.Contains(notes, "more.log is left out: a bundle has at most 5 KiB") {
		t.Errorf("notes: %s", notes)
	}
}

// TestHost: files of the host that are there, and a journalctl that is none, has nothing, or hangs.
func TestHost(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for name, text := range map[string]string{
		"etc/docker/daemon.json": `{"log-opts":{"splunk-token":"hunter22"},"debug":true}`, "etc/cni/net.d/10-x.conflist": "{broken", "proc/loadavg": "1 2 3", "etc/resolv.conf": "nameserver 1.1.1.1",
	} {
		if err := os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for script, want := range map[string]string{
		"": "there is no journalctl here", "exec sleep 1000": "not done within", "echo no permission >&2; exit 1": "journalctl: no permission: exit status 1", "echo started": "",
	} {
		journal := filepath.Join(root, "nosuch")
		if script != "" {
			journal = filepath.Join(root, "journalctl")
			if err := os.WriteFile(journal, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		parts := Host{Root: root, Journal: journal}.Parts()
		for i := range parts {
			if parts[i].Name == "journal" && strings.Contains(script, "sleep") {
				parts[i].Limit = 10 * time.Millisecond
			}
		}
		b := collected(t, parts...)
		for _, r := range b.Results {
			if r.Part != "journal" && r.Error != "" || r.Part == "journal" && (want == "" && r.Error != "" || !strings.Contains(r.Error, want)) {
				t.Errorf("%q: %+v, want %q", script, r, want)
			}
		}
		found := map[string]string{}
		for _, f := range b.files {
			text, err := f.bytes()
			if err != nil {
				t.Fatal(err)
			}
			found[f.name] = string(text)
		}
		if !strings.Contains(found["host/etc/docker/daemon.json"], `"splunk-token": "[removed]"`) || found["host/etc/cni/net.d/10-x.conflist"] != "{broken" || !strings.Contains(found["host/kernel.txt"], "/proc/loadavg: 1 2 3") {
			t.Errorf("files: %v", found)
		}
	}
}

// TestTimeline: what began long ago begins at the left edge, and those that are not well come first.
func TestTimeline(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	b := &Bundle{at: at, spans: []*Span{
		{Name: "old", From: at.Add(-1000 * time.Hour), Tone: "good"},
		{Name: "crash", From: at.Add(-time.Hour), To: at.Add(-30 * time.Minute), Tone: "bad"},
		{Name: "crash", From: at.Add(-30 * time.Minute), Tone: "warn"},
	}}
	got := b.timeline()
	if len(got.Rows) != 2 || got.Rows[0].Name != "crash" || len(got.Rows[0].Bars) != 2 || got.Rows[0].Bars[0].X != timeLeft || got.Rows[0].Bars[1].X != (timeLeft+timeRight)/2 || got.Rows[1].Bars[0].Width != timeRight-timeLeft {
		t.Errorf("got %+v", got.Rows)
	}
	if one := line("", []float64{0, 5, 10}, 20); one.Points != "0,37 100,28.5 200,20" || one.LimitY != 3 {
		t.Errorf("got %+v", one)
	}
}
