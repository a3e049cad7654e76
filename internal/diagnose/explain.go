package diagnose

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/lazyregexp"
	"github.com/crishim/crishim/internal/shellwords"
	"github.com/crishim/crishim/kuberuntime"
	"github.com/crishim/crishim/kuberuntime/pod"
)

type Severity string

// Severities, worst first.
const (
	Error   Severity = "error"   // something does not run that should
	Warning Severity = "warning" // something runs with a problem
	Note    Severity = "note"    // no fault: something was stopped, was never started, or keeps others waiting
)

var severities = []Severity{Error, Warning, Note}

// Code names a kind of finding. Programs may rely on it: codes are never renamed.
type Code string

// Codes of findings.
const (
	codeOutOfMemory       Code = "out-of-memory"         // the kernel ended the container for lack of memory
	codeProcessKilled     Code = "process-killed"        // the kernel ended a process, and its container still runs
	codeExited            Code = "exited"                // the container ended with a status other than 0
	codeSignalled         Code = "ended-by-signal"       // the exit status stands for a signal
	codeEngineRestarted   Code = "engine-restarted"      // the container ended when the engine restarted
	codeNodeRestarted     Code = "node-restarted"        // the container ended when the node restarted
	codeStoppedByUser     Code = "stopped"               // a user, crishim, a kubelet or the engine stopped it
	codeNoCommand         Code = "command-not-found"     // the container's command does not exist
	codeNotExecutable     Code = "not-executable"        // the command is not a program, or has no execute permission
	codeWrongArchitecture Code = "wrong-architecture"    // the image or its command is for another architecture
	codeNoInterpreter     Code = "interpreter-not-found" // the command's loader or script interpreter does not exist
	codeStartFailed       Code = "start-failed"          // any other failed start
	codeImageNotFound     Code = "image-not-found"       // the registry does not have the image, or hides it without a login
	codeImageRefused      Code = "image-not-allowed"     // the registry requires a login, or refuses the given login
	codeImageName         Code = "image-name-invalid"    // the reference does not parse
	codeRegistryAway      Code = "registry-not-found"    // no usable answer from the registry: DNS, network or TLS fails
	codeRegistryLimit     Code = "registry-limit"        // the registry answered 429
	codeRegistryTrouble   Code = "registry-trouble"      // the registry answered 5xx
	codeImageMissing      Code = "image-not-present"     // the image is not present, and imagePullPolicy forbids a pull
	codeImagePull         Code = "image-pull-failed"     // any other failed pull
	codeImageWait         Code = "image-pulling"         // the image is still being pulled
	codeConfigError       Code = "config-error"          // an object that the manifest names is missing
	codeMountMissing      Code = "mount-missing"         // the source of a mount does not exist
	codeVolumesFailed     Code = "volumes-failed"        // any other failure to set up volumes
	codeDiskFull          Code = "disk-full"             // a filesystem has (almost) no free space
	codeInodesFull        Code = "inodes-full"           // a filesystem has (almost) no free inodes
	codeDiskLow           Code = "disk-low"              // so little free space that a kubelet would evict pods
	codePortTaken         Code = "port-taken"            // another process holds the port on the host or in the pod's network
	codeNetworkFailed     Code = "network-failed"        // the network plugin reports an error
	codeNoAddress         Code = "no-address-left"       // the network has no free address
	codeSandboxFailed     Code = "sandbox-failed"        // any other failure to create the sandbox
	codeSandboxGone       Code = "sandbox-gone"          // the sandbox ended or was removed while its containers ran
	codeProbeFailed       Code = "killed-by-probe"       // a liveness or startup probe failed
	codeNotReady          Code = "not-ready"             // a readiness or startup probe has not succeeded, or an init container takes long
	codePaused            Code = "paused"                // the container's processes are frozen
	codeHookFailed        Code = "hook-failed"           // a postStart hook failed
	codeRestarted         Code = "restarted"             // the container runs again after an exit without a known cause
	codeNotStarted        Code = "not-started"           // the container cannot start (reason in the text), or was only created
	codeStateUnknown      Code = "state-unknown"         // the runtime has lost the container
	codePodFailed         Code = "pod-failed"            // the pod as a whole has failed
	codeDeadlineExceeded  Code = "deadline-exceeded"     // the pod's activeDeadlineSeconds have passed
	codeRuntimeNotReady   Code = "runtime-not-ready"     // the runtime reports RuntimeReady=false
	codeNetworkNotReady   Code = "network-not-ready"     // the runtime reports NetworkReady=false
	codeInvalidManifest   Code = "manifest-invalid"      // sync cannot read the manifest
)

