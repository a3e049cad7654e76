// Package e2e has the tests that run the whole program: the scripts of testdata/script, shells, pictures, the tour of
// README.md, examples.
package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/crishim/crishim/internal/test"
	"github.com/crishim/crishim/shim/docker"
)

// TestMain lets this binary be crishim too: the scripts start it under that name or as crictl, so that
// they meet the whole program and nothing has to be built beside the test.
func TestMain(m *testing.M) {
	testscript.Main(atRoot{m}, map[string]func(){"crishim": program, "crictl": program})
}

// atRoot runs the tests in the root of the repository.
type atRoot struct{ m *testing.M }

func (a atRoot) Run() int {
	if err := test.EnterRoot(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return a.m.Run()
}

// A runtime is what the scripts of a directory run against.
type runtime struct {
	name        string
	directories []string // below testdata/script
	endpoint    string
}

// TestScripts runs testdata/script: "plain" without any runtime, "cri" once through the
// embedded shim on Docker and once dialled to containerd, "docker" and "containerd" on theirs.
func TestScripts(t *testing.T) {
	images := startRegistry(t)
	for _, r := range []runtime{
		{"none", []string{"plain"}, ""},
		{"docker", []string{"cri", "docker"}, dockerEndpoint()},
		{"containerd", []string{"cri", "containerd"}, os.Getenv("CRISHIM_TEST_CONTAINERD")},
	} {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			if r.name != "none" {
				requireRuntime(t, r)
			}
			testscript.Run(t, testscript.Params{
				Files:               r.files(t),
				Setup:               func(env *testscript.Env) error { return r.setup(env, images) },
				Condition:           r.condition,
				Cmds:                map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "until": until},
				RequireExplicitExec: true,
				RequireUniqueNames:  true,
			})
		})
	}
}

// requireRuntime ends the test without the runtime.
func requireRuntime(t *testing.T, r runtime) {
	t.Helper()
	if r.endpoint != "" && os.Getenv("CRISHIM_NO_ENGINE") == "" {
		return
	}
	test.Missing(t, "no %s for the scripts; hack/engine.sh up brings one", r.name)
}

// dockerEndpoint is DOCKER_HOST as an endpoint of crishim's: the embedded shim on that engine.
func dockerEndpoint() string {
	host := os.Getenv("DOCKER_HOST")
	if path, ok := strings.CutPrefix(host, "unix://"); ok {
		return "docker://" + path
	}
	if scheme, rest, ok := strings.Cut(host, "://"); ok {
		return "docker+" + scheme + "://" + rest
	}
	if info, err := os.Stat("/var/run/docker.sock"); err == nil && info.Mode()&os.ModeSocket != 0 {
		return "docker:///var/run/docker.sock"
	}
	return ""
}

