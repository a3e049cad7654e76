package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/output"
)

// CompleteNothing offers no candidates, for arguments that only the user knows.
func CompleteNothing(context.Context, *completion) []candidate { return nil }

// CompleteFiles lets the shell complete file names.
func CompleteFiles(context.Context, *completion) []candidate { return []candidate{{completeFiles, ""}} }

// CompleteWords offers fixed words.
func CompleteWords(words ...string) Args {
	return func(context.Context, *completion) []candidate { return named(words) }
}

// First completes the first argument with one and the others with rest. A nil rest offers nothing.
func First(one, rest Args) Args {
	return func(ctx context.Context, c *completion) []candidate {
		switch {
		case len(c.args) == 0:
			return one(ctx, c)
		case rest != nil:
			return rest(ctx, c)
		}
		return nil
	}
}

// AnyOf offers the candidates of all kinds.
func AnyOf(kinds ...Args) Args {
	return func(ctx context.Context, c *completion) (all []candidate) {
		for _, kind := range kinds {
			all = append(all, kind(ctx, c)...)
		}
		return all
	}
}

// IfFlag completes with one if the flag is given, else with other.
func IfFlag(flag string, one, other Args) Args {
	return func(ctx context.Context, c *completion) []candidate {
		if c.given[flag] {
			return one(ctx, c)
		}
		return other(ctx, c)
	}
}

// CompleteContainers offers the containers in these states, by default in any: their names, pod/container once a slash is
// typed, and ids if no name begins with the word.
func CompleteContainers(states ...string) Args {
	return func(ctx context.Context, c *completion) []candidate {
		if !c.connect(ctx) {
			return nil
		}
		pods, _ := PodNames(ctx, c.conn)
		r, _ := c.conn.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
		var names, ids []candidate
		var found []ContainerPath
		var texts []string
		for _, ctr := range r.GetContainers() {
			state := ContainerState(ctr.GetState())
			if states != nil && !slices.Contains(states, state) {
				continue
			}
			pod, name := pods[ctr.GetPodSandboxId()], ctr.GetMetadata().GetName()
			text := state + ", " + c.age(ctr.GetCreatedAt())
			if pod.GetName() != "" {
				text = "in " + pod.GetNamespace() + "/" + pod.GetName() + ", " + text
			}
			found = append(found, ContainerPath{pod.GetNamespace(), pod.GetName(), name})
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
}

// formsOf returns the names of a container that match the typed word, or else the shortest name that no other container
// has. A name that several containers share is offered only if the word is a prefix of it.
func (c *completion) formsOf(of ContainerPath, all []ContainerPath) []string {
	if strings.Contains(c.word, "/") {
		return []string{of.Name(), of.FullName()}
	}
	var forms []string
	if c.word != "" && strings.HasPrefix(of.Container, c.word) {
		forms = append(forms, of.Container)
	}
	if c.word != "" && strings.HasPrefix(of.Pod, c.word) {
		// `crishim run` gives the pod the container's name, so the container's name is enough.
		if of.Pod != of.Container || slices.ContainsFunc(all, func(o ContainerPath) bool { return o.Namespace == of.Namespace && o.Pod == of.Pod && o != of }) {
			forms = append(forms, of.Name())
		}
	}
	if len(forms) > 0 {
		return forms
	}
	for _, form := range []func(ContainerPath) string{func(s ContainerPath) string { return s.Container }, ContainerPath.Name} {
		shared := slices.ContainsFunc(all, func(other ContainerPath) bool { return other != of && form(other) == form(of) })
		if !shared {
			return []string{form(of)}
		}
	}
	return []string{of.FullName()}
}

// CompletePods offers the names of pods, with their namespaces once a slash is typed.
func CompletePods(ctx context.Context, c *completion) []candidate {
	var names, ids []candidate
	for _, p := range c.listPods(ctx) {
		name, namespace := p.GetMetadata().GetName(), p.GetMetadata().GetNamespace()
		text := "sandbox " + PodState(p.GetState()) + ", " + c.age(p.GetCreatedAt())
		if strings.Contains(c.word, "/") {
			names = append(names, candidate{namespace + "/" + name, text})
		} else {
			names = append(names, candidate{name, "in " + namespace + ", " + text})
		}
		ids = append(ids, candidate{fmt.Sprintf("%.13s", p.GetId()), name + " " + text})
	}
	return c.withIDs(names, ids)
}

// CompleteImages offers the tags of images.
func CompleteImages(ctx context.Context, c *completion) []candidate {
	if !c.connect(ctx) {
		return nil
	}
	r, _ := c.conn.Image.ListImages(ctx, &runtimeapi.ListImagesRequest{})
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

// containersOfPod completes --container with the containers of the named pod, or of all pods before a pod is named.
func (c *completion) containersOfPod(ctx context.Context) []candidate {
	if !c.connect(ctx) {
		return nil
	}
	filter := &runtimeapi.ContainerFilter{}
	if len(c.args) > 0 {
		pod, _, _ := strings.Cut(c.args[0], ":") // arguments of cp have the form POD:PATH
		sandbox, err := c.conn.Pod(ctx, pod, client.PreferRunning)
		if err != nil {
			return nil
		}
		filter.PodSandboxId = sandbox.GetId()
	}
	r, _ := c.conn.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: filter})
	var names []candidate
	for _, ctr := range r.GetContainers() {
		names = append(names, candidate{ctr.GetMetadata().GetName(), ContainerState(ctr.GetState())})
	}
	return sorted(slices.DeleteFunc(names, cannotBeTyped))
}

// CompleteNamespaces offers the namespaces of pods.
func CompleteNamespaces(ctx context.Context, c *completion) []candidate {
	var out []candidate
	for _, p := range c.listPods(ctx) {
		out = append(out, candidate{p.GetMetadata().GetNamespace(), ""})
	}
	return sorted(slices.DeleteFunc(out, cannotBeTyped))
}

// withIDs offers ids only if no name matches: a list of both is twice as long and hard to read.
func (c *completion) withIDs(names, ids []candidate) []candidate {
	names = slices.DeleteFunc(names, cannotBeTyped)
	if slices.ContainsFunc(names, func(n candidate) bool { return strings.HasPrefix(n.value, c.word) }) {
		return sorted(names)
	}
	return sorted(ids)
}

// cannotBeTyped reports whether a name must not be offered. A name with control characters is not displayed as it is,
// a name that begins with a dash would be parsed as a flag (a container may be called --all), and the shell's script
// takes completeFiles as the request to complete files.
func cannotBeTyped(c candidate) bool {
	return c.value == "" || c.value[0] == '-' || c.value == completeFiles || output.Sanitize(c.value) != c.value
}
