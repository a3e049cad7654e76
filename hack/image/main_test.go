package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/crishim/crishim/internal/test"
)

// licences creates a directory with the image's files other than the program.
func licences(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"LICENSE", "THIRD-PARTY-LICENSES"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestImageIsTheSameEveryTime(t *testing.T) {
	t.Parallel()
	var images [][]byte
	for range 2 {
		dir := licences(t)
		program, out := filepath.Join(dir, "crishim-arm64"), filepath.Join(dir, "image.tar")
		if err := os.WriteFile(program, []byte("a program"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := write(out, program, dir, "arm64", "v1.2.3", time.Unix(1000, 0).UTC()); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		images = append(images, content)
		image, err := tarball.ImageFromPath(out, nil)
		if err != nil {
			t.Fatal(err)
		}
		config, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if got, want := []string{config.Architecture, config.Created.Format(time.RFC3339), config.Config.Entrypoint[0]}, []string{"arm64", "1970-01-01T00:16:40Z", "/crishim"}; !cmp.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	if !bytes.Equal(images[0], images[1]) {
		t.Error("the second image has other bytes")
	}
}

// TestImageRunsOnEngine loads the image and lists the containers of the engine that runs it. The image finds the
// engine's socket in /run through /var/run.
func TestImageRunsOnEngine(t *testing.T) {
	t.Parallel()
	socket, local := strings.CutPrefix(os.Getenv("DOCKER_HOST"), "unix://")
	docker, err := exec.LookPath("docker")
	if !local || err != nil || os.Getenv("CRISHIM_NO_ENGINE") != "" {
		test.Missing(t, "no engine on a unix socket, or no docker: %v", err)
	}
	program := "../../bin/crishim"
	if _, err := os.Stat(program); err != nil {
		test.Missing(t, "no bin/crishim: make build first")
	}
	out, tag := filepath.Join(t.TempDir(), "image.tar"), "t"+strconv.Itoa(os.Getpid())
	if err := write(out, program, licences(t), runtime.GOARCH, tag, time.Unix(1000, 0).UTC()); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) string {
		text, err := exec.Command(docker, args...).CombinedOutput()
		if err != nil {
			t.Errorf("docker %v: %s, %v", args, text, err)
		}
		return string(text)
	}
	run("load", "-i", out)
	t.Cleanup(func() { run("rmi", "crishim:"+tag) })
	text := run("run", "--rm", "--network", "none", "-v", socket+":/run/docker.sock", "crishim:"+tag, "ps")
	if !strings.HasPrefix(text, "CONTAINER ") {
		t.Errorf("got %s", text)
	}
}
