package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	urfave "github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/internal/kube"
)

// Filter selects containers or pods by flags. Every condition is checked here, because some runtimes ignore filters.
type Filter struct {
	ID              string // the beginning of the id
	Name, namespace Pattern
	In              Scope  // the namespace of -n
	State           string // running, ready, ...; empty: any
	labels          map[string]string
	labelled        client.Selector // value of --label KEY
	Selector        client.Selector // --selector, and after Check also --label
	latest          bool
	last            int // number of the newest objects to list; 0 for all

	pod, image string // of containers
	All        bool   // containers in every state

	Crictl bool // an unknown --pod is used as an id without an error, as in crictl
}

var (
	containerStates = []string{"created", "running", "exited", "unknown"}
	podStates       = []string{"ready", "notready"}
)

// flags returns the flags that containers and pods share.
func (f *Filter) flags(in *Invocation, states []string) []urfave.Flag {
	last, namespace := []string{}, []string{"n"}
	if in.Compat {
		last, namespace = namespace, last // crictl's -n is --last
	}
	return []urfave.Flag{
		Typed(&f.Name, ParsePattern, "name", "Filter by names that match `REGEX`"),
		Typed(&f.namespace, ParsePattern, "namespace", "Filter by namespaces that match `REGEX`; -n NAME matches exactly"),
		stringFlag{&urfave.StringFlag{Name: "in-namespace", Aliases: namespace, Hidden: true, Destination: &f.In.Namespace}},
		WordFlag(&f.State, states, "state", "Filter by `STATE`: "+strings.Join(states, ", "), "s"),
		f.LabelFlag(),
		SelectorFlag(&f.Selector),
		BoolFlag(&f.latest, "latest", "Select only the newest, in any state", "l"),
		IntFlag(&f.last, "last", "Select only the `N` newest, in any state", last...),
	}
}

// ContainerFlags returns the flags of verbs that choose containers.
func (f *Filter) ContainerFlags(in *Invocation) []urfave.Flag {
	return append(f.flags(in, containerStates),
		StringFlag(&f.pod, "pod", "Filter by `POD`: name, namespace/name or ID", "p"),
		StringFlag(&f.image, "image", "Filter by container `IMAGE`"),
		BoolFlag(&f.All, "all", "Include containers in every state, not only running ones", "a"),
	)
}

// PodFlags returns the flags of verbs that choose pods.
func (f *Filter) PodFlags(in *Invocation) []urfave.Flag {
	return f.flags(in, podStates)
}

func (f *Filter) LabelFlag() urfave.Flag {
	flag := NewTyped(f.addLabel, "label", "Filter by label `KEY=VALUE`, or KEY for any value; several must all match", nil)
	flag.Repeated = true
	return flag
}

func (f *Filter) addLabel(text string) error {
	if text == "" || strings.ContainsAny(text, "=!,()") {
		return addLabels(&f.labels, text)
	}
	exists, err := client.ParseSelector(text)
	f.labelled = append(f.labelled, exists...)
	return err
}

// DockerContainerFlag returns docker's --filter for containers.
func (f *Filter) DockerContainerFlag() urfave.Flag {
	return f.dockerFlag([]string{"id=ID", "name=REGEX", "label=KEY[=VALUE]", "status=STATE", "ancestor=IMAGE", "pod=POD"}, containerStates)
}

// DockerPodFlag returns docker's --filter for pods.
func (f *Filter) DockerPodFlag() urfave.Flag {
	return f.dockerFlag([]string{"id=ID", "name=REGEX", "label=KEY[=VALUE]", "status=STATE"}, podStates)
}

func (f *Filter) dockerFlag(forms, states []string) urfave.Flag {
	var keys []string
	for _, form := range forms {
		key, _, _ := strings.Cut(form, "=")
		keys = append(keys, key)
	}
	flag := NewTyped(func(text string) (err error) {
		key, value, _ := strings.Cut(text, "=")
		if !slices.Contains(keys, key) && key != "state" {
			return MustBe(forms...)
		}
		switch key {
		case "id":
			f.ID = value
		case "name":
			f.Name, err = ParsePattern(value)
		case "label":
			err = f.addLabel(value)
		case "status", "state":
			if f.State = value; !slices.Contains(states, value) {
				err = fmt.Errorf("the %s %w", key, MustBe(states...))
			}
		case "ancestor":
			f.image = value
		case "pod":
			f.pod = value
		}
		return err
	}, "filter", "Filter by condition `KEY=VALUE`, as in docker: "+strings.Join(keys, ", "), []string{"f"})
	flag.Repeated = true
	return flag
}

// SelectorFlag returns --selector.
func SelectorFlag(to *client.Selector, aliases ...string) urfave.Flag {
	return Typed(to, func(text string) (client.Selector, error) {
		selector, err := client.ParseSelector(text)
		var syntax *client.SyntaxError
		if errors.As(err, &syntax) {
			err = WithHint(errors.New(syntax.Reason), "%s", syntax.Hint())
		}
		return selector, err
	}, "selector", "Filter by label query `SELECTOR`: app=web,tier!=db,env in (a,b),!old", aliases...)
}

// Given reports whether a flag restricts the objects. The id and the namespace of -n do not count.
func (f *Filter) Given() bool {
	return f.Name.Regexp != nil || f.namespace.Regexp != nil || f.pod != "" || f.image != "" || f.State != "" ||
		len(f.labels)+len(f.labelled)+len(f.Selector) > 0 || f.latest || f.last != 0
}

// Last returns the number of --last or --latest, 0 for all.
func (f *Filter) Last() int { return f.last }

