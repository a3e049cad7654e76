package shim_test

import (
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/test/enginetest"
	"github.com/crishim/crishim/shim"
)

func TestEmbeddedVersionOnEngine(t *testing.T) {
	t.Parallel()
	enginetest.Require(t)
	e, err := shim.StartEmbedded(t.Context(), shim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	conn := dial(t, e)
	v, err := runtimeapi.NewRuntimeServiceClient(conn).Version(t.Context(), &runtimeapi.VersionRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if v.GetVersion() != "0.1.0" || v.GetRuntimeName() != "docker" || v.GetRuntimeVersion() == "" || v.GetRuntimeApiVersion() != "v1" {
		t.Errorf("got %v", v)
	}
	status, err := runtimeapi.NewRuntimeServiceClient(conn).Status(t.Context(), &runtimeapi.StatusRequest{Verbose: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range status.GetStatus().GetConditions() {
		if !c.GetStatus() {
			t.Errorf("condition %s is false: %s", c.GetType(), c.GetMessage())
		}
	}
}
