package verbs

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	urfave "github.com/urfave/cli/v2"

	"github.com/crishim/crishim/commands/cli/argv"
	"github.com/crishim/crishim/internal/test/stubcri"
)

// Wrong usage is said before anything is dialled: there is nothing to dial.
func TestUsageErrors(t *testing.T) {
	t.Parallel()
	c := &commandTest{t: t, vars: map[string]string{}}
	pod := c.file("pod.json", `{"metadata": {"name": "web"}}`)
	container := c.file("container.json", `{"metadata": {"name": "c"}, "image": {"image": "busybox"}}`)
	badPod := c.file("bad.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {containers: [{name: c, imgae: x}]}\n")
	noName := c.file("noname.json", `{"metadata": {}}`)
	for _, test := range []struct {
		line string
		code int
		want string // the first line of stderr, without "crishim: "
	}{
		{"nosuch", 2, `unknown command "nosuch"`},
		{"--nosuch ps", 2, `unknown flag "--nosuch"`},
		{"ps --nosuch", 2, `unknown flag "--nosuch"`},
		{"ps x", 2, `ps takes no arguments, got "x"`},
		{"pods x", 2, `pods takes no arguments, got "x"`},
		{"ps -o nosuch", 2, `unknown output format "nosuch": must be one of table, wide, json, jsonl, yaml, name, go-template=TEMPLATE, jsonpath=TEMPLATE`},
		{"images -o nosuch", 2, `unknown output format "nosuch": must be one of table, wide, json, jsonl, yaml, name, go-template=TEMPLATE, jsonpath=TEMPLATE`},
		{"ps -o json --template x", 2, "--template goes with -o go-template, not -o json"},
		{"ps --columns name,nmae", 2, `unknown column "nmae": must be one of container, image, created,`},
		{"pods --sort -nosuch -o json", 2, `unknown column "nosuch": must be one of pod-id, created,`},
		{"images --sort container", 2, `unknown column "container": must be one of image, tag,`},
		{"stats --columns pod-id", 2, `unknown column "pod-id": must be one of container, name,`},
		{"statsp --columns container", 2, `unknown column "container": must be one of pod-id, name,`},
		{"endpoints --sort nosuch", 2, `unknown column "nosuch": must be one of used, endpoint,`},
		{"ps --name [", 2, "invalid --name \"[\": error parsing regexp: missing closing ]: `[`"},
		{"ps --label =x", 2, `invalid --label "=x": must be KEY=VALUE`},
		{"run --label x busybox", 125, `invalid --label "x": must be KEY=VALUE`},
		{"exec web", 125, "exec needs a command"},
		{"exec web --", 125, "exec needs a command"},
		{"exec web echo caf\xe9", 125, `the argument "caf\xe9" is not UTF-8, and CRI carries nothing else`},
		{"exec --sync web echo caf\xe9", 125, `the argument "caf\xe9" is not UTF-8`},
		{"debug web echo caf\xe9", 125, `the argument "caf\xe9" is not UTF-8`},
		{"run busybox echo caf\xe9", 125, `the argument "caf\xe9" is not UTF-8`},
		{"ps --state sleeping", 2, `invalid --state "sleeping": must be created, running, exited or unknown`},
		{"ps --max-retries -2", 2, `invalid --max-retries "-2": must be 0 or more, or -1 for no end`},
		{"ps --last -1", 2, `invalid --last "-1": must not be negative`},
		{"ps --last x", 2, `invalid --last "x": must be a number`},
		{"ps --all=perhaps", 2, "flag --all takes no value"},
		{"ps --name", 2, "flag --name needs a value"},
		{"pods --state running", 2, `invalid --state "running": must be ready or notready`},
		{"images a b", 2, `images: unexpected argument "b"`},
		{"pods -f pod=web", 2, `invalid --filter "pod=web": must be id=ID, name=REGEX, label=KEY[=VALUE] or status=STATE`},
		{"pods -f ancestor=busybox", 2, `invalid --filter "ancestor=busybox": must be id=ID, name=REGEX, label=KEY[=VALUE] or status=STATE`},
		{"images --filter color=red", 2, `invalid --filter "color=red": must be dangling=BOOL, reference=REGEX, before=IMAGE or since=IMAGE`},
		{"images --filter dangling=x", 2, `invalid --filter "dangling=x": must be dangling=true or dangling=false`},
		{"-t soon ps", 2, `invalid --timeout "soon": must be a number of seconds or a duration such as 5s or 1m30s`},
		{"ps --timeout soon", 2, `invalid --timeout "soon": must be a number of seconds or a duration such as 5s or 1m30s`},
		{"-r foo://x ps", 2, `invalid endpoint "foo://x": unknown scheme "foo"`},
		{"-r= ps", 2, `invalid --runtime-endpoint "": must not be empty`},
		{"logs --tail x web", 2, `invalid --tail "x": must be a number`},
		{"inspect -o go-template web", 2, "output format go-template needs a template: go-template='{{.status.id}}', or --template"},
		{"inspect -o jsonpath web", 2, "output format jsonpath needs an expression: jsonpath='{.items[*].id}'"},
		{"serve --listen foo", 2, `invalid --listen "foo": must be unix:///path, /path or fd://`},
		{"serve --listen tcp://127.0.0.1:1", 2, `invalid --listen "tcp://127.0.0.1:1": must be unix:///path, /path or fd://`},
		{"apply -f /nonexistent/pod.yaml", 2, "read manifest: stat /nonexistent/pod.yaml: no such file"},
		{"apply -f " + pod, 2, ""},
		{"apply -f " + badPod, 2, badPod + ":"},
		{"delete -f " + badPod, 2, badPod + ":"},
		{"--compat docker ps", 2, `invalid --compat "docker": must be crictl`},
		{"runp", 2, "runp needs POD-CONFIG"},
		{"runp /nonexistent/pod.json", 2, "/nonexistent/pod.json: no such file"},
		{"runp " + noName, 2, noName + ": the pod's metadata has no name"},
		{"runp " + container, 2, container + `:1:29: unknown field "image"`},
		{"create web", 2, "create needs POD CONTAINER-CONFIG [POD-CONFIG]: only 1 given"},
		{"create web " + pod, 2, pod + ": the container has no image"},
		{"create --with-pull --no-pull web " + container, 2, "--with-pull and --no-pull contradict each other"},
		{"start", 2, "start needs CONTAINER..."},
		{"stop", 2, "stop needs CONTAINER..."},
		{"stop -a x", 2, `--all takes no arguments, got "x"`},
		{"stop -t -3 x", 2, `invalid --timeout "-3": must not be negative`},
		{"rm", 2, "rm needs CONTAINER..."},
		{"rmp", 2, "rmp needs POD..."},
		{"stopp", 2, "stopp needs POD..."},
		{"rmi", 2, "rmi needs IMAGE..."},
		{"rmi -a --prune", 2, "--all and --prune: choose one"},
		{"rmi -a x", 2, `--all takes no arguments, got "x"`},
		{"pull", 2, "pull needs IMAGE..."},
		{"pull --creds a:b --auth x image", 2, "--creds, --auth and --username: choose one"},
		{"pull --username me image", 2, `no password for "me": give it with --password-stdin`},
		{"pull --creds :x image", 2, "the registry credentials have no user name"},
		{"pull --retries -1 image", 2, `invalid --retries "-1": must not be negative`},
		{"logs", 2, "logs needs CONTAINER..."},
		{"logs --since yesterday x", 2, `invalid --since "yesterday": must be a duration such as 5m, a time such as 2026-01-02T15:04:05Z, or seconds since 1970`},
		{"logs --stream stdin x", 2, `invalid --stream "stdin": must be stdout or stderr`},
		{"logs -l app=x y", 2, `--selector and --label take no arguments, got "y"`},
		{"logs --label app=x y", 2, `--selector and --label take no arguments, got "y"`},
		{"pull --auth eDp5 --password-stdin image", 2, "--password-stdin needs --username or --creds"},
		{"update-runtime-config", 2, "update-runtime-config needs --pod-cidr"},
		{"update-runtime-config -p 10.0.0.0", 2, `invalid --pod-cidr "10.0.0.0": must be an address range such as 10.244.3.0/24`},
		{"serve --log-level loud", 2, `invalid --log-level "loud": must be debug, info, warn or error`},
		{"serve --non-masquerade-cidr x", 2, `invalid --non-masquerade-cidr "x": must be an address range such as 10.244.3.0/24`},
		{"serve --network-plugin calico", 2, `invalid --network-plugin "calico": must be bridge, cni or kubenet`},
		{"serve --hairpin-mode always", 2, `invalid --hairpin-mode "always": must be none, hairpin-veth or promiscuous-bridge`},
		{"serve --runtime-cgroups /a/../b", 2, `invalid --runtime-cgroups "/a/../b": must be an absolute path such as /runtime.slice/docker`},
		{"serve --pod-cidr 10.1.2.3/16", 2, `invalid --pod-cidr "10.1.2.3/16": the range that this address is in is 10.1.0.0/16`},
		{"serve --pod-cidr 10.1", 2, `invalid --pod-cidr "10.1": must be an address range such as 10.244.3.0/24`},
		{"stop --selector app=x y", 2, `--selector takes no arguments, got "y"`},
		{"inspect --attempt first x", 2, `invalid --attempt "first": must be a number from 0 on`},
		{"run", 125, "run needs IMAGE [COMMAND [ARG...]] | CONTAINER-CONFIG POD-CONFIG"},
		{"run --nosuch busybox", 125, `unknown flag "--nosuch"`},
		{"run --rm -d busybox", 2, "--rm and --detach: choose one"},
		{"run --memory much busybox", 125, `invalid --memory "much": must be a size such as 512Mi or 1g`},
		{"run --memory 0 busybox", 125, `invalid --memory "0": must be a size above 0 such as 512Mi or 1g`},
		{"run --network= busybox", 125, `invalid --network "": must be pod or host`},
		{"debug --profile= web", 125, `invalid --profile "": must be general, net or sys`},
		{"serve --log-level=", 2, `invalid --log-level "": must be debug, info, warn or error`},
		{"run --cpus 0 busybox", 125, `invalid --cpus "0": must be a number of processors such as 0.5`},
		{"run -v data busybox", 125, `invalid --volume "data": must be HOST-PATH:CONTAINER-PATH[:ro]`},
		{"run -v /a:/b:rx busybox", 125, `invalid --volume "/a:/b:rx": unknown option "rx": must be ro, rw, z, private, rslave or rshared`},
		{"run -p 80 busybox", 125, `invalid --publish "80": must be [IP:]HOST-PORT:CONTAINER-PORT[/udp]`},
		{"run -p 80:80/icmp busybox", 125, `invalid --publish "80:80/icmp": unknown protocol "icmp": must be tcp, udp or sctp`},
		{"run -p 80:80 --network host busybox", 125, "--publish does nothing with --network host"},
		{"run --network none busybox", 125, `invalid --network "none": must be pod or host`},
		{"run -u me:us busybox", 125, `invalid --user "me:us": must be USER[:GID], the group by its number`},
		{"run - -", 2, "only one of the two files can be standard input"},
		{"run -v data:/x busybox", 125, `invalid --volume "data:/x": there are no named volumes here: the first part is a path on the host`},
		{"exec", 125, "exec needs"},
		{"exec web -it sh", 125, `exec: "-it" stands behind "web", where the command begins`},
		{"exec web -x ls -- -l", 125, `exec: only flags can stand between "web" and "--"`},
		{"debug web --nosuch -- ls", 125, `unknown flag "--nosuch"`},
		{"run busybox -d", 2, `run: "-d" stands behind "busybox", where the command begins`},
		{"run web --image busybox -- sh", 125, `run: with --image all arguments are the command, and "web" stands before it`},
		{"-r docker ps", 2, `invalid endpoint "docker": must be a URL or the path of a socket`},
	} {
		t.Run(test.line, func(t *testing.T) {
			sub := *c
			sub.t = t
			r := sub.run(strings.Fields(test.line)...)
			first, _, _ := strings.Cut(r.err, "\n")
			if r.code != test.code || r.out != "" || !strings.HasPrefix(first, "crishim: "+test.want) {
				t.Errorf("exit %d, stdout %q, stderr:\n%swant exit %d and\ncrishim: %s", r.code, r.out, r.err, test.code, test.want)
			}
		})
	}
}