func Codes() []Code {
	return []Code{
		codeOutOfMemory, codeProcessKilled, codeExited, codeSignalled, codeEngineRestarted, codeNodeRestarted, codeStoppedByUser, codeNoCommand,
		codeNotExecutable, codeWrongArchitecture, codeNoInterpreter, codeStartFailed, codeImageNotFound, codeImageRefused, codeImageName, codeRegistryAway, codeRegistryLimit, codeRegistryTrouble, codeImageMissing,
		codeImagePull, codeImageWait, codeConfigError, codeMountMissing, codeVolumesFailed, codeDiskFull, codeInodesFull, codeDiskLow,
		codePortTaken, codeNetworkFailed, codeNoAddress, codeSandboxFailed, codeSandboxGone, codeProbeFailed, codeNotReady, codePaused, codeHookFailed,
		codeRestarted, codeNotStarted, codeStateUnknown, codePodFailed, codeDeadlineExceeded, codeRuntimeNotReady, codeNetworkNotReady, codeInvalidManifest,
	}
}

// quoteless are the codes of findings whose text quotes neither a container nor a manifest. Their text has only names of
// containers and images, paths, numbers, and errors of the runtime or a registry. A finding about an attempt of a
// container may quote it.
var quoteless = []Code{
	codeImageNotFound, codeImageRefused, codeImageName, codeRegistryAway, codeRegistryLimit, codeRegistryTrouble, codeImageMissing, codeImagePull, codeImageWait,
	codeDiskFull, codeInodesFull, codeDiskLow, codePortTaken, codeNetworkFailed, codeNoAddress, codeSandboxFailed, codeRuntimeNotReady, codeNetworkNotReady,
}

// MayQuote reports whether the text of f may quote a container or a manifest.
func (f Finding) MayQuote() bool { return f.ID != "" || !slices.Contains(quoteless, f.Code) }

// Finding is a problem and its cause.
type Finding struct {
	Severity Severity `json:"severity"`
	Code     Code     `json:"code"`
	// Namespace, Pod and Container name the subject; all are "" for the node.
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
	Container string `json:"container,omitempty"`
	ID        string `json:"id,omitempty"` // of the attempt, or sandbox
	// Text is a sentence without the pod's name. An inferred cause begins with "probably".
	Text     string    `json:"text"`
	Probable bool      `json:"probable"`
	Time     time.Time `json:"time,omitzero"`      // time of the end or failure, if known
	Evidence []string  `json:"evidence,omitempty"` // facts behind the conclusion
	Log      []string  `json:"log,omitempty"`      // last lines, not used for conclusions
	Next     []string  `json:"next,omitempty"`     // suggested command lines, best first
}

func (f Finding) Where() string {
	if f.Pod == "" {
		return "node"
	}
	return strings.Join(slices.DeleteFunc([]string{f.Namespace, f.Pod, f.Container}, func(s string) bool { return s == "" }), "/")
}

// Explain returns the problems of the pods and the node, worst first.
func Explain(f *Facts) []Finding {
	out := explainNode(f)
	for _, p := range f.Pods {
		out = append(out, ExplainPod(f, p)...)
	}
	slices.SortStableFunc(out, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(slices.Index(severities, a.Severity), slices.Index(severities, b.Severity)),
			b.Time.Compare(a.Time), strings.Compare(a.Where(), b.Where()))
	})
	return out
}

