package cli

import (
	"testing"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/internal/test"
	"github.com/crishim/crishim/internal/test/stubcri"
)

func TestPullInLines(t *testing.T) {
	stub := stubcri.Start(t, stubcri.Options{Private: true})
	id := stub.AddImage("app")
	conn, err := client.Connect(t.Context(), client.Options{RuntimeEndpoint: stub.Endpoint, LookupEnv: func(string) (string, bool) { return "", false }})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var errs test.Buffer
	p := NewPrinter(&Process{Err: &errs, ErrTerminal: true})
	got, err := PullInLines(p, conn)(t.Context(), "app", nil, nil)
	if err != nil || got != id {
		t.Errorf("got %q, %v", got, err)
	}
	if want := "app: layer cdef01234567 is there already: 1 of 2 layers done\napp: layer 0123456789ab: 2 of 2 layers done\n"; errs.String() != want {
		t.Errorf("got %q", errs.String())
	}
}
