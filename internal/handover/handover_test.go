package handover

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/crishim/crishim/internal/inproc"
)

func pair(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	a, b, err := inproc.Pair()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = a.Close()
		_ = b.Close()
	})
	return a, b
}

func TestAConnectionGoesOver(t *testing.T) {
	t.Parallel()
	near, far := pair(t)
	client, shim := NewClient(near), NewShim(far, far)
	ours, engine := pair(t)
	if err := shim.Send(FromShim{Started: true}); err != nil {
		t.Fatal(err)
	}
	if err := shim.SendConn(FromShim{Engine: &Engine{Read: []byte("ab")}}, ours); err != nil {
		t.Fatal(err)
	}
	_ = ours.Close()
	var m FromShim
	if err := client.Receive(&m); err != nil || !m.Started {
		t.Errorf("got %+v, %v", m, err)
	}
	m = FromShim{}
	if err := client.Receive(&m); err != nil || m.Engine == nil || string(m.Engine.Read) != "ab" {
		t.Fatalf("got %+v, %v", m, err)
	}
	conn, err := client.Taken()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Taken(); err == nil {
		t.Error("it was taken twice")
	}
	if _, err := engine.Write([]byte("hello")); err != nil {
		t.Error(err)
	}
	_ = engine.Close()
	if got, err := io.ReadAll(conn); err != nil || string(got) != "hello" {
		t.Errorf("got %q, %v", got, err)
	}
	_ = conn.Close()
	_ = shim.Close()
	if err := client.Receive(&m); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: got %v", err)
	}
}

// What nobody takes is closed with the Conn, and so is what comes twice.
func TestConnectionsThatNobodyTakes(t *testing.T) {
	t.Parallel()
	near, far := pair(t)
	client, shim := NewClient(near), NewShim(far, far)
	var engines []*net.UnixConn
	for range 2 {
		ours, engine := pair(t)
		if err := shim.SendConn(FromShim{Engine: &Engine{}}, ours); err != nil {
			t.Fatal(err)
		}
		_ = ours.Close()
		engines = append(engines, engine)
		if err := client.Receive(new(FromShim)); err != nil {
			t.Fatal(err)
		}
	}
	_ = client.Close()
	for _, engine := range engines {
		if n, err := engine.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("got %d, %v, want the end", n, err)
		}
	}
}

func TestReceiveRefuses(t *testing.T) {
	t.Parallel()
	for name, line := range map[string]string{
		"no JSON":   "what?\n",
		"no end":    `{"started":`,
		"too long":  `{"done":{"stdout":"` + strings.Repeat("A", maxLine) + `"}}` + "\n",
		"wrong":     `{"engine":7}` + "\n",
		"no object": "[]\n",
	} {
		near, _ := pair(t)
		if err := NewShim(near, strings.NewReader(line)).Receive(new(FromShim)); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}
