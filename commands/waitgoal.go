package commands

import (
	"context"
	"regexp"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
)

// goal is what wait waits for.
type goal struct {
	state string         // running, exited, removed, ready, notready
	image string         // instead of a state
	log   *regexp.Regexp // a line of the log, instead of a state
}

func parseGoal(text string) (goal, error) {
	if image, ok := strings.CutPrefix(text, "image="); ok && image != "" {
		return goal{image: image}, nil
	}
	if expr, ok := strings.CutPrefix(text, "log="); ok && expr != "" {
		line, err := regexp.Compile(expr)
		if err != nil {
			return goal{}, usagef("--for %s: %v", quote(text), err)
		}
		return goal{log: line}, nil
	}
	switch strings.ToLower(text) {
	case "running", "exited", "removed", "ready", "notready":
		return goal{state: strings.ToLower(text)}, nil
	}
	return goal{}, usagef("--for %s: want running, exited, removed, ready, notready, log=REGEX or image=REF", quote(text))
}

func (g goal) wanted() string {
	switch {
	case g.image != "":
		return "there"
	case g.log != nil:
		return "started"
	}
	return g.state
}

// ofPods says that the goal is a state of pods only.
func (g goal) ofPods() bool { return g.state == "ready" || g.state == "notready" }

// watched is a container or a pod on its way to a goal.
type watched struct {
	ref  string
	goal goal
	id   string // once it is known
	pod  bool
	code int32

	absent func(error) // told once when it does not exist yet
}

// look says whether the goal is reached, and how things are.
func (w *watched) look(ctx context.Context, conn *client.Conn) (bool, string, error) {
	if w.id == "" {
		if err := w.find(ctx, conn); isGone(err) {
			return w.missing(err)
		} else if err != nil {
			return false, "", err
		}
	}
	if w.pod {
		return w.lookAtPod(ctx, conn)
	}
	return w.lookAtContainer(ctx, conn)
}

// missing judges what does not exist (yet).
func (w *watched) missing(err error) (bool, string, error) {
	switch w.goal.state {
	case "removed":
		return true, "removed", nil
	case "exited", "notready":
		return false, "", err
	}
	if w.absent != nil {
		w.absent(err)
		w.absent = nil
	}
	return false, "not there", nil
}

func (w *watched) find(ctx context.Context, conn *client.Conn) error {
	if !w.goal.ofPods() {
		c, err := conn.Container(ctx, w.ref, client.PreferRunning)
		w.id = c.GetId()
		if !isGone(err) || w.goal.state != "removed" || strings.Count(w.ref, "/") > 1 {
			return err
		}
	}
	pod, err := conn.Pod(ctx, w.ref, client.PreferRunning)
	w.id, w.pod = pod.GetId(), true
	return err
}

func (w *watched) lookAtContainer(ctx context.Context, conn *client.Conn) (bool, string, error) {
	res, err := conn.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: w.id})
	if isGone(err) {
		return w.missing(err)
	}
	if err != nil {
		return false, "", err
	}
	w.code = res.GetStatus().GetExitCode()
	now := strings.ToLower(strings.TrimPrefix(res.GetStatus().GetState().String(), "CONTAINER_"))
	if w.goal.state == "running" && now == "exited" {
		w.id = "" // its next attempt may be under way
	}
	if w.goal.log != nil {
		return now == "running" || now == "exited", now, nil
	}
	return now == w.goal.state, now, nil
}

func (w *watched) lookAtPod(ctx context.Context, conn *client.Conn) (bool, string, error) {
	res, err := conn.Runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: w.id})
	if isGone(err) {
		return w.missing(err)
	}
	if err != nil {
		return false, "", err
	}
	now := strings.ToLower(strings.TrimPrefix(res.GetStatus().GetState().String(), "SANDBOX_"))
	if w.goal.state == "ready" && now == "notready" {
		w.id = "" // a new sandbox may be under way
	}
	return now == w.goal.state, now, nil
}

// imageThere says whether an image has arrived.
func imageThere(ctx context.Context, conn *client.Conn, ref string) (bool, string, error) {
	res, err := conn.Image.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: ref}})
	return res.GetImage() != nil, "not there", err
}
