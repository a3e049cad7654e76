package diagnose

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/internal/lazyregexp"
	"github.com/crishim/crishim/internal/ocierror"
	"github.com/crishim/crishim/internal/shellwords"
	"github.com/crishim/crishim/kuberuntime"
	"github.com/crishim/crishim/kuberuntime/manifest"
	"github.com/crishim/crishim/kuberuntime/plan"
	"github.com/crishim/crishim/kuberuntime/pod"
)

// Runtimes and registries describe a failure by text alone, which the tables below match. Containers do not control that
// text, because the failed container has not run. Names are removed first: an image may be called "unauthorized".

type words struct {
	code Code
	part string
}

var pullWords = []words{
	{codeImageName, "invalid reference format"},
	{codeImageName, "could not parse reference"},
	{codeImageName, "couldn't parse image"},
	{codeWrongArchitecture, "no matching manifest for"},
	{codeWrongArchitecture, "no match for platform"},
	{codeWrongArchitecture, "does not match the specified platform"},
	{codeWrongArchitecture, "no image found in image index for architecture"},
	{codeDiskFull, "no space left on device"},
	{codeImageRefused, "unauthorized"},
	{codeImageRefused, "authentication required"},
	{codeImageRefused, "no basic auth credentials"},
	{codeImageRefused, "403 forbidden"},
	{codeImageRefused, "authorization failed"},
	{codeImageRefused, "denied"},
	{codeImageNotFound, "manifest unknown"},
	{codeImageNotFound, "name unknown"},
	{codeImageNotFound, "manifest_unknown"}, // a registry's codes, which Docker 26 shows
	{codeImageNotFound, "name_unknown"},
	{codeImageNotFound, "not found"},
	{codeRegistryAway, "no such host"},
	{codeRegistryAway, "connection refused"},
	{codeRegistryAway, "i/o timeout"},
	{codeRegistryAway, "tls:"},
	{codeRegistryAway, "x509:"},
	{codeRegistryAway, "server gave http response to https client"},
	{codeRegistryAway, "network is unreachable"},
	{codeRegistryAway, "request canceled"},
	{codeRegistryAway, "deadline exceeded"},
	{codeRegistryAway, "temporary failure in name resolution"},
}

var sandboxWords = []words{
	{codePortTaken, "port is already allocated"},
	{codePortTaken, "address already in use"},
	{codePortTaken, "is taken by pod"}, // from apply and sync, which check host ports before they start a pod
	{codeNoAddress, "no ip addresses available"},
	{codeNoAddress, "no available ip"},
	{codeDiskFull, "no space left on device"},
	{codeNetworkFailed, "cni"},
	{codeNetworkFailed, "failed to setup network"},
	{codeNetworkFailed, "network plugin"},
	{codeNetworkFailed, "failed to set up sandbox container network"},
	{codeNetworkFailed, "plugin type="},
}

// codeOf returns the code of the first entry that a text contains after these names are removed from it.
func codeOf(list []words, text string, fallback Code, names ...string) Code {
	text = strings.ToLower(text)
	for _, name := range names {
		if name != "" {
			text = strings.ReplaceAll(text, strings.ToLower(name), "NAME")
		}
	}
	for _, w := range list {
		if strings.Contains(text, w.part) {
			return w.code
		}
	}
	return fallback
}

var startCodes = map[ocierror.Failure]Code{
	ocierror.NotFound: codeNoCommand, ocierror.NotExecutable: codeNotExecutable, ocierror.WrongFormat: codeWrongArchitecture,
	ocierror.NoMount: codeMountMissing, ocierror.DiskFull: codeDiskFull,
}

// startCode returns the code for the runtime's start error. A missing file in the text is not always the command.
func startCode(text string) Code {
	code := startCodes[ocierror.Of(text)]
	if !ocierror.IsStart(text) && code != codeMountMissing && code != codeDiskFull {
		code = ""
	}
	return cmp.Or(code, codeStartFailed)
}

