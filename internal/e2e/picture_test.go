package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/google/go-cmp/cmp"

	"github.com/crishim/crishim/commands"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/test/screen"
)

const (
	// later makes this binary a crishim whose clock is ahead, so that the ages in the picture are the same each time.
	later = "CRISHIM_TEST_LATER"
	// patient gives it longer timeouts for completion, for a busy machine.
	patient = "CRISHIM_TEST_PATIENT"
)

func program() {
	env := cli.SystemProcess("")
	if ahead, err := time.ParseDuration(os.Getenv(later)); err == nil {
		env.Now = func() time.Time { return time.Now().Add(ahead) }
	}
	if os.Getenv(patient) != "" {
		env.CompleteTimeout, env.ConnectTimeout = time.Minute, time.Minute
	}
	os.Exit(commands.Main(context.Background(), os.Args, env))
}

const picturePod = `apiVersion: v1
kind: Pod
metadata: {name: POD, namespace: NAMESPACE}
spec:
  containers:
  - {name: web, image: IMAGE, imagePullPolicy: Never, command: [sh, -c, "echo 'two apples' >/tmp/index.html; exec httpd -f -p 80 -h /tmp"]}
  - {name: worker, image: IMAGE, imagePullPolicy: Never, command: [sh, -c, "echo connecting; echo 'panic: no route to db'; exit 3"]}
`

// TestPictureOnEngine has the session of docs/picture.svg on a terminal of 80 by 24, and compares what it looks like
// with the picture, which CRISHIM_UPDATE_GOLDEN=1 (make picture) writes. Only ids and names differ from one run to the next.
func TestPictureOnEngine(t *testing.T) {
	t.Parallel()
	requireRuntime(t, runtime{name: "docker", endpoint: dockerEndpoint()})
	u := newUser(t, dockerEndpoint())
	// Names that are as long and no other test's.
	n := os.Getpid()
	own := string([]byte{'a' + byte(n%26), 'a' + byte(n/26%26), 'a' + byte(n/26/26%26)})
	names := strings.NewReplacer("NAMESPACE", "s"+own, "POD", "c"+own, "IMAGE", testImage())
	u.write("cart.yaml", names.Replace(picturePod))
	t.Cleanup(func() { u.must(names.Replace("crishim delete -q --grace-period 0 NAMESPACE/POD")) })
	u.must("crishim apply -q cart.yaml")
	_, _, _ = u.run(names.Replace("crishim wait --for exited NAMESPACE/POD/worker")) // with its status
	u.must(names.Replace("crishim exec NAMESPACE/POD/web sh -c 'until wget -qO- 127.0.0.1; do usleep 50000; done'"))

	s := newSession(t, append(u.env, later+"=20m", "PS1=$ ", "ENV=", "TERM=xterm-256color", "NO_COLOR="))
	s.types("$ ", names.Replace("crishim ps -a -n NAMESPACE"))
	s.types("$ ", names.Replace("crishim exec -it POD/web sh"))
	s.types("/ # ", "wget -qO- 127.0.0.1")
	s.types("/ # ", "exit 7")
	s.types("$ ", "echo $?")
	s.types("$ ", names.Replace("crishim describe POD | head -n 5"))
	s.types("$ ", "")

	// Which busybox the engine has is no part of it either.
	text := regexp.MustCompile(`BusyBox v\S+ \(.*\) built-in`).ReplaceAllString(s.text.String(), "BusyBox built-in")
	seen := map[string]string{}
	text = regexp.MustCompile(`\b[0-9a-f]{13}\b`).ReplaceAllStringFunc(text, func(id string) string {
		if seen[id] == "" {
			seen[id] = fmt.Sprintf("%x", 0x8f3c5d0e91b2a+len(seen)*0x1d4c7b2a95e3)[:13]
		}
		return seen[id]
	})
	text = regexp.MustCompile(`\bs`+own+`\b`).ReplaceAllString(text, "shop")
	text = regexp.MustCompile(`\bc`+own+`\b`).ReplaceAllString(text, "cart")
	got := screen.SVG("A terminal: crishim ps lists a container that ended with status 3, crishim exec opens a shell in another, crishim describe says why the first one ended", text, 80)
	comparePicture(t, "docs/picture.svg", got, func(picture []byte) string { return string(picture) })
}

// comparePicture compares a picture with what a session looks like now, or writes it.
func comparePicture(t *testing.T, file string, got []byte, what func(picture []byte) string) {
	t.Helper()
	if os.Getenv("CRISHIM_UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if diff := cmp.Diff(what(want), what(got)); err != nil || diff != "" {
		t.Errorf("%s is not what the session looks like now (%v): make picture, and look at it (-want +got)\n%s", file, err, diff)
	}
}