func TestEmptyArguments(t *testing.T) {
	c := &commandTest{t: t, vars: map[string]string{}}
	for verb, code := range map[string]int{
		"pull": 2, "inspecti": 2, "inspect": 2, "rmi": 2, "logs": 2, "images": 2, "stop": 2, "wait": 2, "attach": 2, "runp": 2, "exec": 125, "run": 125, "debug": 125,
	} {
		if r := c.run(verb, ""); r.code != code || r.out != "" || !strings.HasPrefix(r.err, "crishim: "+verb+": an argument is empty\nusage: crishim "+verb) {
			t.Errorf("%s '': %+v", verb, r)
		}
	}
	withStub := withStub(t, stubcri.Options{})
	seedNode(withStub.stub)
	withStub.run("exec", "web", "echo", "").want(t, 0, "\n", "")
}

func TestUsageErrorIsThreeLinesAtMost(t *testing.T) {
	c := &commandTest{t: t, vars: map[string]string{}}
	c.run("ps", "--nmae", "x").want(t, 2, "",
		"crishim: unknown flag \"--nmae\"\nusage: crishim ps [options]\nhint: did you mean --name?\n")
	c.run("ps", "--selector", "app in (a").want(t, 2, "",
		"crishim: invalid --selector \"app in (a\": must have a closing parenthesis\nusage: crishim ps [options]\nhint: use k=v, k!=v, k in (a,b), k notin (a,b), k or !k, separated by commas\n")
	c.run("verison").want(t, 2, "", "crishim: unknown command \"verison\"\nhint: did you mean `crishim version`?\n")
}

