package commands

import (
	"context"
	"errors"
	"syscall"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client/stream"
	"github.com/crishim/crishim/logfile"
)

// foreground shows the container's output until it ends and returns its
// status. With a terminal and input the streams are attached. Without, the
// output comes from the log, which, unlike an attach, holds what the command
// wrote before anyone could connect.
func (r *runner) foreground(ctx context.Context) error {
	r.o.session.fit(r.env)
	path := r.logFile(ctx)
	if r.o.session.tty && r.o.session.stdin {
		return r.attached(ctx, path)
	}
	feeding, cancel := context.WithCancel(ctx)
	defer cancel()
	if r.o.session.stdin {
		go r.feed(feeding)
	}
	err := r.follow(ctx, path)
	if errors.Is(err, errNoEngineLog) {
		cancel() // the input goes with the rest
		return r.attached(ctx, path)
	}
	if err != nil {
		return err
	}
	return r.status(ctx)
}

// logFile is where the container's log can be read, "" if nowhere.
func (r *runner) logFile(ctx context.Context) string {
	path, err := logPath(ctx, r.conn, &runtimeapi.Container{Id: r.containerID, State: runtimeapi.ContainerState_CONTAINER_RUNNING})
	if err != nil {
		return ""
	}
	file, err := logfile.Open(path)
	if err != nil {
		return ""
	}
	file.Close()
	return path
}

// attached connects all streams. A command that ended before anyone was
// connected has left its output in the log.
func (r *runner) attached(ctx context.Context, path string) error {
	streams := r.o.session.streams(r.env)
	early := newEarlyOutput(ctx, streams.Out, path)
	streams.Out = early
	if r.o.session.tty {
		r.o.session.options.Connected = early.connected
	}
	err := r.attach(ctx, streams)
	shown := early.finish()
	if errors.Is(err, stream.ErrDetached) || ctx.Err() != nil {
		return err
	}
	if !shown {
		if logged := r.follow(ctx, path); !errors.Is(logged, errNoEngineLog) {
			err = logged
		}
	}
	if err != nil {
		return err
	}
	return r.status(ctx)
}

func (r *runner) attach(ctx context.Context, streams stream.Streams) error {
	request := &runtimeapi.AttachRequest{
		ContainerId: r.containerID, Tty: streams.TTY,
		Stdin: streams.In != nil, Stdout: streams.Out != nil, Stderr: streams.Err != nil,
	}
	return r.o.session.dial(ctx, streams, func(ctx context.Context) (string, error) {
		res, err := r.conn.Runtime.Attach(ctx, request)
		return res.GetUrl(), err
	}, stream.Attach)
}

// feed gives the container its input. How that ends does not matter: the
// command may not want it.
func (r *runner) feed(ctx context.Context) {
	if err := r.attach(ctx, stream.Streams{In: r.env.In, TTY: r.o.session.tty}); err != nil {
		r.env.debugf("stdin: %v", err)
	}
}

// follow copies the log until the container has ended: the file, or what the
// engine hands out where there is none.
func (r *runner) follow(ctx context.Context, path string) error {
	o := logfile.Options{Tail: -1, Follow: true, Poll: 50 * time.Millisecond, Ended: untilEnd(r.conn, r.containerID)}
	emit := func(e logfile.Entry) error {
		to := r.env.Out
		if e.Stream == logfile.Stderr {
			to = r.env.Err
		}
		_, err := to.Write(e.Text)
		if errors.Is(err, syscall.EPIPE) {
			return &stream.SignalError{Signal: syscall.SIGPIPE}
		}
		return err
	}
	if path == "" {
		return engineLog(ctx, r.conn, o, &runtimeapi.Container{Id: r.containerID}, emit)
	}
	return logfile.Read(ctx, path, o, emit)
}

// status waits for the end and returns how it was.
func (r *runner) status(ctx context.Context) error {
	ended := untilEnd(r.conn, r.containerID)
	for {
		over, err := ended(ctx)
		if err != nil {
			return err
		}
		if over {
			return endOf(ctx, r.conn, r.containerID)
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}
