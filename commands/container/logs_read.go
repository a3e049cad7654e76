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
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/api"
	"github.com/crishim/crishim/internal/logfile"
	"github.com/crishim/crishim/internal/shellwords"
)

// readLog calls emit for each entry of a container's log: from its file, or from the engine if the file cannot be read.
func readLog(ctx context.Context, conn *client.Conn, o logsOptions, c *runtimeapi.Container, emit func(cli.ContainerPath, logfile.Entry) error) error {
	from := cli.ContainerPathOf(c)
	if o.reopen {
		if _, err := conn.Runtime.ReopenContainerLog(ctx, &runtimeapi.ReopenContainerLogRequest{ContainerId: c.GetId()}); err != nil {
			return cli.About(from.Name(), err)
		}
	}
	fromEntry := func(e logfile.Entry) error { return emit(from, e) }
	path, err := logPath(ctx, conn, c)
	if err == nil {
		damaged := 0
		o.read.Ended, o.read.Damaged = untilEnd(conn, c.GetId()), &damaged
		err = logfile.Read(ctx, path, o.read, fromEntry)
		if damaged > 0 && o.warn != nil {
			o.warn("log of %s: damaged lines: %d; what could not be read is left out", from.Name(), damaged)
		}
		if !errors.Is(err, fs.ErrPermission) {
			return err
		}
		err = cli.WithHint(err, "log files belong to root: try it with sudo")
	}
	if c.GetState() == runtimeapi.ContainerState_CONTAINER_CREATED {
		return err
	}
	if engineErr := engineLog(ctx, conn, o.read, c.GetId(), fromEntry); !errors.Is(engineErr, client.ErrNotDockershim) {
		return engineErr
	}
	return err
}

// logPath returns the log path from the status, or the path of the engine's log from the verbose status.
func logPath(ctx context.Context, conn *client.Conn, c *runtimeapi.Container) (string, error) {
	name := cli.ContainerName(c)
	res, err := conn.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.GetId(), Verbose: true})
	if err != nil {
		return "", cli.About(name, err)
	}
	var details struct {
		LogPath string `json:"logPath"`
	}
	if json.Unmarshal([]byte(res.GetInfo()["info"]), &details) != nil {
		details.LogPath = ""
	}
	paths := []string{res.GetStatus().GetLogPath(), details.LogPath}
	for _, path := range paths {
		if path == "" || conn.Remote() != "" {
			continue
		}
		if _, err := os.Stat(path); err == nil || errors.Is(err, fs.ErrPermission) {
			return path, nil
		}
	}
	missing := cmp.Or(paths...)
	switch {
	case c.GetState() == runtimeapi.ContainerState_CONTAINER_CREATED:
		return "", cli.WithHint(fmt.Errorf("container %s has not started, so it has no log", name), "`crishim start %s` starts it", shellwords.Quote(name))
	case missing == "":
		return "", cli.WithHint(fmt.Errorf("container %s has no log", name), "give its pod a log_directory and the container a log_path")
	}
	return "", cli.WithHint(fmt.Errorf("the log of container %s is not on this machine: %s", name, missing), "run crishim on the node itself")
}

// untilEnd returns a function that reports whether a container has ended. A created container has not.
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

// engineLog reads the log of a remote engine, or of a log driver without files, through the shim.
func engineLog(ctx context.Context, conn *client.Conn, o logfile.Options, id string, emit func(logfile.Entry) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream if emit fails
	return lastLines(o, emit, func(o logfile.Options, emit func(logfile.Entry) error) error {
		request := &api.ContainerLogsRequest{ContainerId: id, Follow: o.Follow, Tail: int64(o.Tail)}
		if !o.Since.IsZero() {
			request.SinceUnixNano = o.Since.UnixNano()
		}
		if !o.Until.IsZero() {
			request.UntilUnixNano = o.Until.UnixNano()
		}
		records, err := conn.Crishim().ContainerLogs(ctx, request)
		if err != nil {
			return err
		}
		for {
			record, err := records.Recv()
			switch {
			case errors.Is(err, io.EOF):
				return nil
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
	})
}

// lastLines corrects Tail: the engine counts the lines of both streams, and the lines after Until.
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

const (
	// restartPeriod is the poll interval for the next attempt of an ended container.
	restartPeriod = 250 * time.Millisecond
	// restartGrace is how long to wait for the next attempt without --follow-restarts: enough for an immediate
	// restart.
	restartGrace = 3 * time.Second
)

// followLog is readLog for --follow: it continues with the container's next attempt.
func followLog(ctx context.Context, conn *client.Conn, o logsOptions, c *runtimeapi.Container, emit func(cli.ContainerPath, logfile.Entry) error) error {
	for {
		if err := readLog(ctx, conn, o, c, emit); err != nil {
			return err
		}
		if !o.read.Until.IsZero() && o.now().After(o.read.Until) {
			return nil
		}
		timeout := restartGrace
		switch {
		case o.restarts:
			timeout = -1
		case c.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED:
			timeout = 0 // c had ended before its log was read, so no restart is imminent
		}
		next, err := nextAttempt(ctx, conn, c, timeout)
		if next == nil || err != nil {
			return err
		}
		c = next
		o.read.Tail, o.read.Since, o.reopen = -1, time.Time{}, false
	}
}

// nextAttempt waits for the next attempt after c. It returns nil without an error if the pod is no longer ready or the
// timeout has passed. A negative timeout never passes.
func nextAttempt(ctx context.Context, conn *client.Conn, c *runtimeapi.Container, timeout time.Duration) (*runtimeapi.Container, error) {
	for waited := time.Duration(0); ; waited += restartPeriod {
		attempts, ready, err := attemptsOf(ctx, conn, c)
		if err != nil {
			return nil, err
		}
		later := slices.DeleteFunc(attempts, func(other *runtimeapi.Container) bool {
			return other.GetState() == runtimeapi.ContainerState_CONTAINER_CREATED || byAge(other, c) <= 0
		})
		if len(later) > 0 {
			return cli.NamePods(ctx, conn, later[:1])[0], nil
		}
		if !ready || timeout >= 0 && waited >= timeout {
			return nil, nil
		}
		if err := cli.Sleep(ctx, restartPeriod); err != nil {
			return nil, err
		}
	}
}