// couldNotStart explains an attempt whose command never ran.
func (x explainer) couldNotStart(f *Finding, c plan.ContainerView, s *pod.ContainerStatus) {
	f.Code = startCode(s.RuntimeMessage)
	f.Log = nil
	f.Next = []string{
		"crishim inspecti " + shellwords.Quote(c.Container.Image),
		"crishim debug --copy-to " + shellwords.Quote(c.Container.Name+"-debug") + " TARGET", // runs a copy of the container in a new pod
	}
	detail := x.p.Containers[s.ID]
	switch {
	case detail != nil && len(detail.Missing) > 0:
		f.Code = codeMountMissing
		f.Next = []string{"ls -ld " + shellwords.Quote(detail.Missing[0]), "crishim describe POD"}
		for _, path := range detail.Missing {
			f.Evidence = append(f.Evidence, path+", which is to be mounted in it, is not there")
		}
	default:
		said := f.Code
		f.Code = ""
		x.cannotRun(f, s)
		if f.Code == "" && said == codeWrongArchitecture { // exec format error, although the image and the file are for this architecture
			said = codeNotExecutable
			f.Evidence = append(f.Evidence, "its image is for this host's processors: the file is no program, or a script without #!")
		}
		f.Code = cmp.Or(f.Code, said)
	}
	if detail != nil && len(detail.Args) > 0 {
		f.Evidence = append(f.Evidence, "its command is "+strings.Join(detail.Args[:min(len(detail.Args), 8)], " "))
	}
}

// cannotRun adds why the command cannot run: its image or file is for another processor, or its interpreter is missing.
func (x explainer) cannotRun(f *Finding, s *pod.ContainerStatus) {
	detail := x.p.Containers[s.ID]
	switch {
	case detail == nil:
		return
	case detail.Architecture != "":
		f.Evidence = append(f.Evidence, fmt.Sprintf("its image is for %s, and this host is %s", detail.Architecture, runtime.GOARCH))
	case detail.Program != nil && detail.Program.Machine != "":
		f.Evidence = append(f.Evidence, fmt.Sprintf("%s is for %s, and this host is %s", detail.Program.Path, detail.Program.Machine, runtime.GOARCH))
	case detail.Program != nil && detail.Program.Interpreter != "":
		f.Code = codeNoInterpreter
		f.Text += ": the interpreter of its command is not there"
		f.Evidence = append(f.Evidence, fmt.Sprintf("%s needs %s, which the container does not have", detail.Program.Path, detail.Program.Interpreter))
		if strings.HasSuffix(detail.Program.Interpreter, "\r") {
			f.Evidence = append(f.Evidence, "its first line ends with a carriage return, as in files from Windows")
		}
		return
	case detail.Program != nil && detail.Program.NoProgram && !s.NeverStarted():
		f.Code, f.Probable = codeNotExecutable, true
		f.Text += ", probably because its command is no program"
		f.Evidence = append(f.Evidence, detail.Program.Path+" is no ELF file, and a script without #!")
		return
	default:
		return
	}
	f.Code = codeWrongArchitecture
	f.Next = []string{"crishim inspecti " + shellwords.Quote(s.Image), "crishim pull " + shellwords.Quote(s.Image)}
	if !s.NeverStarted() {
		f.Probable = true
		f.Text += ", probably because it is for other processors"
	}
}

// portTaken adds that another process has the port of a container, in the network of the host or of its pod.
func (x explainer) portTaken(f *Finding, c plan.ContainerView) {
	holders, where := x.p.Inside, "in the pod's network"
	if x.p.Pod.Spec.HostNetwork {
		holders, where = x.p.Ports, "of the host"
	}
	for _, port := range c.Container.Ports {
		holder, taken := holders[portOf(port, port.ContainerPort)]
		if !taken || !x.p.Pod.Spec.HostNetwork && (holder.Container == "" || holder.Container == c.Container.Name) {
			continue
		}
		f.Code, f.Probable = codePortTaken, true
		f.Text += fmt.Sprintf(", probably because port %d is taken", port.ContainerPort)
		if !x.p.Pod.Spec.HostNetwork {
			f.Text += " by container " + holder.Container
		}
		f.Evidence = append(f.Evidence, fmt.Sprintf("%s listens on port %d %s", holder, port.ContainerPort, where))
		f.Next = append([]string{fmt.Sprintf("crishim who :%d", port.ContainerPort)}, f.Next...)
		return
	}
}

