package docker

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"
)

// oddLists are answers of an engine, and of what is none.
var oddLists = []string{
	``, ` `, `[]`, "[]\n", `null`, `{}`, `""`, `1`, `[`, `[]]`, `[] trailing`, `[null]`, `[{}]`, `[{},{}`, `[{"Id":1}]`, `[{"Id":"a"},{"Id":[]}]`, `[[]]`,
	`[{"Id":"a","Names":["/x",null],"Image":"i","ImageID":"sha256:1","Created":1795387837,"Ports":[{"PrivatePort":80,"Type":"tcp"}],"Labels":{"a":"b","a":"c"},
	"State":"exited","HostConfig":{"NetworkMode":"none"},"NetworkSettings":{"Networks":{"x":null}},"Mounts":[{"Type":"bind","RW":true}],"more":{"deep":[{}]}}]`,
	`[{"ID":"other case","names":["n"]}]`, `[{"Id":"a","Id":"b"}]`, "[{\"Id\":\"\xff\"}]", `[{"Id":"\ud800"}]`, `[{"Id":"<none>","Created":1e3}]`, `[{"Created":1.5}]`,
	`[{"Labels":null,"Ports":null}]`, `[{"Labels":[]}]`, `[{"Id":"a" "b"}]`, `[{"Created":99999999999999999999}]`, `{"message":"page not found"}`, `OK`,
	`[{"Id":"sha256:1","RepoTags":["a:b"],"RepoDigests":null,"Size":-1,"Created":"x","Containers":-1,"Descriptor":{"digest":"x"},"Manifests":null}]`,
}

// bodies answers every list with the same body.
type bodies struct {
	text atomic.Value
	cut  bool // the connection breaks behind it
}

func body(text string) *bodies {
	b := &bodies{}
	b.text.Store(text)
	return b
}

func (b *bodies) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Api-Version", "1.41")
	w.Header().Set("Content-Type", "application/json")
	if strings.HasSuffix(r.URL.Path, "/_ping") {
		return
	}
	text, _ := b.text.Load().(string)
	_, _ = w.Write([]byte(text))
	if b.cut {
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
}

// sameAsLibrary compares both lists with those of the library alone.
func sameAsLibrary(t *testing.T, ours *Client, alone *client.Client, text string) {
	t.Helper()
	same := func(got, want any, err, wantErr error) {
		t.Helper()
		if !reflect.DeepEqual(got, want) || fmt.Sprint(err) != fmt.Sprint(wantErr) || reflect.TypeOf(err) != reflect.TypeOf(wantErr) {
			t.Errorf("%q: got %#v, %v, want %#v, %v", text, got, err, want, wantErr)
		}
	}
	containers, err := ours.ContainerList(t.Context(), container.ListOptions{})
	want, wantErr := alone.ContainerList(t.Context(), container.ListOptions{})
	same(containers, want, err, wantErr)
	images, err := ours.ImageList(t.Context(), image.ListOptions{})
	wanted, wantErr := alone.ImageList(t.Context(), image.ListOptions{})
	same(images, wanted, err, wantErr)
}

// oddEngine gives a client of ours and the library's, for an engine that answers
// with a body.
func oddEngine(t *testing.T, b *bodies) (*Client, *client.Client) {
	t.Helper()
	s := httptest.NewServer(b)
	t.Cleanup(s.Close)
	host := "tcp://" + s.Listener.Addr().String()
	ours, err := New(Options{Host: host, APIVersion: "1.41"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ours.Close() })
	alone, err := client.NewClientWithOpts(client.WithHost(host), client.WithVersion("1.41"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = alone.Close() })
	return ours, alone
}

// What a list says, and what is wrong with it, is what the library says.
func TestListsAreTheLibrarys(t *testing.T) {
	t.Parallel()
	for _, cut := range []bool{false, true} {
		for _, text := range append(oddLists, longList(300), longList(300)[:20000]) {
			b := body(text)
			b.cut = cut
			ours, alone := oddEngine(t, b)
			sameAsLibrary(t, ours, alone, text)
		}
	}
}

// Most lists are read by us: else all of this would be for nothing.
func TestListsAreReadByUs(t *testing.T) {
	t.Parallel()
	for text, fast := range map[string]bool{longList(3): true, `[]`: true, `null`: true, `[{"Id":1}]`: false, `[]]`: false} {
		s := httptest.NewServer(body(text))
		l := &list{into: &[]container.Summary{}}
		r, err := http.NewRequestWithContext(context.WithValue(t.Context(), listKey{}, l), http.MethodGet, s.URL+"/containers/json", nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := listTransport{http.DefaultTransport}.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		var left bytes.Buffer
		if _, err := left.ReadFrom(answer.Body); err != nil {
			t.Error(err)
		}
		if l.done != fast || fast && left.String() != "[]" || !fast && left.String() != text {
			t.Errorf("%q: read by us %t, left %q", text, l.done, left.String())
		}
		s.Close()
	}
}

// longList is what an engine says of n containers.
func longList(n int) string {
	list := make([]map[string]any, n)
	for i := range list {
		list[i] = map[string]any{
			"Id": fmt.Sprintf("%064x", i), "Names": []string{fmt.Sprint("/n", i)}, "Image": "busybox", "Created": i, "State": "running",
			"Labels": map[string]string{"é<&": "\u2028", "n": fmt.Sprint(i)}, "NetworkSettings": map[string]any{"Networks": map[string]any{"bridge": map[string]any{"IPAddress": "1.2.3.4"}}},
		}
	}
	raw, err := json.Marshal(list)
	if err != nil {
		panic(err)
	}
	return string(raw)
}

// RoundTrip answers without a network, of which a fuzzer would use up the ports.
func (b *bodies) RoundTrip(*http.Request) (*http.Response, error) {
	text, _ := b.text.Load().(string)
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(text))}, nil
}

func (b *bodies) library(t testing.TB, over http.RoundTripper) *client.Client {
	t.Helper()
	c, err := client.NewClientWithOpts(client.WithHTTPClient(&http.Client{Transport: over}), client.WithVersion("1.41"))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (b *bodies) pair(t testing.TB) (*Client, *client.Client) {
	t.Helper()
	ours := &Client{first: b.library(t, listTransport{b})}
	ours.spoken.Store(ours.first)
	return ours, b.library(t, b)
}

func FuzzListsAreTheLibrarys(f *testing.F) {
	for _, text := range oddLists {
		f.Add(text)
	}
	b := body("")
	ours, alone := b.pair(f)
	f.Fuzz(func(t *testing.T, text string) {
		b.text.Store(text)
		sameAsLibrary(t, ours, alone, text)
	})
}

// BenchmarkLists reads a thousand containers, as we do and as the library does.
func BenchmarkLists(b *testing.B) {
	answer := body(longList(1000))
	ours, alone := answer.pair(b)
	b.Run("ours", func(b *testing.B) {
		for b.Loop() {
			if _, err := ours.ContainerList(b.Context(), container.ListOptions{}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("library", func(b *testing.B) {
		for b.Loop() {
			if _, err := alone.ContainerList(b.Context(), container.ListOptions{}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