// Hints name our flag for a flag of docker or kubectl, and the place of flags.
func TestHintsForFlags(t *testing.T) {
	c := &commandTest{t: t, vars: map[string]string{}}
	for line, hint := range map[string]string{
		"exec web -it sh -c ls":           "`crishim exec -it web sh -c ls`, or `crishim exec web -- -it sh -c ls` if it is the command's",
		"debug -i web -l ls":              "`--` comes before a command that begins with a dash: `crishim debug -i web -- -l ls`",
		"run busybox -it sh":              "`crishim run -it busybox sh`, or `crishim run busybox -- -it sh` if it is the command's",
		"run nginx -g off":                "`--` comes before a command that begins with a dash: `crishim run nginx -- -g off`",
		"run web --image=busybox":         "`crishim run --name web IMAGE` names the container",
		"run web --restart=Never -- date": "`crishim run` starts a container once; a manifest with restartPolicy is for `crishim sync DIR`",
		"exec -d web ls":                  "a command in the background is `crishim exec CONTAINER sh -c 'COMMAND &'`",
		"update --cpus 2 web":             "`crishim update --cpu-quota 50000 --cpu-period 100000 CONTAINER` is half a processor",
		"rm -fv web":                      "a container's own files go with it: `crishim rm CONTAINER`",
		"apply -n prod web.yaml":          "a manifest names its namespace: `metadata.namespace`, default without one",
		"stop --container web":            "name the container as POD/CONTAINER: `crishim stop POD/CONTAINER`",
		"-a ps":                           "it is a flag of ps: `crishim ps -a`",
		"ps --debgu":                      "did you mean --debug?",
		"stats --nostream":                "did you mean --no-stream?",
		"-r docker ps":                    "did you mean docker://?",
		"-r containerd ps":                "did you mean unix:///run/containerd/containerd.sock?",
		"run -v data:/x busybox":          "`-v ./data:/x` is a directory in the current directory",
		"inspect -f {{.State}} web":       "`crishim inspect -o go-template=TEMPLATE` or `-o jsonpath=TEMPLATE` prints fields; `-o json` shows their names",
		"inspecti -f {{.Id}} busybox":     "`-o go-template=TEMPLATE` prints fields",
		"run --net host busybox":          "`crishim run --network host IMAGE` shares the host's network",
		"get pods -A":                     "`crishim pods` lists pods, `crishim ps` their containers",
		"top pod web":                     "`crishim statsp` shows what pods use, `crishim exec CONTAINER ps` the processes of a container",
	} {
		r := c.run(strings.Fields(line)...)
		if lines := strings.Split(strings.TrimSpace(r.err), "\n"); lines[len(lines)-1] != "hint: "+hint {
			t.Errorf("%s:\n%swant the hint\n%s", line, r.err, hint)
		}
	}
}

