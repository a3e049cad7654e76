package docker

import (
	"bytes"
	"context"
	"io"
	"net/http"

	"github.com/go-json-experiment/json"
	jsonv1 "github.com/go-json-experiment/json/v1"
)

// Lists are the long answers of an engine: a thousand containers are a megabyte
// of JSON, which the library's decoder reads twice and by reflection. A transport
// below the library reads them with a faster one instead, and leaves to the
// library how a request is built and what an error is. What the faster one does
// not read the library gets as it came, so that its errors are those of all calls.

// listed runs a call whose answer is a list.
func listed[T any](ctx context.Context, call func(context.Context) ([]T, error)) ([]T, error) {
	var read []T
	l := &list{into: &read}
	found, err := call(context.WithValue(ctx, listKey{}, l))
	if err == nil && l.done {
		return read, nil
	}
	return found, err
}

type listKey struct{}

// list is where the transport leaves a list.
type list struct {
	into any
	done bool
}

// listTransport reads the answers to calls of listed.
type listTransport struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t listTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := t.RoundTripper.RoundTrip(r)
	l, asked := r.Context().Value(listKey{}).(*list)
	if err != nil || !asked || answer.StatusCode != http.StatusOK {
		return answer, err
	}
	var raw bytes.Buffer
	_, err = raw.ReadFrom(answer.Body)
	_ = answer.Body.Close() // read to its end, or broken
	if err == nil && json.Unmarshal(raw.Bytes(), l.into, jsonv1.DefaultOptionsV1()) == nil {
		l.done = true
		answer.Body = io.NopCloser(bytes.NewReader([]byte("[]")))
		return answer, nil
	}
	answer.Body = io.NopCloser(io.MultiReader(&raw, failing{err}))
	return answer, nil
}

// failing ends a body as it ended.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) {
	if f.err != nil {
		return 0, f.err
	}
	return 0, io.EOF
}
