package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/output"
)

// connectQuietly is connect for completions: no debug lines, no retries.
func (c *completion) connectQuietly(ctx context.Context) *client.Conn {
	o, err := c.env.ClientOptions(false)
	if err != nil {
		return nil
	}
	o.Debug, o.MaxRetries = nil, 0
	conn, err := client.Connect(ctx, o)
	if err != nil {
		return nil
	}
	return conn
}

func (c *completion) age(created int64) string {
	return c.env.Now().Sub(time.Unix(0, created)).Round(time.Second).String() + " old"
}

// containerNames are names, pod/container once a slash is typed, and ids once
// something is typed that only an id begins with.
func (c *completion) containerNames(ctx context.Context) []candidate {
	conn := c.connectQuietly(ctx)
	if conn == nil {
		return nil
	}
	defer conn.Close()
	pods, _ := PodNames(ctx, conn) // without them there are the names of containers
	r, err := conn.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return nil
	}
	var names, ids []candidate
	var found []Source
	var texts []string
	for _, ctr := range r.GetContainers() {
		switch state := ctr.GetState(); c.verb { // with the others it can do nothing
		case "exec", "attach", "debug", "kill", "pause", "unpause":
			if state != runtimeapi.ContainerState_CONTAINER_RUNNING {
				continue
			}
		case "start":
			if state != runtimeapi.ContainerState_CONTAINER_CREATED {
				continue
			}
		}
		pod, name := pods[ctr.GetPodSandboxId()], ctr.GetMetadata().GetName()
		text := ContainerState(ctr.GetState()) + ", " + c.age(ctr.GetCreatedAt())
		if pod.GetName() != "" {
			text = "in " + pod.GetNamespace() + "/" + pod.GetName() + ", " + text
		}
		found = append(found, Source{pod.GetNamespace(), pod.GetName(), name})
		texts = append(texts, text)
		ids = append(ids, candidate{fmt.Sprintf("%.13s", ctr.GetId()), name + " " + text})
	}
	for i, of := range found {
		for _, name := range c.formsOf(of, found) {
			names = append(names, candidate{name, texts[i]})
		}
	}
	return c.withIDs(names, ids)
}

// formsOf are the names of a container that fit what is typed so far. One that several
// containers share is offered only once its beginning is typed.
func (c *completion) formsOf(of Source, all []Source) []string {
	if strings.Contains(c.word, "/") {
		return []string{of.Name(), of.FullName()}
	}
	var forms []string
	if c.word != "" && strings.HasPrefix(of.Container, c.word) {
		forms = append(forms, of.Container)
	}
	if c.word != "" && strings.HasPrefix(of.Pod, c.word) {
		// A pod of run is called like its container: that name alone is enough.
		if of.Pod != of.Container || slices.ContainsFunc(all, func(o Source) bool { return o.Namespace == of.Namespace && o.Pod == of.Pod && o != of }) {
			forms = append(forms, of.Name())
		}
	}
	if len(forms) > 0 {
		return forms
	}
	for _, form := range []func(Source) string{func(s Source) string { return s.Container }, Source.Name} {
		shared := slices.ContainsFunc(all, func(other Source) bool { return other != of && form(other) == form(of) })
		if !shared {
			return []string{form(of)}
		}
	}
	return []string{of.FullName()}
}

// containersOfPod are the names of containers in the pod that is named, for --container; before there is
// a name, those of all.
func (c *completion) containersOfPod(ctx context.Context) []candidate {
	conn := c.connectQuietly(ctx)
	if conn == nil {
		return nil
	}
	defer conn.Close()
	filter := &runtimeapi.ContainerFilter{}
	if len(c.args) > 0 {
		pod, _, _ := strings.Cut(c.args[0], ":") // of cp
		sandbox, err := conn.Pod(ctx, pod, client.PreferRunning)
		if err != nil {
			return nil
		}
		filter.PodSandboxId = sandbox.GetId()
	}
	r, err := conn.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: filter})
	if err != nil {
		return nil
	}
	var names []candidate
	for _, ctr := range r.GetContainers() {
		names = append(names, candidate{ctr.GetMetadata().GetName(), ContainerState(ctr.GetState())})
	}
	return sorted(slices.DeleteFunc(names, cannotBeTyped))
}

// listPods lists the pods for completions.
func (c *completion) listPods(ctx context.Context) []*runtimeapi.PodSandbox {
	conn := c.connectQuietly(ctx)
	if conn == nil {
		return nil
	}
	defer conn.Close()
	r, err := conn.Runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return nil
	}
	return r.GetItems()
}

func (c *completion) podNames(ctx context.Context) []candidate {
	var names, ids []candidate
	for _, p := range c.listPods(ctx) {
		name, namespace := p.GetMetadata().GetName(), p.GetMetadata().GetNamespace()
		text := "sandbox " + PodState(p.GetState()) + ", " + c.age(p.GetCreatedAt()) // a pod's own state takes its containers
		if strings.Contains(c.word, "/") {
			names = append(names, candidate{namespace + "/" + name, text})
		} else {
			names = append(names, candidate{name, "in " + namespace + ", " + text})
		}
		ids = append(ids, candidate{fmt.Sprintf("%.13s", p.GetId()), name + " " + text})
	}
	return c.withIDs(names, ids)
}

func (c *completion) namespaces(ctx context.Context) []candidate {
	var out []candidate
	for _, p := range c.listPods(ctx) {
		out = append(out, candidate{p.GetMetadata().GetNamespace(), ""})
	}
	return sorted(slices.DeleteFunc(out, cannotBeTyped))
}

func (c *completion) imageNames(ctx context.Context) []candidate {
	conn := c.connectQuietly(ctx)
	if conn == nil {
		return nil
	}
	defer conn.Close()
	r, err := conn.Image.ListImages(ctx, &runtimeapi.ListImagesRequest{})
	if err != nil {
		return nil
	}
	var names, ids []candidate
	for _, img := range r.GetImages() {
		id := fmt.Sprintf("%.13s", strings.TrimPrefix(img.GetId(), "sha256:"))
		for _, tag := range img.GetRepoTags() {
			names = append(names, candidate{tag, id}, candidate{strings.TrimPrefix(tag, "docker.io/library/"), id})
		}
		ids = append(ids, candidate{id, strings.Join(img.GetRepoTags(), ", ")})
	}
	return c.withIDs(names, ids)
}

// withIDs offers ids only where no name fits: a list of both is twice as long
// and half as clear.
func (c *completion) withIDs(names, ids []candidate) []candidate {
	names = slices.DeleteFunc(names, cannotBeTyped)
	for _, n := range names {
		if n.value != "" && strings.HasPrefix(n.value, c.word) {
			return sorted(names)
		}
	}
	return sorted(ids)
}

// cannotBeTyped reports whether a name is none to complete: one with control characters is
// shown in other letters than it has, one that begins with a dash would be taken as a flag
// (a container may be called --all), and one may be the order to complete files.
func cannotBeTyped(c candidate) bool {
	return c.value == "" || c.value[0] == '-' || c.value == completeFiles || output.Sanitize(c.value) != c.value
}
