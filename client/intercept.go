package client

import (
	"context"
	"errors"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

const (
	apiV1       = "v1"
	apiV1alpha2 = "v1alpha2"
)

// callInterceptor gives each call its time limit, words its error and tells
// Debug that it was made. It never shows a message: they hold passwords.
func (l *link) callInterceptor(o *Options) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
		invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		lim := o.limitFor(ctx, method, req)
		if lim.d > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, lim.d)
			defer cancel()
		}
		start := time.Now()
		err := invoke(ctx, method, req, reply, cc, opts...)
		spent := time.Since(start)
		if err != nil {
			l.debugf(o, "%s on %s failed after %s: %v", method, l.endpoint, round(spent), err)
			return l.alsoAside(callError(err, operation(method), l.endpoint, spent, lim))
		}
		l.debugf(o, "%s on %s took %s", method, l.endpoint, round(spent))
		return l.localStreams(ctx, reply)
	}
}

func (l *link) debugf(o *Options, format string, args ...any) {
	if !l.probing {
		o.debugf(format, args...)
	}
}

// alsoAside adds the runtime that was found but not taken to the hint of an
// error that may come from having taken the wrong one.
func (l *link) alsoAside(err error) error {
	var e *Error
	if l.aside == "" || !errors.As(err, &e) || e.Code == codes.Canceled {
		return err
	}
	e.aside = l.aside
	return err
}

// streamInterceptor words the errors of streams. They have no limit of their
// own: watching is meant to last.
func (l *link) streamInterceptor(o *Options) grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string,
		open grpc.Streamer, opts ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		o.debugf("%s on %s opened", method, l.endpoint)
		s, err := open(ctx, desc, cc, method, opts...)
		if err != nil {
			return nil, callError(err, operation(method), l.endpoint, 0, limit{})
		}
		return &wordedStream{ClientStream: s, op: operation(method), endpoint: l.endpoint, start: time.Now()}, nil
	}
}

type wordedStream struct {
	grpc.ClientStream
	op, endpoint string
	start        time.Time
}

func (s *wordedStream) RecvMsg(m any) error {
	return callError(s.ClientStream.RecvMsg(m), s.op, s.endpoint, time.Since(s.start), limit{})
}

// wireMethod is the name under which the runtime knows a method. The
// messages of v1alpha2 are the same on the wire.
func (l *link) wireMethod(method string) string {
	if l.api == apiV1alpha2 {
		return strings.Replace(method, "/runtime.v1.", "/runtime.v1alpha2.", 1)
	}
	return method
}

func (l *link) versionUnary() grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
		invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		return invoke(ctx, l.wireMethod(method), req, reply, cc, opts...)
	}
}

func (l *link) versionStream() grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string,
		open grpc.Streamer, opts ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		return open(ctx, desc, cc, l.wireMethod(method), opts...)
	}
}