// HintLast prints a hint if the value of -n is a number and not a namespace: -n is --last in crictl and docker.
func (f *Filter) HintLast(ctx context.Context, p *Printer, conn *client.Conn) {
	n := f.In.Namespace
	if _, err := strconv.ParseUint(n, 10, 16); err != nil {
		return
	}
	pods, err := PodNames(ctx, conn)
	if err != nil || slices.ContainsFunc(slices.Collect(maps.Values(pods)), func(m *runtimeapi.PodSandboxMetadata) bool { return m.GetNamespace() == n }) {
		return
	}
	p.Note("hint: -n is the namespace, and there is no %s; `--last %[1]s` is the number, and so is -n with --compat=crictl", n)
}

// Check completes a filter. By default only running containers are chosen.
func (f *Filter) Check(containers bool) error {
	f.Selector = append(append(f.Selector, f.labelled...), client.Labels(f.labels)...)
	switch {
	case f.last < 0:
		return Invalid("last", f.last, "must not be negative")
	case f.latest && f.last == 0:
		f.last = 1
	}
	switch {
	case f.last > 0:
		f.State = ""
	case containers && f.State == "" && !f.All:
		f.State = "running"
	}
	return nil
}

// filtered has the properties of a container or a pod that Filter compares.
type filtered struct {
	id, name, namespace, state string
	labels                     map[string]string
	created                    int64
}

// choose returns the matching items, the newest first.
func choose[T any](f *Filter, all []T, look func(T) filtered) []T {
	kept := slices.DeleteFunc(slices.Clone(all), func(item T) bool {
		t := look(item)
		return !strings.HasPrefix(t.id, f.ID) || f.State != "" && f.State != t.state ||
			!f.Name.matches(t.name) || !f.namespace.matches(t.namespace) || f.In.Namespace != "" && f.In.Namespace != t.namespace || !f.Selector.Matches(t.labels)
	})
	slices.SortStableFunc(kept, func(a, b T) int { return cmp.Compare(look(b).created, look(a).created) })
	if f.last > 0 && f.last < len(kept) {
		kept = kept[:f.last]
	}
	return kept
}

// ContainerState returns the word for a state in flags and messages: running, exited.
func ContainerState(s runtimeapi.ContainerState) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "CONTAINER_"))
}

// PodState returns the word for a state in flags and messages: ready, notready.
func PodState(s runtimeapi.PodSandboxState) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "SANDBOX_"))
}

// Containers lists the containers that the filter chooses.
func (f *Filter) Containers(ctx context.Context, conn *client.Conn) ([]*runtimeapi.Container, error) {
	request := &runtimeapi.ContainerFilter{LabelSelector: f.Selector.Equalities()}
	if f.State != "" {
		state := runtimeapi.ContainerState_value["CONTAINER_"+strings.ToUpper(f.State)]
		request.State = &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState(state)}
	}
	if f.pod != "" {
		pod, err := conn.FindPod(ctx, f.In.Query(f.pod, client.NewestAttempt))
		if f.Crictl && IsGone(err) {
			pod, err = &runtimeapi.PodSandbox{Id: f.pod}, nil
		}
		if err != nil {
			return nil, err
		}
		request.PodSandboxId = pod.GetId()
	}
	var images []string // all names of the image
	if f.image != "" {
		res, err := conn.Image.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: f.image}})
		if err != nil {
			return nil, err
		}
		images = slices.Concat([]string{f.image, res.GetImage().GetId()}, res.GetImage().GetRepoTags(), res.GetImage().GetRepoDigests())
	}
	res, err := conn.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: request})
	if err != nil {
		return nil, err
	}
	all := slices.DeleteFunc(res.GetContainers(), func(c *runtimeapi.Container) bool {
		made := func(image string) bool {
			return image != "" && (c.GetImageRef() == image || c.GetImageId() == image || c.GetImage().GetImage() == image)
		}
		return f.pod != "" && c.GetPodSandboxId() != request.GetPodSandboxId() || f.image != "" && !slices.ContainsFunc(images, made)
	})
	// Containers without the kubelet's labels have no namespace. Their sandbox has it.
	var pods map[string]*runtimeapi.PodSandboxMetadata
	if f.namespace.Regexp != nil || f.In.Namespace != "" {
		if pods, err = PodNames(ctx, conn); err != nil {
			return nil, err
		}
	}
	return choose(f, all, func(c *runtimeapi.Container) filtered {
		namespace := cmp.Or(c.GetLabels()[kube.LabelPodNamespace], pods[c.GetPodSandboxId()].GetNamespace())
		return filtered{c.GetId(), c.GetMetadata().GetName(), namespace, ContainerState(c.GetState()), c.GetLabels(), c.GetCreatedAt()}
	}), nil
}

// Pods lists the pods that the filter chooses.
func (f *Filter) Pods(ctx context.Context, conn *client.Conn) ([]*runtimeapi.PodSandbox, error) {
	request := &runtimeapi.PodSandboxFilter{LabelSelector: f.Selector.Equalities()}
	if f.State != "" {
		state := runtimeapi.PodSandboxState_value["SANDBOX_"+strings.ToUpper(f.State)]
		request.State = &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState(state)}
	}
	res, err := conn.Runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: request})
	if err != nil {
		return nil, err
	}
	return f.choosePods(res.GetItems()), nil
}

func (f *Filter) choosePods(pods []*runtimeapi.PodSandbox) []*runtimeapi.PodSandbox {
	return choose(f, pods, func(p *runtimeapi.PodSandbox) filtered {
		m := p.GetMetadata()
		return filtered{p.GetId(), m.GetName(), m.GetNamespace(), PodState(p.GetState()), p.GetLabels(), p.GetCreatedAt()}
	})
}