func (r runtime) files(t *testing.T) []string {
	t.Helper()
	var files []string
	for _, directory := range r.directories {
		found, err := filepath.Glob(filepath.Join("testdata", "script", directory, "*.txtar"))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	if len(files) == 0 {
		t.Fatalf("no scripts in %v", r.directories)
	}
	return files
}

func (r runtime) condition(cond string) (bool, error) {
	switch cond {
	case "docker", "containerd":
		return r.name == cond, nil
	case "containerd-store":
		return r.name == "docker" && containerdStore(), nil
	case "bare":
		return bareHost(), nil
	default:
		return false, fmt.Errorf("unknown condition %q", cond)
	}
}

// containerdStore reports whether the Docker engine keeps images in containerd.
func containerdStore() bool {
	engine, err := docker.New(docker.Options{})
	if err != nil {
		return false
	}
	defer engine.Close()
	info, err := engine.Info(context.Background())
	return err == nil && slices.Contains(info.DriverStatus, [2]string{"driver-type", "io.containerd.snapshotter.v1"})
}

// bareHost: no runtime listens where crishim would look by itself.
func bareHost() bool {
	for _, socket := range []string{
		"/run/crishim/crishim.sock", "/run/containerd/containerd.sock", "/run/crio/crio.sock", "/var/run/cri-dockerd.sock",
		"/var/run/dockershim.sock", "/run/k3s/containerd/containerd.sock", "/run/k0s/containerd.sock",
		"/var/snap/microk8s/common/run/containerd.sock",
	} {
		if _, err := os.Lstat(socket); err == nil {
			return false
		}
	}
	return true
}

var scriptCount atomic.Int64

// setup gives a script its environment and puts the variables into the configs it brings.
// $UNIQUE is the namespace of all its pods, by which they are removed however it ends.
func (r runtime) setup(env *testscript.Env, images registries) error {
	unique := fmt.Sprintf("t%d-%dx", os.Getpid(), scriptCount.Add(1))
	port, err := freePort()
	if err != nil {
		return err
	}
	vars := map[string]string{
		"UNIQUE":   unique,
		"ENDPOINT": r.endpoint,
		"IMAGE":    testImage(),
		"PORT":     strconv.Itoa(port),
		"REGISTRY": images.open,
		"PRIVATE":  images.private,
		"HOME":     env.WorkDir,
		// Records and logs of pods stay in the script's directory instead of /var/lib/crishim and /var/log/pods.
		"CRISHIM_ROOT": filepath.Join(env.WorkDir, "root"),
		// A host's /etc/crictl.yaml may not decide what is tested.
		"CONTAINER_RUNTIME_ENDPOINT": r.endpoint,
		"XDG_RUNTIME_DIR":            "",
		"DOCKER_HOST":                os.Getenv("DOCKER_HOST"),
		"CRISHIM_TEST_CONTAINERD":    os.Getenv("CRISHIM_TEST_CONTAINERD"),
		"CRISHIM_TEST_LONG":          os.Getenv("CRISHIM_TEST_LONG"),
	}
	if r.name == "none" {
		vars["DOCKER_HOST"], vars["CONTAINER_RUNTIME_ENDPOINT"] = "", ""
	}
	for k, v := range vars {
		env.Setenv(k, v)
	}
	if r.name == "none" {
		if err := listenSilently(env); err != nil {
			return err
		}
	}
	if r.endpoint != "" {
		env.Defer(func() { removePods(env, r.endpoint, unique) })
	}
	program, err := os.ReadFile("shim/pause/pause-" + goruntime.GOARCH)
	if err != nil {
		return err
	}
	// An image of the script's own: $REGISTRY's are those of all scripts.
	if err := os.WriteFile(filepath.Join(env.WorkDir, "image.tar"), test.ImageArchive(unique+":1", program), 0o600); err != nil {
		return err
	}
	return expandConfigs(env)
}

// listenSilently gives a script $SILENT, a socket that takes connections and never answers.
func listenSilently(env *testscript.Env) error {
	path := filepath.Join(env.WorkDir, "silent.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	env.Defer(func() { _ = l.Close() })
	env.Setenv("SILENT", path)
	return nil
}

func testImage() string {
	if image := os.Getenv("CRISHIM_TEST_IMAGE"); image != "" {
		return image
	}
	return "busybox:crishim"
}

// expandConfigs replaces $UNIQUE, $IMAGE and so on in the JSON and YAML files of a script;
// $$ stays a dollar sign.
func expandConfigs(env *testscript.Env) error {
	getenv := func(key string) string {
		if key == "$" {
			return key
		}
		return env.Getenv(key)
	}
	for _, pattern := range []string{"*.json", "*.yaml", "*.toml"} {
		files, err := filepath.Glob(filepath.Join(env.WorkDir, pattern))
		if err != nil {
			return err
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			if err := os.WriteFile(file, []byte(os.Expand(string(text), getenv)), 0o600); err != nil {
				return err
			}
		}
	}
	return nil
}

// removePods takes away what a script left, with the program itself.
func removePods(env *testscript.Env, endpoint, namespace string) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	crishim := func(args ...string) []byte {
		cmd := exec.CommandContext(ctx, "crishim", append([]string{"-r", endpoint}, args...)...)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			env.T().Log("clean-up: crishim", strings.Join(args, " "), err, stderr.String())
		}
		return out
	}
	var pods struct {
		Items []struct {
			ID       string `json:"id"`
			Metadata struct{ Namespace string }
		}
	}
	if err := json.Unmarshal(crishim("pods", "-o", "json"), &pods); err != nil {
		env.T().Log("clean-up: list of pods:", err)
	}
	for _, p := range pods.Items {
		if strings.HasSuffix(p.Metadata.Namespace, namespace) {
			crishim("rmp", "-f", p.ID)
		}
	}
}

// freePort is a port outside the range that the kernel hands out by itself, so that no other
// process gets it between this look and its use.
func freePort() (int, error) {
	base := 20000 + os.Getpid()%5000
	for range 500 {
		port := base + int(portCount.Add(1))
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		return port, l.Close()
	}
	return 0, errors.New("no free port")
}

var portCount atomic.Int64

// exits CODE CMD ARGS...: run the command and compare its exit status.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits code command [args...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%s: %v", args[1], err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit status %d, want %d", got, want)
	}
}

// until PATTERN CMD ARGS...: run the command again and again until its output matches. It
// stands where a program would sleep.
func until(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: until pattern command [args...]")
	}
	pattern, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		err := ts.Exec(args[1], args[2:]...)
		if err == nil && pattern.MatchString(ts.ReadFile("stdout")) {
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("no output like %q within a minute (last error: %v)", args[0], err)
		}
	}
}
