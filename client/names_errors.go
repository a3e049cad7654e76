package client

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"google.golang.org/grpc/codes"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/crishim/crishim/client/suggest"
	"github.com/crishim/crishim/internal/shellwords"
)

func checkRef(kind objectKind, ref string) error {
	reason := ""
	parts := strings.Split(ref, "/")
	switch {
	case ref == "":
		reason = "must not be empty"
	case strings.ContainsFunc(ref, isControl):
		reason = "must not contain control characters"
	case len(parts) > kind.parts:
		reason = fmt.Sprintf("must have at most %d parts", kind.parts)
	case slices.Contains(parts, ""):
		reason = "must not have an empty part"
	default:
		return nil
	}
	return &SyntaxError{What: kind.name, Text: ref, Reason: reason, hint: "give " + kind.forms}
}

func (s *snapshot) notFound(kind objectKind, q Query) error {
	ref := q.Ref
	hint := fmt.Sprintf("`crishim %s` lists them", kind.list)
	if pods := s.podsFor(kind, ref); len(pods) > 0 {
		pod := shellwords.Quote(q.pod())
		hint = fmt.Sprintf("%s is a pod, and has none: `crishim describe %s` shows why", q.pod(), pod)
		if slices.ContainsFunc(s.containers, func(o object) bool { return o.container.GetPodSandboxId() == pods[0].id }) {
			hint = fmt.Sprintf("%s is a pod; `crishim ps -a --pod %s` lists its containers", q.pod(), pod)
		}
	} else if best := suggest.Closest(ref, s.referencesLike(kind, ref)); best != "" {
		hint = fmt.Sprintf("did you mean %s? %s", clean(best), hint)
	} else if word, name, _ := strings.Cut(ref, "/"); name != "" && IsKindOfKubernetes(word) {
		hint = fmt.Sprintf("there are only pods and containers here: `crishim pods --name %s` looks for pods of that name", shellwords.Quote(clean(name)))
	}
	return &Error{Code: codes.NotFound, text: fmt.Sprintf("there is no %s %q", kind.name, ref), hint: hint}
}

var kindsOfKubernetes = strings.Fields("deployment deployments deploy service services svc configmap configmaps cm secret secrets job jobs cronjob cronjobs " +
	"daemonset daemonsets ds statefulset statefulsets sts replicaset replicasets rs namespace namespaces ns ingress ingresses ing")

// IsKindOfKubernetes reports whether a word is kubectl's name for an object that runtimes do not have.
func IsKindOfKubernetes(word string) bool { return slices.Contains(kindsOfKubernetes, word) }

func (s *snapshot) noContainerIn(q Query) error {
	hint := "`crishim pods` lists pods"
	if len(s.podsFor(containerKind, q.Ref)) > 0 {
		hint = fmt.Sprintf("`crishim ps -a --pod %s` lists its containers", shellwords.Quote(q.pod()))
	}
	return &Error{Code: codes.NotFound, text: fmt.Sprintf("there is no container %q in a pod %q", q.Container, q.Ref), hint: hint}
}

// podsFor resolves a container reference as if it were a pod reference, and returns the matching sandboxes.
func (s *snapshot) podsFor(kind objectKind, ref string) []object {
	if kind == containerKind && strings.Count(ref, "/") < 2 {
		for _, match := range podMatchers(ref) {
			if found := filter(s.pods, match); len(found) > 0 {
				return found
			}
		}
	}
	return nil
}

// referencesLike returns the names of objects with as many parts as ref.
func (s *snapshot) referencesLike(kind objectKind, ref string) []string {
	all := s.pods
	if kind == containerKind {
		all = append(slices.Clone(s.containers), s.pods...) // a pod's name also selects its container
	}
	var references []string
	for _, o := range all {
		parts := o.names()
		if n := strings.Count(ref, "/") + 1; n <= len(parts) && parts[len(parts)-n] != "" && parts[len(parts)-1] != "" {
			references = append(references, strings.Join(parts[len(parts)-n:], "/"))
		}
	}
	return references
}

func (s *snapshot) ambiguous(kind objectKind, q Query, found []object) error {
	var b strings.Builder
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	n := uniqueLength(found)
	for _, o := range found {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\n", clean(o.id[:min(n, len(o.id))]), clean(o.path()), o.state, age(s.now, o.created))
	}
	_ = tw.Flush() // strings.Builder never fails
	hint := "give one of these ids"
	if distinct(found) == len(found) {
		hint += ", or a longer name such as " + clean(found[0].path())
	}
	pods := s.podsFor(kind, q.Ref)
	elsewhere := func(o object) bool { return o.container.GetPodSandboxId() != pods[0].id }
	if q.ContainerFlag && q.Container == "" && len(pods) > 0 && !slices.ContainsFunc(found, elsewhere) {
		hint = fmt.Sprintf("add -c %s, or %s", shellwords.Quote(clean(found[0].name)), hint)
	}
	return &Error{
		Code: codes.FailedPrecondition, text: fmt.Sprintf("%q is ambiguous: %d %ss match:", q.Ref, len(found), kind.name),
		list: strings.Split(strings.TrimRight(b.String(), "\n"), "\n"), hint: hint,
	}
}

// uniqueLength returns the length at which all ids differ, at least the 13 characters that tables show.
func uniqueLength(found []object) int {
	n := 13
	for i, a := range found {
		for _, b := range found[i+1:] {
			for strings.HasPrefix(b.id, a.id[:min(n, len(a.id))]) && n <= len(a.id) {
				n++
			}
		}
	}
	return n
}

func (s *snapshot) notRunning(kind objectKind, q Query, o object) error {
	hint, ref := "", q.Ref
	if q.Namespace != "" || q.Container != "" {
		ref = o.path()
	}
	if kind == containerKind && o.state == "created" {
		hint = "`crishim start " + shellwords.Quote(clean(ref)) + "` starts it"
	} else if kind == containerKind {
		hint = "`crishim logs " + shellwords.Quote(clean(ref)) + "` shows its output"
		if o.podName != "" {
			hint = "`crishim describe " + shellwords.Quote(clean(strings.TrimPrefix(o.namespace+"/"+o.podName, "default/"))) + "` shows why it ended, " + hint
		}
	}
	return &Error{
		Code: codes.FailedPrecondition,
		text: fmt.Sprintf("%s %q is not %s: its state is %s, created %s ago", kind.name, q.Ref, kind.running, o.state, age(s.now, o.created)),
		hint: hint,
	}
}

func age(now time.Time, created int64) string {
	if created <= 0 {
		return "?"
	}
	return duration.HumanDuration(max(now.Sub(time.Unix(0, created)), 0))
}
