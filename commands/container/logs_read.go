package container

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/api"
	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/logfile"
)

// readLog hands the log of one container to emit: from its file, or from the
// engine where the file is out of reach.
func readLog(ctx context.Context, conn *client.Conn, o logsOptions, c *runtimeapi.Container, emit func(cli.Source, logfile.Entry) error) error {
	from := cli.SourceOf(c)
	if o.reopen {
		if _, err := conn.Runtime.ReopenContainerLog(ctx, &runtimeapi.ReopenContainerLogRequest{ContainerId: c.GetId()}); err != nil {
			return cli.About(from.Name(), err)
		}
	}
	fromEntry := func(e logfile.Entry) error { return emit(from, e) }
	path, err := logPath(ctx, conn, c)
	if err == nil {
		o.read.Ended = untilEnd(conn, c.GetId())
		err = logfile.Read(ctx, path, o.read, fromEntry)
		if !errors.Is(err, fs.ErrPermission) {
			return err
		}
		err = cli.WithHint(err, "log files belong to root: try it with sudo")
	}
	if c.GetState() == runtimeapi.ContainerState_CONTAINER_CREATED {
		return err
	}
	if asked := engineLog(ctx, conn, o.read, c.GetId(), fromEntry); !errors.Is(asked, errNoEngineLog) {
		return asked
	}
	return err
}

// logPath is where the log of a container can be read: where CRI says, or
// where the runtime's own details say that the engine keeps it.
func logPath(ctx context.Context, conn *client.Conn, c *runtimeapi.Container) (string, error) {
	name := cli.ContainerName(c)
	res, err := conn.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.GetId(), Verbose: true})
	if err != nil {
		return "", cli.About(name, err)
	}
	var details struct {
		LogPath string `json:"logPath"`
	}
	// Not every runtime gives details, or gives them as JSON.
	if json.Unmarshal([]byte(res.GetInfo()["info"]), &details) != nil {
		details.LogPath = ""
	}
	missing := cmp.Or(res.GetStatus().GetLogPath(), details.LogPath)
	for _, path := range []string{res.GetStatus().GetLogPath(), details.LogPath} {
		if _, err := os.Stat(path); path != "" && (err == nil || errors.Is(err, fs.ErrPermission)) {
			return path, nil
		}
	}
	switch {
	case c.GetState() == runtimeapi.ContainerState_CONTAINER_CREATED:
		return "", cli.WithHint(fmt.Errorf("container %s has not started, so it has no log", name), "crishim start %s starts it", name)
	case missing == "":
		return "", cli.WithHint(fmt.Errorf("container %s keeps no log", name), "give its pod a log_directory and the container a log_path")
	}
	return "", cli.WithHint(fmt.Errorf("the log of container %s is not on this machine: %s", name, missing), "run crishim on the node itself")
}

// untilEnd reports whether a container will write no more, as far as the runtime knows. One that has not
// started yet will.
func untilEnd(conn *client.Conn, id string) func(context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		res, err := conn.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
		switch {
		case ctx.Err() != nil:
			return false, context.Cause(ctx)
		case cli.IsGone(err):
			return true, nil
		case err != nil:
			return false, err
		}
		state := res.GetStatus().GetState()
		return state == runtimeapi.ContainerState_CONTAINER_EXITED || state == runtimeapi.ContainerState_CONTAINER_UNKNOWN, nil
	}
}

// errNoEngineLog means that the endpoint is no shim of ours, which is where an
// engine's log could be asked for.
var errNoEngineLog = errors.New("the runtime hands no logs out")

// engineLog reads a log that is out of reach as a file (a remote engine, a log
// driver without files) from the engine, through the shim.
func engineLog(ctx context.Context, conn *client.Conn, o logfile.Options, id string, emit func(logfile.Entry) error) error {
	return lastLines(o, emit, func(o logfile.Options, emit func(logfile.Entry) error) error {
		return engineRecords(ctx, conn, o, id, emit)
	})
}

// lastLines reads a log whose reader counts the lines of both streams for Tail, and
// those after Until.
func lastLines(o logfile.Options, emit func(logfile.Entry) error, read func(logfile.Options, func(logfile.Entry) error) error) error {
	if o.Tail <= 0 || o.Stream == "" && o.Until.IsZero() {
		return read(o, emit)
	}
	history, last, newest := o, logfile.Last{Lines: o.Tail}, o.Since
	history.Tail, history.Follow = -1, false
	err := read(history, func(e logfile.Entry) error {
		last.Add(e)
		newest = e.Time.Add(time.Nanosecond)
		return nil
	})
	if err == nil {
		err = last.Emit(emit)
	}
	if err != nil || !o.Follow {
		return err
	}
	o.Tail, o.Since = -1, newest
	return read(o, emit)
}

// engineRecords hands on what the engine has; its tail is that of both streams.
func engineRecords(ctx context.Context, conn *client.Conn, o logfile.Options, id string, emit func(logfile.Entry) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	request := &api.ContainerLogsRequest{ContainerId: id, Follow: o.Follow, Tail: int64(o.Tail)}
	if !o.Since.IsZero() {
		request.SinceUnixNano = o.Since.UnixNano()
	}
	if !o.Until.IsZero() {
		request.UntilUnixNano = o.Until.UnixNano()
	}
	records, err := api.NewCrishimClient(conn.ClientConn()).ContainerLogs(ctx, request)
	if err != nil {
		return err
	}
	for {
		record, err := records.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case status.Code(err) == codes.Unimplemented:
			return errNoEngineLog
		case err != nil:
			return err
		}
		e := logfile.Entry{Time: time.Unix(0, record.GetUnixNano()).UTC(), Stream: logfile.Stdout, Text: record.GetText()}
		if record.GetStream() == api.LogRecord_STDERR {
			e.Stream = logfile.Stderr
		}
		if !record.GetPartial() {
			e.Text = append(e.Text, '\n')
		}
		if o.Stream != "" && o.Stream != e.Stream {
			continue
		}
		if err := emit(e); err != nil {
			return err
		}
	}
}