const topPods = `apiVersion: v1
kind: Pod
metadata: {name: cart-x2kqp, namespace: NAMESPACE}
spec:
  containers:
  - {name: cart, image: IMAGE, imagePullPolicy: Never, command: [sh, -c, "while :; do wget -qO /dev/null 127.0.0.1; dd if=/dev/zero of=/tmp/x bs=64k count=8 conv=fsync 2>/dev/null; usleep 300000; done"], resources: {limits: {memory: 64Mi}}}
  - {name: web, image: IMAGE, imagePullPolicy: Never, command: [httpd, -f, -p, "80", -h, /bin], resources: {limits: {memory: 32Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: search-m4vzt, namespace: NAMESPACE}
spec:
  containers:
  - {name: index, image: IMAGE, imagePullPolicy: Never, command: [sh, -c, "while :; do i=0; while [ $i -lt 40000 ]; do i=$((i+1)); done; usleep 900000; done"], resources: {limits: {cpu: 300m, memory: 96Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: mail-0, namespace: NAMESPACE}
spec:
  restartPolicy: Never
  containers:
  - {name: mail, image: IMAGE, imagePullPolicy: Never, command: [sh, -c, "x=aaaaaaaaaaaaaaaa; while :; do x=$x$x; done"], resources: {limits: {memory: 16Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: import-29381, namespace: NAMESPACE}
spec:
  restartPolicy: Never
  containers:
  - {name: import, image: IMAGE, imagePullPolicy: Never, command: [sh, -c, "exit 3"]}
`

// drawn are the texts of a picture.
var drawn = regexp.MustCompile(`(?m)<text x="[0-9.]+" y="([0-9.]+)"[^>]*>(.*)</text>$`)

// figures are what differs from one session to the next: numbers with their units, versions, and plots.
var figures = regexp.MustCompile(`\S*[0-9]\S*|[▁▂▃▄▅▆▇█─]+| -(/s)? `)

// TestPictureOfTopOnEngine has top on a terminal of 100 by 24 that tmux draws, and compares what it looks like with docs/top.svg,
// but for the figures. make picture draws it again, after 45 samples.
func TestPictureOfTopOnEngine(t *testing.T) {
	t.Parallel()
	requireRuntime(t, runtime{name: "docker", endpoint: dockerEndpoint()})
	u := newUser(t, dockerEndpoint())
	n := os.Getpid()
	own := string([]byte{'t', 'a' + byte(n%26), 'a' + byte(n/26%26), 'a' + byte(n/26/26%26)})
	names := strings.NewReplacer("NAMESPACE", own, "IMAGE", testImage())
	u.write("pods.yaml", names.Replace(topPods))
	t.Cleanup(func() {
		for _, pod := range []string{"cart-x2kqp", "search-m4vzt", "mail-0", "import-29381"} {
			u.must("crishim delete -q --grace-period 0 " + own + "/" + pod)
		}
	})
	mail := own + "/mail-0"
	for try := 1; ; try++ {
		_, _, _ = u.run("crishim apply -q pods.yaml") // two of them fail
		u.must("crishim wait --for exited --timeout 1m " + mail + "/mail")
		reason := u.must("crishim inspect -o jsonpath={.status.reason} " + mail + "/mail")
		if strings.TrimSpace(reason) == "OOMKilled" {
			break
		}
		if try == 5 {
			t.Fatalf("the engine does not say that memory has run out: %s", reason)
		}
		u.must("crishim delete -q --grace-period 0 " + mail) // the engine heard of the exit first
	}
	samples := 3
	if os.Getenv("CRISHIM_UPDATE_GOLDEN") != "" {
		samples = 45
	}
	s := screen.StartTmux(t, 100, 24, u.env, "crishim", "top", "--seconds", "1s", "--sort", "name")
	s.Shows("POD / CONTAINER")
	s.Types("/" + own)
	s.Press("Enter")
	s.Types("j")
	s.Until("plots", func(text string) bool {
		_, ruler, found := strings.Cut(text, "last ")
		seconds, _, _ := strings.Cut(ruler, "s ")
		n, err := strconv.Atoi(seconds)
		return found && (err == nil && n >= samples || strings.Contains(seconds, "m")) && strings.Contains(text, "OOMKilled") && !strings.Contains(text, "not known")
	})
	text := s.Coloured()
	s.Types("q")
	picture := screen.SVG("A terminal: crishim top lists pods with their containers, CPU, memory, network and disk rates, and plots the last minutes of the selected container",
		strings.ReplaceAll(text, own, "shop"), 100)
	comparePicture(t, "docs/top.svg", picture, withoutFigures)
}

