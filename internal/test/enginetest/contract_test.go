package enginetest_test

import (
	"testing"

	"github.com/crishim/crishim/internal/test/enginetest"
	"github.com/crishim/crishim/shim/pause"
)

func TestContractOfMemory(t *testing.T) {
	m := enginetest.NewMemory()
	id, err := pause.Ensure(t.Context(), m, "")
	if err != nil {
		t.Fatal(err)
	}
	enginetest.Contract(t, m, id)
}

func TestContractOfTheRealEngine(t *testing.T) {
	engine := enginetest.Require(t)
	id, err := pause.Ensure(t.Context(), engine, "")
	if err != nil {
		t.Fatal(err)
	}
	enginetest.Contract(t, engine, id)
}
