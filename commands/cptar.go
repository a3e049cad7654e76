package commands

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client/stream"
)

// complaintLimit is how much of a failing tar's stderr is kept.
const complaintLimit = 4096

// tarFiles are the files that a tar in the container finds.
type tarFiles struct{ p *copier }

func (f *tarFiles) close() {}

func (f *tarFiles) read(ctx context.Context, dir, name string, out io.Writer) error {
	return f.p.tar(ctx, nil, out, "-cf", "-", "-C", dir, name)
}

func (f *tarFiles) write(ctx context.Context, dir string, content io.Reader) error {
	return f.p.tar(ctx, content, nil, f.p.extract(dir)...)
}

// isDir does not know of a container without a test program.
func (f *tarFiles) isDir(ctx context.Context, file string) (dir, known bool, err error) {
	res, err := f.p.conn.Runtime.ExecSync(ctx, &runtimeapi.ExecSyncRequest{
		ContainerId: f.p.container.GetId(), Cmd: []string{"test", "-d", file},
	})
	if err != nil || res.GetExitCode() > 1 {
		return false, false, nil
	}
	return res.GetExitCode() == 0, true, nil
}

// tar runs tar in the container. in and out may be nil.
func (p *copier) tar(ctx context.Context, in io.Reader, out io.Writer, args ...string) error {
	complaint := &firstBytes{limit: complaintLimit}
	s := stream.Streams{In: in, Out: out, Err: complaint}
	if out == nil {
		s.Out = io.Discard
	}
	run := session{options: p.stream}
	err := cannotRun(run.dial(ctx, s, func(ctx context.Context) (string, error) {
		res, err := p.conn.Runtime.Exec(ctx, &runtimeapi.ExecRequest{
			ContainerId: p.container.GetId(), Cmd: append([]string{"tar"}, args...),
			Stdin: in != nil, Stdout: true, Stderr: true,
		})
		return res.GetUrl(), err
	}, stream.Exec))
	return p.explain(err, complaint.String())
}

// explain makes sentences of how tar ended.
func (p *copier) explain(err error, complaint string) error {
	var missing *statusError
	var exit *stream.ExitError
	switch {
	case errors.As(err, &missing):
		return fmt.Errorf("tar in %s: %w", containerName(p.container), missing.cause)
	case errors.As(err, &exit):
		line, _, _ := strings.Cut(strings.TrimSpace(complaint), "\n")
		if line == "" {
			line = fmt.Sprintf("it ended with status %d", exit.Code)
		}
		return fmt.Errorf("tar in %s: %s", containerName(p.container), strings.TrimPrefix(line, "tar: "))
	}
	return err
}

// extract are tar's arguments for unpacking into a directory.
func (p *copier) extract(dir string) []string {
	args := []string{"-xf", "-", "-C", dir}
	if !p.owner {
		args = append([]string{"-o"}, args...)
	}
	return args
}

// firstBytes keeps the beginning of what is written to it.
type firstBytes struct {
	limit int
	b     bytes.Buffer
}

func (f *firstBytes) Write(p []byte) (int, error) {
	if room := f.limit - f.b.Len(); room > 0 {
		f.b.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

func (f *firstBytes) String() string { return f.b.String() }