// withoutFigures returns the texts of a picture, a row as a word, without figures.
func withoutFigures(picture []byte) string {
	var rows strings.Builder
	y := ""
	for _, m := range drawn.FindAllStringSubmatch(string(picture), -1) {
		if m[1] != y {
			rows.WriteString("\n")
		}
		y = m[1]
		rows.WriteString(strings.Join(strings.Fields(figures.ReplaceAllString(" "+m[2]+" ", " ")), " ") + " ")
	}
	return regexp.MustCompile(`\s+`).ReplaceAllString(rows.String(), " ")
}

const whyPods = `apiVersion: v1
kind: Pod
metadata: {name: cart, namespace: NAMESPACE}
spec:
  restartPolicy: Never
  containers:
  - {name: web, image: IMAGE, imagePullPolicy: Never, command: [httpd, -f, -p, "80", -h, /bin]}
  - {name: worker, image: IMAGE, imagePullPolicy: Never, command: [sh, -c, "echo 'panic: no route to db'; exit 3"]}
---
apiVersion: v1
kind: Pod
metadata: {name: mail, namespace: NAMESPACE}
spec:
  restartPolicy: Never
  containers:
  - {name: mail, image: IMAGE, imagePullPolicy: Never, command: [serve-mail]}
---
apiVersion: v1
kind: Pod
metadata: {name: search, namespace: NAMESPACE}
spec:
  restartPolicy: Never
  containers:
  - {name: index, image: "search:2.1", imagePullPolicy: Never}
`

// TestPictureOfWhyOnEngine has why on a terminal of 80 by 24 for a failed command, a missing program and a missing image.
func TestPictureOfWhyOnEngine(t *testing.T) {
	t.Parallel()
	requireRuntime(t, runtime{name: "docker", endpoint: dockerEndpoint()})
	u := newUser(t, dockerEndpoint())
	n := os.Getpid()
	own := string([]byte{'w', 'a' + byte(n%26), 'a' + byte(n/26%26), 'a' + byte(n/26/26%26)})
	names := strings.NewReplacer("NAMESPACE", own, "IMAGE", testImage())
	u.write("pods.yaml", names.Replace(whyPods))
	t.Cleanup(func() {
		for _, pod := range []string{"cart", "mail", "search"} {
			u.must("crishim delete -q --grace-period 0 " + own + "/" + pod)
		}
	})
	_, _, _ = u.run("crishim apply -q pods.yaml") // two of them cannot start
	u.must("crishim wait --for exited --timeout 1m " + own + "/cart/worker")

	s := newSession(t, append(u.env, "PS1=$ ", "ENV=", "TERM=xterm-256color", "NO_COLOR="))
	s.types("$ ", "crishim why -n "+own+" cart mail search")
	s.types("$ ", "")
	picture := screen.SVG("A terminal: crishim why says why three pods do not run: a command failed, a program is missing, an image is missing",
		strings.ReplaceAll(s.text.String(), own, "shop"), 80)
	comparePicture(t, "docs/why.svg", picture, withoutFigures)
}

// escapes are what busybox asks the terminal around its prompt.
var escapes = regexp.MustCompile(`(\x1b\[6n|\x1b\[J)+$`)

// session is a shell on a terminal of 80 by 24, and what it wrote.
type session struct {
	t        *testing.T
	terminal *os.File
	text     bytes.Buffer
}

func newSession(t *testing.T, env []string) *session {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	cmd := exec.CommandContext(ctx, "sh")
	cmd.Env = env
	terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: 80})
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel() // which ends a shell that still waits, and so the reading of what it writes
		_ = terminal.Close()
		_ = cmd.Wait()
	})
	return &session{t: t, terminal: terminal}
}

// types waits for a prompt and types a line.
func (s *session) types(prompt, line string) {
	s.t.Helper()
	before := s.text.Len()
	for !strings.HasSuffix(escapes.ReplaceAllString(s.text.String()[before:], ""), prompt) {
		buf := make([]byte, 4096)
		n, err := s.terminal.Read(buf)
		s.text.Write(buf[:n])
		if err != nil {
			s.t.Fatalf("no %q: %v\n%s", prompt, err, s.text.String())
		}
	}
	if line != "" {
		if _, err := s.terminal.WriteString(line + "\r"); err != nil {
			s.t.Fatal(err)
		}
	}
}
