package commands

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/api"
	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/logfile"
)

// errNoEngineLog says that the endpoint is no shim of ours, which is where an
// engine's log could be asked for.
var errNoEngineLog = errors.New("the runtime hands no logs out")

// engineLog reads a log that is out of reach as a file (a remote engine, a log
// driver without files) from the engine, through the shim.
func engineLog(ctx context.Context, conn *client.Conn, o logfile.Options, c *runtimeapi.Container, emit func(logfile.Entry) error) error {
	return lastLines(o, emit, func(o logfile.Options, emit func(logfile.Entry) error) error {
		return engineRecords(ctx, conn, o, c, emit)
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
func engineRecords(ctx context.Context, conn *client.Conn, o logfile.Options, c *runtimeapi.Container, emit func(logfile.Entry) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	records, err := api.NewCrishimClient(conn.ClientConn()).ContainerLogs(ctx, engineLogRequest(o, c.GetId()))
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

func engineLogRequest(o logfile.Options, id string) *api.ContainerLogsRequest {
	r := &api.ContainerLogsRequest{ContainerId: id, Follow: o.Follow, Tail: int64(o.Tail)}
	if !o.Since.IsZero() {
		r.SinceUnixNano = o.Since.UnixNano()
	}
	if !o.Until.IsZero() {
		r.UntilUnixNano = o.Until.UnixNano()
	}
	return r
}
