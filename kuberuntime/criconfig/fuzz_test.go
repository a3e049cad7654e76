package criconfig

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/crishim/crishim/kuberuntime/manifest"
	"github.com/crishim/crishim/kuberuntime/pod"
)

// FuzzPod: a valid manifest produces configurations that protobuf can encode, with limits and scores in the kernel's
// range.
func FuzzPod(f *testing.F) {
	const head = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n"
	for _, text := range []string{
		head + "  containers: [{name: a, image: b}]\n",
		head + "  hostNetwork: true\n  hostname: h\n  dnsPolicy: None\n  dnsConfig: {nameservers: [1.2.3.4], options: [{name: a, value: b}]}\n" +
			"  securityContext: {runAsUser: 1, sysctls: [{name: net.a/b, value: '1'}], seccompProfile: {type: Localhost, localhostProfile: x}, supplementalGroups: [1]}\n" +
			"  initContainers: [{name: i, image: b, restartPolicy: Always}]\n" +
			"  containers: [{name: a, image: b, command: ['$(A)'], env: [{name: A, value: x}], ports: [{containerPort: 1, hostPort: 1, protocol: SCTP}], resources: {limits: {cpu: 1n, memory: 1Ei, hugepages-2Mi: 2Mi}, requests: {cpu: 100000}}, " +
			"securityContext: {privileged: true, capabilities: {add: [ALL]}, procMount: Unmasked, appArmorProfile: {type: Unconfined}}, lifecycle: {stopSignal: SIGUSR1, preStop: {sleep: {seconds: 1}}}}]\n",
		head + "  containers: [{name: a, image: b, env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 1m}}}, {name: B, valueFrom: {fieldRef: {fieldPath: status.podIPs}}}]}]\n",
	} {
		f.Add(text)
	}
	g := &Generator{Host: testHost(), Dirs: pod.Dirs{Root: "/r", Logs: "/l"}}
	f.Fuzz(func(t *testing.T, text string) {
		set, err := manifest.Read(manifest.Options{}, strings.NewReader(text), "-")
		if err != nil {
			return
		}
		for _, p := range set.Pods {
			sandbox := g.Sandbox(p.Pod, 1)
			if _, err := proto.Marshal(sandbox); err != nil {
				t.Errorf("the sandbox cannot be sent: %v", err)
			}
			if m := sandbox.GetMetadata(); m.GetName() == "" || m.GetNamespace() == "" || !strings.HasPrefix(sandbox.GetLogDirectory(), "/l/") || strings.Contains(sandbox.GetLogDirectory(), "..") && !strings.Contains(text, "..") {
				t.Errorf("got %v in %s", m, sandbox.GetLogDirectory())
			}
			for i := range p.Spec.Containers {
				env, err := Env(p.Pod, &p.Spec.Containers[i], set, g.Host, []string{"10.0.0.2"}, nil)
				if err != nil {
					continue
				}
				c, err := g.Container(ContainerInput{Pod: p.Pod, Container: &p.Spec.Containers[i], Env: env, ImageRef: "b"})
				if err != nil {
					continue
				}
				if _, err := proto.Marshal(c); err != nil {
					t.Errorf("the container cannot be sent: %v", err)
				}
				r := c.GetLinux().GetResources()
				if r.GetCpuShares() < 0 || r.GetCpuQuota() < -1 || r.GetMemoryLimitInBytes() < 0 || r.GetOomScoreAdj() < -1000 || r.GetOomScoreAdj() > 1000 {
					t.Errorf("got resources %v", r)
				}
				for _, e := range c.GetEnvs() {
					if e.GetKey() == "" {
						t.Errorf("got the variable %v", e)
					}
				}
			}
		}
	})
}

// FuzzResolv: the configuration from a resolver file is within the limits of resolvers.
func FuzzResolv(f *testing.F) {
	f.Add("nameserver 1.2.3.4\nsearch a b\noptions ndots:5\n# x\n; y\nnameserver\n")
	f.Add("domain x\nsearch \noptions a a a\nnameserver ::1%eth0")
	f.Fuzz(func(t *testing.T, text string) {
		p, _ := parse(t, "  containers: [{name: a, image: b}]\n")
		c := podDNS(p, parseResolv(text))
		if len(c.GetServers()) > maxServers || len(c.GetSearches()) > maxSearches {
			t.Errorf("got %v", c)
		}
		for _, list := range [][]string{c.GetServers(), c.GetSearches(), c.GetOptions()} {
			for _, word := range list {
				if word == "" || strings.ContainsAny(word, " \t\n") {
					t.Errorf("got the word %q in %v", word, c)
				}
			}
		}
	})
}