// startFailure explains, from an event of the pod runtime, why a container does not start.
func (x explainer) startFailure(c plan.ContainerView, e *kuberuntime.Event) Finding {
	shorter := *e
	shorter.Container, shorter.Message = "", ocierror.Plain(e.Message)
	f := Finding{Severity: Error, Time: e.Time, Text: shorter.Why(), Next: []string{"crishim describe POD"}}
	image := c.Container.Image
	switch {
	case e.Reason == kuberuntime.EventPulling:
		f.Severity, f.Code, f.Text = Warning, codeImageWait, f.Text+" for "+waited(x.f.At, e.Time)
		f.Next = []string{"crishim pull " + shellwords.Quote(image)}
	case e.Waiting == "ErrImageNeverPull":
		f.Code, f.Next = codeImageMissing, []string{"crishim images", "crishim pull " + shellwords.Quote(image)}
	case e.Waiting == "InvalidImageName":
		f.Code, f.Next = codeImageName, []string{"crishim images"}
	case strings.Contains(e.Waiting, "Image") || e.Waiting == "RegistryUnavailable" || e.Waiting == "SignatureValidationFailed":
		switch client.RegistryFailureOf(strings.ReplaceAll(e.Message, image, "NAME")) {
		case client.RegistryLimited:
			f.Code = codeRegistryLimit
		case client.RegistryTrouble:
			f.Code = codeRegistryTrouble
		default:
			f.Code = codeOf(pullWords, e.Message, codeImagePull, image, repository(image))
		}
		f.Next = []string{"crishim pull " + shellwords.Quote(image)}
		f.Evidence = append(f.Evidence, pullMeaning[f.Code]...)
		if f.Code == codeImageRefused {
			login := []string{"docker", "login"}
			if host := registryOf(image); host != "" {
				login = append(login, host)
			}
			f.Next = append(f.Next, shellwords.Quote(login...))
		}
	case e.Waiting == "CreateContainerConfigError":
		f.Code = codeConfigError
	default:
		f.Code = startCode(e.Message)
		if f.Code == codeStartFailed || f.Code == codeNoCommand {
			if path := missingSource(x.p, c.Container, e.Message); path != "" {
				f.Code, f.Next = codeMountMissing, []string{"ls -ld " + shellwords.Quote(path), "crishim describe POD"}
			}
		}
		if e.Waiting == "PostStartHookError" {
			f.Code = codeHookFailed
		}
	}
	return f
}

var pullMeaning = map[Code][]string{
	codeImageNotFound:   {"the registry answered, and has no image of this name and tag: look for a mistake in the name"},
	codeImageRefused:    {"a registry refuses what does not exist, too: look at the name, then at the login"},
	codeRegistryLimit:   {"the registry answered, and limits how much may be pulled: wait, or log in for a higher limit"},
	codeRegistryTrouble: {"the registry answered with an error of its own: the fault is not on this machine"},
	codeRegistryAway:    {"the registry gave no answer that can be read: look at its name, DNS, proxy and certificates"},
}

// missingSource returns a missing mount source that the text of a failure names.
func missingSource(p *Pod, c *v1.Container, text string) string {
	for _, volume := range p.Pod.Spec.Volumes {
		used := slices.ContainsFunc(c.VolumeMounts, func(m v1.VolumeMount) bool { return m.Name == volume.Name })
		if used && volume.HostPath != nil && strings.Contains(text, volume.HostPath.Path) && slices.Contains(p.Missing, volume.HostPath.Path) {
			return volume.HostPath.Path
		}
	}
	return ""
}