// ExplainPod returns the problems of one pod: first of the pod as a whole, then of its containers in the order of the
// manifest.
func ExplainPod(f *Facts, p *Pod) []Finding {
	x := explainer{f, p}
	out := x.pod()
	for _, c := range p.View.Containers {
		if finding, ok := x.container(c); ok && (p.Pod.Status.Message == "" || finding.Severity != Note) { // a container stopped with its failed pod needs no note
			finding.Container = c.Container.Name
			out = append(out, finding)
		}
	}
	for i := range out {
		out[i].Namespace, out[i].Pod = p.Pod.Namespace, p.Pod.Name
		for j, next := range out[i].Next {
			out[i].Next[j] = word.ReplaceAllStringFunc(next, func(word string) string {
				switch word {
				case "TARGET":
					return shellwords.Quote(out[i].Where())
				case "POD":
					return shellwords.Quote(p.Pod.Namespace + "/" + p.Pod.Name)
				}
				return word
			})
		}
	}
	return out
}

// word matches a whole word or a quoted part of a command line: a path or an image may contain TARGET or POD.
var word = lazyregexp.New(`'[^']*'|\\'|[^' ]+`)

type explainer struct {
	f *Facts
	p *Pod
}

// causeLines limits the log lines of a finding, so that it fits on a screen.
const causeLines = 5

// pod returns at most one finding: a problem of the pod as a whole. Containers may still run, see sandbox.
func (x explainer) pod() []Finding {
	d := x.p.Description
	switch {
	case d.Pod.Status.Message != "":
		code := codePodFailed
		if d.Pod.Status.Reason == kuberuntime.EventDeadline {
			code = codeDeadlineExceeded
		}
		return []Finding{{Severity: Error, Code: code, Text: d.Pod.Status.Message, Next: []string{"crishim describe POD"}}}
	case len(d.Status.Containers) == 0:
		if e := kuberuntime.LastFailure(d.Events, ""); e != nil && e.Container == "" {
			return []Finding{x.podFailure(e)}
		}
	}
	if d.View.Why != "" {
		return []Finding{{Severity: Error, Code: codePodFailed, Text: d.View.Why, Next: []string{"crishim describe POD"}}}
	}
	if finding, ok := x.sandbox(); ok {
		return []Finding{finding}
	}
	return nil
}

// sandbox finds containers that run although their sandbox does not.
func (x explainer) sandbox() (Finding, bool) {
	s := x.p.Status
	for _, c := range s.Containers {
		if !c.Running() || c.SandboxID == "" {
			continue
		}
		state := "is gone"
		for _, sandbox := range s.Sandboxes {
			if sandbox.GetId() == c.SandboxID {
				state = ""
				if sandbox.GetState() != runtimeapi.PodSandboxState_SANDBOX_READY {
					state = "has ended"
				}
			}
		}
		if state != "" {
			return Finding{
				Severity: Error, Code: codeSandboxGone, ID: c.SandboxID,
				Text:     "the pod's sandbox " + state + " and container " + c.Name + " still runs: it has no working network",
				Evidence: []string{fmt.Sprintf("container %.13s runs in sandbox %.13s, which %s", c.ID, c.SandboxID, state)},
				Next:     []string{"crishim stopp POD", "crishim pods --name " + shellwords.Quote(x.p.Pod.Name)},
			}, true
		}
	}
	return Finding{}, false
}

