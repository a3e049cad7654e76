package stream

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/remotecommand"

	"github.com/crishim/crishim/internal/proctree"
	"github.com/crishim/crishim/internal/test"
)

// Processes of a killed shim are killed by its records. Other processes are not.
func TestEndRecorded(t *testing.T) {
	r := newRig(t, Options{})
	id := r.app(t)
	var out lockedBuffer
	o := remotecommand.StreamOptions{Stdout: &out}
	session := overSPDY(t, r.execURL(t, id, o, "sh", "-c", "echo ready; sleep 4949 & sleep 4949"))
	done := make(chan error, 1)
	go func() { done <- session.StreamWithContext(t.Context(), o) }()
	test.Until(t, "the script to start", func() bool { return out.String() == "ready\n" })

	// A copy of the directory, as if the shim was killed now.
	left := t.TempDir()
	if err := os.Chmod(left, 0o700); err != nil {
		t.Fatal(err)
	}
	test.Until(t, "the process to be written down", func() bool {
		if err := exec.Command("cp", "-r", r.opts.RecordDir+"/.", left).Run(); err != nil {
			return false
		}
		files, err := filepath.Glob(filepath.Join(left, "*.json"))
		if err != nil || len(files) != 1 {
			return false
		}
		text, err := os.ReadFile(files[0])
		return err == nil && len(text) > 0 && containsProcess(text)
	})
	other := records{dir: left}.begin(strings.Repeat("0", 64), id)
	self, err := proctree.Find(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	other.found(self) // the process is not in that container

	if err := EndRecorded(t.Context(), left, r.engine); err != nil {
		t.Error(err)
	}
	if err := <-done; exitCode(err) != 137 {
		t.Errorf("got %v, want status 137", err)
	}
	if still := r.processes(t, id, "4949"); len(still) > 0 {
		t.Errorf("left running: %v", still)
	}
	if files, err := os.ReadDir(left); err != nil || len(files) > 0 {
		t.Errorf("left in the directory: %v, %v", files, err)
	}
}

func containsProcess(text []byte) bool {
	return len(text) > 0 && string(text[len(text)-2:]) == "}}"
}

func TestEndRecordedWithoutRecords(t *testing.T) {
	t.Parallel()
	if err := EndRecorded(context.Background(), filepath.Join(t.TempDir(), "nothing"), nil); err != nil {
		t.Error(err)
	}
}
