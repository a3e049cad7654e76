package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// bench is one run: an engine, a crishim serve on it, a pod with a container.
type bench struct {
	options
	results results

	dir    string
	host   string // DOCKER_HOST
	serve  *runtime
	engine *http.Client
	undo   []func() error

	pod, container string // ids; the engine knows the same
	podIP          string
}

// stepTimeout bounds every step that is not measured.
const stepTimeout = 2 * time.Minute

func newBench(ctx context.Context, o options) (b *bench, err error) {
	b = &bench{options: o}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	if b.dir, err = os.MkdirTemp("", "crishim-bench-"); err != nil {
		return b, err
	}
	b.undo = append(b.undo, func() error { return os.RemoveAll(b.dir) })
	if err = errors.Join(b.installPrograms(), b.mountRun()); err != nil {
		return b, err
	}
	b.host = os.Getenv("DOCKER_HOST")
	socket, found := strings.CutPrefix(b.host, "unix://")
	if !found {
		return b, errors.New("DOCKER_HOST must name the engine's socket as unix:///path")
	}
	b.engine = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	if b.results, err = b.describe(ctx); err != nil {
		return b, err
	}
	if b.serve, err = b.startServe(ctx, "serve", b.host); err != nil {
		return b, err
	}
	b.undo = append(b.undo, b.serve.stop)
	return b, b.startPod(ctx)
}

// installPrograms copies crishim and its peers, and puts the copies first in PATH. A program that the linker wrote lies
// in the page cache in single pages, and one that was copied in large ones: its start takes 1.5 ms less.
func (b *bench) installPrograms() error {
	docker, err := exec.LookPath("docker")
	if err != nil {
		return err
	}
	bin := filepath.Join(b.dir, "bin")
	if err := os.Mkdir(bin, 0o700); err != nil {
		return err
	}
	for _, program := range []*string{&b.crishim, &b.crictl, &b.criDockerd, &docker} {
		if *program == "" {
			continue
		}
		content, err := os.ReadFile(*program)
		if err != nil {
			return err
		}
		*program = filepath.Join(bin, filepath.Base(*program))
		if err := os.WriteFile(*program, content, 0o755); err != nil { //nolint:gosec // a program
			return err
		}
	}
	return os.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
}

// mountRun makes /run/crishim a tmpfs, as /run is on every node: it may be on a disk in a container.
func (b *bench) mountRun() error {
	var run unix.Statfs_t
	if err := unix.Statfs("/run", &run); err != nil || run.Type == unix.TMPFS_MAGIC || os.Geteuid() != 0 {
		return err
	}
	const dir = "/run/crishim"
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) { //nolint:gosec // as crishim makes it
		return err
	}
	if err := unix.Mount("crishim-bench", dir, "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mount a tmpfs on %s: %w", dir, err)
	}
	b.undo = append(b.undo, func() error { return unix.Unmount(dir, 0) })
	return nil
}

// describe says what is measured, and on what.
func (b *bench) describe(ctx context.Context) (results, error) {
	var version struct{ Version string }
	if err := b.call(ctx, http.MethodGet, "/version", nil, &version); err != nil {
		return results{}, err
	}
	out, err := exec.CommandContext(ctx, b.crishim, "--version").Output()
	if err != nil {
		return results{}, err
	}
	return results{Commit: strings.TrimSpace(string(out)), Engine: version.Version, CPUs: cpus(), Quick: b.quick}, nil
}

func (b *bench) startPod(ctx context.Context) error {
	config := podConfig("bench")
	var err error
	if b.pod, err = b.serve.runPod(ctx, config); err != nil {
		return err
	}
	b.undo = append(b.undo, func() error { return b.serve.removePod(context.WithoutCancel(ctx), b.pod) })
	b.container, err = b.serve.startContainer(ctx, b.pod, config,
		containerConfig(b.image, "main", "sh", "-c", "head -c 1000 /dev/zero > /tmp/index.html; httpd -p 8080 -h /tmp; exec sleep 100000"))
	if err != nil {
		return err
	}
	b.podIP, err = b.serve.podIP(ctx, b.pod)
	return err
}

// part measures one part and undoes what it left.
func (b *bench) part(ctx context.Context, p part) error {
	from := len(b.undo)
	err := p.do(b, ctx)
	return errors.Join(err, b.undoTo(from))
}

// close undoes everything, the last first.
func (b *bench) close() error { return b.undoTo(0) }

func (b *bench) undoTo(n int) error {
	var errs []error
	for i := len(b.undo) - 1; i >= n; i-- {
		errs = append(errs, b.undo[i]())
	}
	b.undo = b.undo[:n]
	return errors.Join(errs...)
}

// command runs a program and hides its output unless it fails.
func command(ctx context.Context, stdin io.Reader, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr = stdin, &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", filepath.Base(name), strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return nil
}

// embedded runs crishim on its embedded shim.
func (b *bench) embedded(ctx context.Context, args ...string) func() error {
	return func() error { return command(ctx, nil, b.crishim, append([]string{"-r", "docker://"}, args...)...) }
}

// served runs crishim on serve.
func (b *bench) served(ctx context.Context, args ...string) func() error {
	return func() error {
		return command(ctx, nil, b.crishim, append([]string{"-r", b.serve.endpoint}, args...)...)
	}
}

// ctl runs crictl on the same serve; nil where there is no crictl.
func (b *bench) ctl(ctx context.Context, args ...string) func() error {
	if b.crictl == "" {
		return nil
	}
	return func() error {
		return command(ctx, nil, b.crictl, append([]string{"-r", b.serve.endpoint, "-i", b.serve.endpoint}, args...)...)
	}
}

func docker(ctx context.Context, args ...string) func() error {
	return func() error { return command(ctx, nil, "docker", args...) }
}

// call makes one call of the engine's API. The answer goes into out; nil
// reads it to its end.
func (b *bench) call(ctx context.Context, method, path string, body io.Reader, out any) error {
	req, err := http.NewRequestWithContext(ctx, method, "http://docker"+path, body)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := b.engine.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("%s %s: %s: %s", method, path, res.Status, bytes.TrimSpace(raw))
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(raw, out)
}

// removeContainers removes containers of the engine's, running or not.
func (b *bench) removeContainers(ctx context.Context, ids []string) error {
	return each(len(ids), 8, func(i int) error {
		if ids[i] == "" {
			return nil
		}
		return b.call(context.WithoutCancel(ctx), http.MethodDelete, "/containers/"+ids[i]+"?force=1&v=1", nil, nil)
	})
}

// each calls do for 0 to n-1 by some workers at once, each of which ends at
// its first error.
func each(n, workers int, do func(i int) error) error {
	var wg sync.WaitGroup
	errs := make([]error, workers)
	for w := range workers {
		wg.Go(func() {
			for i := w; i < n && errs[w] == nil; i += workers {
				errs[w] = do(i)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