// Commands in hints stand in backticks, and there are such commands and flags.
func TestHintsNameWhatThereIs(t *testing.T) {
	app := testApp()
	command := regexp.MustCompile("^crishim ([a-z-]+)(.*)")
	flag := regexp.MustCompile(`(?: |^)(--?[a-z][a-z-]*)`)
	check := func(of, hint string) {
		if strings.Count(hint, "`")%2 != 0 {
			t.Errorf("%s: %s: a backtick is open", of, hint)
		}
		for i, part := range strings.Split(hint, "`") {
			match := command.FindStringSubmatch(part)
			if match == nil {
				continue
			}
			verb := app.Command(match[1])
			if i%2 == 0 { // a sentence about crishim
				if verb != nil {
					t.Errorf("%s: no backticks around %s", of, part)
				}
				continue
			}
			if verb == nil {
				t.Errorf("%s: there is no crishim %s", of, match[1])
				continue
			}
			line, _, _ := strings.Cut(match[2], " -- ")
			for _, name := range flag.FindAllStringSubmatch(line, -1) {
				known := func(name string) bool {
					return slices.ContainsFunc(slices.Concat(verb.Flags, app.Flags), func(f urfave.Flag) bool { return slices.Contains(f.Names(), name) })
				}
				if name := strings.TrimLeft(name[1], "-"); !known(name) && !(known(name[:1]) && known(name[1:])) && name != "c" {
					t.Errorf("%s: crishim %s has no %s", of, match[1], name)
				}
			}
		}
	}
	for word, hint := range argv.CommandHints {
		if app.Command(word) != nil {
			t.Errorf("crishim %s is a command: its hint is never shown", word)
		}
		check(word, hint)
	}
	for name, hint := range argv.FlagHints {
		if verb, name, found := strings.Cut(name, " "); found {
			command := app.Command(verb)
			if command == nil || slices.ContainsFunc(command.Flags, func(f urfave.Flag) bool { return slices.Contains(f.Names(), name) }) {
				t.Errorf("crishim %s has %s, or there is no such command: its hint is never shown", verb, name)
			}
		}
		if verb, _, found := strings.Cut(name, " "); found || !strings.Contains(hint, "VERB") {
			check(name, strings.ReplaceAll(hint, "crishim VERB", "crishim "+verb))
		}
	}
}

// Hints name our command for a command of other programs.
func TestWordsOfOthers(t *testing.T) {
	c := &commandTest{t: t}
	for word, hint := range argv.CommandHints {
		words := strings.Fields(word)
		c.run(words...).want(t, 2, "", "crishim: unknown command \""+words[0]+"\"\nhint: "+hint+"\n")
	}
}