// explainNode finds problems of the node as a whole.
func explainNode(f *Facts) (out []Finding) {
	for _, c := range f.Node.Conditions {
		if c.GetStatus() {
			continue
		}
		code := codeRuntimeNotReady
		switch c.GetType() {
		case runtimeapi.RuntimeReady:
		case runtimeapi.NetworkReady:
			code = codeNetworkNotReady
		default:
			continue // the runtime's own condition, such as containerd's for deprecated settings
		}
		out = append(out, Finding{
			Severity: Error, Code: code, Text: strings.TrimSuffix(strings.TrimSpace("the runtime says "+c.GetType()+" is false: "+oneLine(c.GetReason()+" "+c.GetMessage())), ":"),
			Next: []string{"crishim doctor"},
		})
	}
	for _, one := range f.Node.Invalid {
		text := "sync cannot read " + one.File + ": " + oneLine(strings.TrimPrefix(one.Problems[0], one.File+": "))
		if more := len(one.Problems) - 1; more > 0 {
			text += fmt.Sprintf(", and %s", times(more, "one more problem", "more problems"))
		}
		out = append(out, Finding{Severity: Error, Code: codeInvalidManifest, Text: text, Next: []string{"crishim apply --dry-run -f " + shellwords.Quote(one.File)}})
	}
	for _, fs := range f.Node.Filesystems {
		if finding, ok := fs.Finding(); ok {
			out = append(out, finding)
		}
	}
	return out
}

// Free shares of a filesystem. Below the higher share a kubelet starts to evict pods; below the lower share most programs
// fail.
const (
	lowShare  = 0.15
	fullShare = 0.05
)

// Finding returns a finding and true if a filesystem is almost full.
func (fs Filesystem) Finding() (Finding, bool) {
	next := []string{"crishim rmi --prune --dry-run", "crishim doctor"}
	switch {
	case fs.Space < fullShare:
		return Finding{Severity: Error, Code: codeDiskFull, Text: fmt.Sprintf("the filesystem of %s has %.0f%% of its space free", fs.Path, 100*fs.Space), Next: next}, true
	case fs.Inodes < fullShare:
		return Finding{Severity: Error, Code: codeInodesFull, Text: fmt.Sprintf("the filesystem of %s has %.0f%% of its inodes free", fs.Path, 100*fs.Inodes), Next: next}, true
	case fs.Space < lowShare:
		return Finding{Severity: Warning, Code: codeDiskLow, Text: fmt.Sprintf("the filesystem of %s has %.0f%% of its space free: a kubelet evicts pods below 15%%", fs.Path, 100*fs.Space), Next: next}, true
	}
	return Finding{}, false
}

// Report is the result of `crishim why` for JSON, YAML and templates.
type Report struct {
	Findings []Finding `json:"findings"`
	Unread   []string  `json:"unread,omitempty"` // sources that could not be read, and why
}

// Errors counts the findings with severity Error.
func (r Report) Errors() (n int) {
	for _, f := range r.Findings {
		if f.Severity == Error {
			n++
		}
	}
	return n
}

// Names returns the subjects of the findings, each once.
func (r Report) Names() (out []string) {
	for _, f := range r.Findings {
		if !slices.Contains(out, f.Where()) {
			out = append(out, f.Where())
		}
	}
	return out
}

// Groups groups findings of one kind whose texts differ only in times and addresses, not in exit statuses, images or
// ports. Groups are ordered by their first finding.
func Groups(findings []Finding) (groups [][]Finding) {
	at := map[string]int{}
	for _, f := range findings {
		key := fmt.Sprint(f.Severity, f.Code, volatile.ReplaceAllString(f.Text, "0"))
		if i, known := at[key]; known && f.Pod != "" {
			groups[i] = append(groups[i], f)
			continue
		}
		at[key] = len(groups)
		groups = append(groups, []Finding{f})
	}
	return groups
}

// volatile matches durations, and addresses with their ports, but no versions of images.
var volatile = lazyregexp.New(`\b([0-9.]+(ms|[smhd]))+\b|(^|[^:.\w])[0-9]+(\.[0-9]+){3}(:[0-9]+)?`)

// Place is Where without the container, because Text begins with the name of the container.
func (f Finding) Place() string {
	f.Container = ""
	return f.Where()
}

// Of returns the collected facts about a pod.
func (f *Facts) Of(p *pod.Pod) *Pod {
	for _, one := range f.Pods {
		if one.Status.UID == p.UID && one.Status.Name == p.Name && one.Status.Namespace == p.Namespace {
			return one
		}
	}
	return nil
}
