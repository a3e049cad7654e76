package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
)

// TestOwnLogsStayWhereTheyAre: for any pod name from a runtime, rmp removes the log directory of that pod and nothing
// else.
func TestOwnLogsStayWhereTheyAre(t *testing.T) {
	before := OwnLogs
	OwnLogs = filepath.Join(t.TempDir(), "logs") // not the machine's
	t.Cleanup(func() { OwnLogs = before })
	names := map[string]*runtimeapi.PodSandboxMetadata{
		"plain":         {Namespace: "default", Name: "web", Uid: "1"},
		"up":            {Namespace: "default", Name: "web", Uid: "/.."},
		"further up":    {Namespace: "default", Name: "../..", Uid: "x/../../.."},
		"here":          {Namespace: "default", Name: "web", Uid: "/."},
		"ends in slash": {Namespace: "default", Name: "web", Uid: "/"},
		"another's":     {Namespace: "other", Name: "x", Uid: "/default_keep_1"},
		"NUL":           {Namespace: "default", Name: "a\x00b", Uid: "1"},
		"long":          {Namespace: strings.Repeat("n", 63), Name: strings.Repeat("p", 253), Uid: "1"},
		"empty":         {},
		"only dots":     {Name: "..", Uid: ".."},
	}
	seen := map[string]string{}
	for what, m := range names {
		dir := ownLogDirectory(m)
		if other, ok := seen[dir]; ok || filepath.Dir(dir) != OwnLogs {
			t.Errorf("%s: got %s (also of %q), want a directory of its own in %s", what, dir, other, OwnLogs)
			continue // nothing outside is removed if this fails
		}
		seen[dir] = what
		keep := filepath.Join(OwnLogs, "default_keep_1")
		pod := &runtimeapi.PodSandboxConfig{Metadata: m}
		if err := os.MkdirAll(keep, 0o755); err != nil {
			t.Fatal(err)
		}
		if os.Geteuid() == 0 {
			if err := completeLogs(&client.Conn{}, pod); err != nil || pod.GetLogDirectory() != dir || !IsDir(dir) {
				t.Errorf("%s: got %q, %v, want %s made", what, pod.GetLogDirectory(), err, dir)
			}
		}
		if err := RemoveOwnLogs(&client.Conn{}, m); err != nil || IsDir(dir) || !IsDir(keep) {
			t.Errorf("%s: got %v, want this pod's logs away and the other's still there", what, err)
		}
	}
}