// podFailure explains, from an event of the pod runtime, why a pod has no sandbox or no volumes.
func (x explainer) podFailure(e *kuberuntime.Event) Finding {
	f := Finding{Severity: Error, Time: e.Time, Text: e.Why(), Next: []string{"crishim describe POD"}}
	if e.Reason == kuberuntime.EventVolumes {
		f.Code = codeVolumesFailed
		if strings.HasSuffix(strings.ToLower(e.Message), "no such file or directory") || strings.Contains(e.Message, "is not there") || strings.Contains(e.Message, "does not exist") {
			f.Code = codeMountMissing
			for _, path := range x.p.Missing {
				f.Next = append([]string{"ls -ld " + shellwords.Quote(path)}, f.Next...)
			}
		}
		return f
	}
	f.Code = codeOf(sandboxWords, e.Message, codeSandboxFailed, x.p.Pod.Name, x.p.Pod.Namespace)
	switch f.Code {
	case codePortTaken:
		ports, _ := wantedPorts(x.p)
		for _, port := range ports {
			if holder, taken := x.p.Ports[port]; taken {
				f.Evidence = append(f.Evidence, fmt.Sprintf("%s has port %d of the host", holder, port.Number))
			}
		}
		if len(ports) > 0 {
			f.Next = []string{fmt.Sprintf("crishim who :%d", ports[0].Number), "crishim pods -o wide"}
		}
	case codeNoAddress, codeNetworkFailed:
		f.Next = []string{"crishim doctor", "crishim info"}
		for network, n := range x.f.Node.Leases {
			if f.Code == codeNoAddress {
				f.Evidence = append(f.Evidence, fmt.Sprintf("%d addresses of network %s are given away in /var/lib/cni/networks/%s", n, network, network))
			}
		}
	case codeDiskFull:
		f.Next = []string{"crishim imagefsinfo", "crishim rmi --prune --dry-run"}
	}
	return f
}

// failedPort finds the port in an engine's error about a taken port.
var failedPort = lazyregexp.New(`(?:0\.0\.0\.0|::\]?|127\.0\.0\.1|\[::1\]|\d+\.\d+\.\d+\.\d+):(\d{1,5})\b`)

// wantedPorts returns the ports of a pod's containers that do not run, or nil for a ready pod. onHost has the ports on the
// host, including the port in the engine's error. inside has the ports in the pod's own network.
func wantedPorts(p *Pod) (onHost, inside []hostPort) {
	if p.View.Ready {
		return nil, nil
	}
	add := func(list []hostPort, port hostPort) []hostPort {
		if port.Number < 1 || port.Protocol == "sctp" || slices.Contains(list, port) {
			return list
		}
		return append(list, port)
	}
	if e := kuberuntime.LastFailure(p.Events, ""); e != nil && e.Reason == kuberuntime.EventSandboxFailed {
		if m := failedPort.FindStringSubmatch(e.Message); m != nil {
			port, _ := strconv.ParseUint(m[1], 10, 16)
			onHost = add(onHost, hostPort{int32(port), "tcp"})
		}
	}
	for _, c := range manifest.Containers(p.Pod) {
		if p.Status.Container(c.Name).Running() {
			continue // a running container may itself listen on the port
		}
		for _, port := range c.Ports {
			onHost = add(onHost, portOf(port, port.HostPort))
			if p.Pod.Spec.HostNetwork {
				onHost = add(onHost, portOf(port, port.ContainerPort))
			} else {
				inside = add(inside, portOf(port, port.ContainerPort))
			}
		}
	}
	return onHost, inside
}

// repository returns the name of an image without tag and digest.
func repository(image string) string {
	name, _, _ := strings.Cut(image, "@")
	if i := strings.LastIndexByte(name, ':'); i > strings.LastIndexByte(name, '/') {
		name = name[:i]
	}
	return name
}

// registryOf returns the registry host in an image name, "" for docker.io.
func registryOf(image string) string {
	host, _, several := strings.Cut(image, "/")
	if several && strings.ContainsAny(host, ".:") {
		return host
	}
	return ""
}
