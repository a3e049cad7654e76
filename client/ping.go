package client

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"
)

// pong is what an HTTP ping found out.
type pong struct {
	http, docker bool
	version, api string // the engine's own, and its API's
	refusal      string // the answer of what speaks HTTP and is no engine, where it is an error
	err          error
}

// ping asks an address in HTTP whether it is a Docker engine. It writes the
// request by hand: a client with its own pool would outlive the answer.
func (o *Options) ping(ctx context.Context, network, address string) pong {
	conn, err := o.dial(ctx, network, address)
	if err != nil {
		return pong{err: err}
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://docker/_ping", nil)
	if err != nil {
		return pong{err: err}
	}
	req.Close = true
	if err := req.Write(conn); err != nil {
		return pong{err: err}
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), req)
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return pong{err: err}
	}
	defer resp.Body.Close()
	api := resp.Header.Get("Api-Version")
	if api == "" {
		return pong{http: true, refusal: refusal(resp)}
	}
	// Server: Docker/20.10.24+dfsg1 (linux)
	server, _, _ := strings.Cut(strings.TrimPrefix(resp.Header.Get("Server"), "Docker/"), " ")
	return pong{http: true, docker: true, version: server, api: api}
}

// refusal is an HTTP error in one line: its status and what the body says, which
// an engine puts into JSON and a proxy before it does not.
func refusal(resp *http.Response) string {
	if resp.StatusCode < http.StatusBadRequest {
		return ""
	}
	text := "it answers HTTP " + strings.TrimSpace(resp.Status)
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10)) // what there is of it
	said := strings.Join(strings.Fields(string(body)), " ")
	var answer struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(body, &answer) == nil && answer.Message != "" {
		said = strings.Join(strings.Fields(answer.Message), " ")
	}
	if said != "" {
		text += ": " + said
	}
	return text
}
