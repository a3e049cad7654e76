package commands

import (
	"context"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/output"
)

// connectQuietly is connect for completions: no debug lines, no patience.
func (c *completion) connectQuietly(ctx context.Context) *client.Conn {
	o, err := c.env.clientOptions(false)
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

// containerNames are names, pod/container once a slash is typed, and ids once
// something is typed that only an id begins with.
func (c *completion) containerNames(ctx context.Context) []candidate {
	conn := c.connectQuietly(ctx)
	if conn == nil {
		return nil
	}
	defer conn.Close()
	pods := podsByID(ctx, conn)
	r, err := conn.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return nil
	}
	var ids []candidate
	var found []source
	var texts []string
	for _, ctr := range r.GetContainers() {
		if !c.wants(ctr.GetState()) {
			continue
		}
		pod := pods[ctr.GetPodSandboxId()].GetMetadata()
		name := ctr.GetMetadata().GetName()
		text := strings.ToLower(strings.TrimPrefix(ctr.GetState().String(), "CONTAINER_")) + ", " + sinceText(c.env.Now(), ctr.GetCreatedAt())
		if pod.GetName() != "" {
			text = "in " + pod.GetNamespace() + "/" + pod.GetName() + ", " + text
		}
		of := source{pod.GetNamespace(), pod.GetName(), name}
		found = append(found, of)
		texts = append(texts, text)
		ids = append(ids, candidate{shortID(ctr.GetId()), name + " " + text})
	}
	var names []candidate
	for i, of := range found {
		for _, name := range c.formsOf(of, found) {
			names = append(names, candidate{name, texts[i]})
		}
	}
	return c.withIDs(names, ids)
}

// formsOf are the names of a container that fit what is typed so far. One that several
// containers have is offered only to somebody who has begun to type it.
func (c *completion) formsOf(of source, all []source) []string {
	if strings.Contains(c.word, "/") {
		return []string{of.name(), of.fullName()}
	}
	if c.word != "" && strings.HasPrefix(of.container, c.word) {
		return []string{of.container}
	}
	for _, form := range []func(source) string{func(s source) string { return s.container }, source.name} {
		shared := slices.ContainsFunc(all, func(other source) bool { return other != of && form(other) == form(of) })
		if !shared {
			return []string{form(of)}
		}
	}
	return []string{of.fullName()}
}

// wants leaves out containers that a verb can do nothing with.
func (c *completion) wants(state runtimeapi.ContainerState) bool {
	switch c.verb {
	case "exec", "attach", "debug":
		return state == runtimeapi.ContainerState_CONTAINER_RUNNING
	case "start":
		return state == runtimeapi.ContainerState_CONTAINER_CREATED
	}
	return true
}

func podsByID(ctx context.Context, conn *client.Conn) map[string]*runtimeapi.PodSandbox {
	out := map[string]*runtimeapi.PodSandbox{}
	r, err := conn.Runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return out
	}
	for _, p := range r.GetItems() {
		out[p.GetId()] = p
	}
	return out
}

func (c *completion) podNames(ctx context.Context) []candidate {
	conn := c.connectQuietly(ctx)
	if conn == nil {
		return nil
	}
	defer conn.Close()
	var names, ids []candidate
	for _, p := range podsByID(ctx, conn) {
		name := p.GetMetadata().GetName()
		text := strings.ToLower(strings.TrimPrefix(p.GetState().String(), "SANDBOX_")) + ", " + sinceText(c.env.Now(), p.GetCreatedAt())
		if strings.Contains(c.word, "/") {
			names = append(names, candidate{p.GetMetadata().GetNamespace() + "/" + name, text})
		} else {
			names = append(names, candidate{name, "in " + p.GetMetadata().GetNamespace() + ", " + text})
		}
		ids = append(ids, candidate{shortID(p.GetId()), name + " " + text})
	}
	return c.withIDs(names, ids)
}

func (c *completion) namespaces(ctx context.Context) []candidate {
	conn := c.connectQuietly(ctx)
	if conn == nil {
		return nil
	}
	defer conn.Close()
	var out []candidate
	for _, p := range podsByID(ctx, conn) {
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
		id := shortID(strings.TrimPrefix(img.GetId(), "sha256:"))
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

func sorted(list []candidate) []candidate {
	list = slices.DeleteFunc(list, func(c candidate) bool { return c.value == "" })
	slices.SortStableFunc(list, func(a, b candidate) int { return strings.Compare(a.value, b.value) })
	return list
}
