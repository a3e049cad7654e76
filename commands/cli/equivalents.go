package cli

import (
	"strconv"
	"strings"
)

// The tables of this file are what docker, kubectl and a shell have in people's fingers, and
// what does the same here. They are data: argv.go reads them.

// WordsOfOthers are commands, alone or with the word behind them. Hints name ours in backticks.
var WordsOfOthers = map[string]string{
	"ls":         "`crishim ps`, `crishim pods` and `crishim images` list what there is",
	"list":       "`crishim ps`, `crishim pods` and `crishim images` list what there is",
	"get":        "`crishim ps`, `crishim pods` and `crishim images` list what there is",
	"get pods":   "`crishim pods` lists pods, `crishim ps` their containers",
	"get pod":    "`crishim pods` lists pods, `crishim inspectp POD` shows one",
	"get po":     "`crishim pods` lists pods, `crishim ps` their containers",
	"get all":    "`crishim pods` lists pods, `crishim ps -a` all containers",
	"get events": "`crishim events` shows what happens, `crishim describe POD` what has happened to a pod",
	"get nodes":  "`crishim info` shows this node's runtime, `crishim doctor` checks it",
	"get images": "`crishim images` lists images",
	"docker":     "crishim has docker's verbs without the word: `crishim ps`, `crishim exec`, `crishim logs`",
	"kubectl":    "crishim has kubectl's verbs without the word: `crishim pods`, `crishim exec`, `crishim describe`",
	"container":  "crishim has docker's verbs without the word: `crishim ps`, `crishim inspect`, `crishim rm`",
	"system":     "`crishim info` shows the runtime, `crishim df` what takes up disk, `crishim rmi --prune` and `crishim gc` remove what is unused",
	"system df":  "`crishim df` shows what takes up disk",
	"compose":    "`crishim apply -f` runs pods from Kubernetes manifests",
	"sh":         "`crishim exec -it CONTAINER sh` opens a shell, `crishim debug CONTAINER` has one",
	"shell":      "`crishim exec -it CONTAINER sh` opens a shell, `crishim debug CONTAINER` has one",
	"bash":       "`crishim exec -it CONTAINER bash` opens a shell, `crishim debug CONTAINER` has one",
	"prune":      "`crishim rmi --prune` removes unused images, `crishim gc` dead containers and pods",
	"login":      "crishim reads what `docker login` or `podman login` has written; `crishim pull --username USER IMAGE` asks for a password",
	"logout":     "crishim keeps no logins: it reads what `docker login` or `podman login` has written",
	"tag":        "CRI has no call for it: `docker tag`, `ctr -n k8s.io images tag` or `podman tag` does it",
	"push":       "CRI has no call for it: `docker push`, `ctr -n k8s.io images push` or `podman push` does it",
	"build":      "crishim builds no images: `docker build` or `podman build` does, and `crishim pull` gets them from a registry",
	"import":     "`crishim load` loads images from an archive",
	"commit":     "CRI has no call for it: `crishim cp CONTAINER:PATH -` takes files out, `crishim checkpoint` the whole state",
	"export":     "`crishim cp CONTAINER:/ -` writes a container's files as a tar stream",
	"search":     "crishim does not search registries: `docker search` or `podman search` does",
	"rename":     "CRI has no call for it: `crishim run --name NAME` chooses the name",
	"port":       "`crishim inspectp POD` shows the ports of a pod, `crishim port-forward` forwards them",
	"volume":     "there are no named volumes: `crishim run -v /HOST:/CONTAINER IMAGE` mounts a directory of the host",
	"network":    "there are no named networks: `crishim run --network host IMAGE` shares the host's, `crishim inspectp POD` shows a pod's address",
	"edit":       "change the manifest, then `crishim apply -f` it",
	"patch":      "change the manifest, then `crishim apply -f` it",
	"replace":    "`crishim apply -f` changes what has changed",
	"scale":      "one manifest is one pod: `crishim apply -f` with a list of pods runs several",
	"rollout":    "`crishim apply --wait=ready -f` replaces pods and waits for them",
	"expose":     "`crishim port-forward POD PORT` forwards a port, `crishim run -p HOST:CONTAINER IMAGE` publishes one",
	"explain":    "`crishim runp jsonschema` and `crishim create jsonschema` print the schemas of CRI's configurations",
	"cordon":     "crishim has no API server: that is `kubectl cordon` for the node",
	"drain":      "crishim has no API server: `kubectl drain` does it, `crishim stopp` stops single pods",
	"man":        "`man crishim`, or `man crishim-VERB` for a verb, where crishim was installed with its manual; `crishim help COMMAND` shows the same",
	"schema":     "the JSON is that of CRI's messages, which docs/commands/README.md names for each command; `crishim run jsonschema` prints the schemas of configurations",
	"status":     "`crishim info` shows the runtime's status, `crishim doctor` checks the node",
}

// FlagsOfOthers are flags that a verb does not have, by the verb's name and theirs, or by their
// name alone for every verb. VERB stands for the verb.
var FlagsOfOthers = map[string]string{
	"all-containers":        "`crishim logs --all-containers POD` takes all of a pod, `crishim ps --pod POD` lists them",
	"all-namespaces":        "all namespaces are shown unless `--namespace` is given",
	"A":                     "all namespaces are shown unless `--namespace` is given",
	"c":                     "name the container as POD/CONTAINER: `crishim VERB POD/CONTAINER`",
	"container":             "name the container as POD/CONTAINER: `crishim VERB POD/CONTAINER`",
	"n":                     "name it with its namespace: `crishim VERB NAMESPACE/POD` or NAMESPACE/POD/CONTAINER",
	"namespace":             "name it with its namespace: `crishim VERB NAMESPACE/POD` or NAMESPACE/POD/CONTAINER",
	"context":               "crishim talks to a runtime: `crishim -r ENDPOINT VERB` chooses it",
	"kubeconfig":            "crishim talks to a runtime: `crishim -r ENDPOINT VERB` chooses it",
	"host":                  "`crishim -r docker://HOST VERB` chooses an engine, as DOCKER_HOST does",
	"H":                     "`crishim -r docker://HOST VERB` chooses an engine, as DOCKER_HOST does",
	"format":                "`-o json` and `-o yaml` are whole, `-o go-template=TEMPLATE` and `-o jsonpath=TEMPLATE` take fields of `-o json`",
	"log-level":             "`crishim --debug VERB` prints what is done",
	"sort-by":               "`crishim VERB --sort COLUMN` sorts",
	"no-headers":            "`-o name` and `-q` print no header",
	"show-labels":           "`crishim VERB -o json` shows labels",
	"field-selector":        "`crishim VERB --state STATE` and `--name REGEX` choose by state and name",
	"w":                     "`crishim wait` waits for a state, `crishim events` shows changes",
	"watch":                 "`crishim wait` waits for a state, `crishim events` shows changes",
	"f":                     "`crishim VERB --help` lists the flags; a manifest is for `crishim apply -f FILE`",
	"filename":              "a manifest is for `crishim apply -f FILE`",
	"apply n":               "a manifest names its namespace: `metadata.namespace`, default without one",
	"apply k":               "`kubectl kustomize DIR | crishim apply -f -` runs what it prints",
	"apply kustomize":       "`kubectl kustomize DIR | crishim apply -f -` runs what it prints",
	"apply namespace":       "a manifest names its namespace: `metadata.namespace`, default without one",
	"attach sig-proxy":      "a signal ends the session alone; `crishim stop` ends the container",
	"attach no-stdin":       "without `--stdin` nothing is read: `crishim attach CONTAINER`",
	"cp L":                  "`crishim cp` follows the link that is named itself",
	"cp follow-link":        "`crishim cp` follows the link that is named itself",
	"cp recursive":          "`crishim cp` copies directories whole",
	"debug host":            "a shell on the host is one; in a cluster `kubectl debug node/NODE -it --image=busybox` opens one",
	"debug target":          "the first argument is the container to look at: `crishim debug CONTAINER`",
	"debug share-processes": "the debug container shares the target's processes: `crishim debug CONTAINER`",
	"debug attach":          "`crishim debug` attaches unless a command is given: `crishim debug CONTAINER -- COMMAND`",
	"df cni-dir":            "CNI's state is not counted: `du -sh /var/lib/cni`",
	"exec d":                "a command in the background is `crishim exec CONTAINER sh -c 'COMMAND &'`",
	"exec detach":           "a command in the background is `crishim exec CONTAINER sh -c 'COMMAND &'`",
	"exec env-file":         "`crishim exec --env NAME=VALUE CONTAINER COMMAND` sets one variable, and may be repeated",
	"exec privileged":       "`crishim debug --profile sys CONTAINER` has more privileges",
	"images a":              "all images are shown: `crishim images`",
	"images all":            "all images are shown: `crishim images`",
	"inspect f":             "`crishim inspect CONTAINER -o go-template=TEMPLATE` takes fields of `-o json`",
	"inspect size":          "`crishim stats CONTAINER` shows what its disk uses",
	"inspect type":          "`crishim inspect` is for containers, `crishim inspectp` for pods, `crishim inspecti` for images",
	"kill 9":                "`crishim kill -s 9 CONTAINER` sends the signal",
	"kill KILL":             "`crishim kill -s KILL CONTAINER` sends the signal",
	"kill HUP":              "`crishim kill -s HUP CONTAINER` sends the signal",
	"logs details":          "`crishim logs -o json CONTAINER` shows more",
	"logs prefix":           "lines of several containers begin with their names: `crishim logs CONTAINER CONTAINER`",
	"logs since-time":       "`crishim logs --since TIME CONTAINER` takes times and durations",
	"logs max-log-requests": "`crishim logs` has no such limit",
	"logs ignore-errors":    "`crishim logs` shows what it can and then fails",
	"ps size":               "`crishim stats` shows what disks use",
	"top mouse":             "the keys select and scroll, `?` shows them",
	"pull all-tags":         "one tag at a time: `crishim pull IMAGE:TAG`",
	"pull platform":         "the runtime chooses its own platform; `crishim pull IMAGE@DIGEST` names an image exactly",
	"rm v":                  "a container's own files go with it: `crishim rm CONTAINER`",
	"rm volumes":            "a container's own files go with it: `crishim rm CONTAINER`",
	"run P":                 "`crishim run -p HOST:CONTAINER IMAGE` publishes one port",
	"run publish-all":       "`crishim run -p HOST:CONTAINER IMAGE` publishes one port",
	"run add-host":          "a manifest with hostAliases has it: `crishim apply -f`",
	"run cidfile":           "`crishim run -d IMAGE` prints the id",
	"run command":           "`crishim run IMAGE -- ARG...` gives arguments, `--entrypoint` another command",
	"run device":            "`crishim run --privileged IMAGE` sees all devices; a CRI configuration has devices: `crishim create`",
	"run dns":               "a manifest with dnsConfig has it: `crishim apply -f`",
	"run env-file":          "`crishim run -e NAME=VALUE IMAGE` sets one variable, and may be repeated",
	"run expose":            "all ports of a pod can be reached: `crishim port-forward POD PORT`",
	"run gpus":              "a CRI configuration has devices: `crishim create`",
	"run health-cmd":        "a manifest with probes has it: `crishim sync DIR`",
	"run init":              "the pod's own first process reaps with `crishim apply -f` and shareProcessNamespace",
	"run ip":                "the network plugin chooses the address: `crishim inspectp POD` shows it",
	"run ipc":               "the containers of a pod share it: `crishim run --pod POD IMAGE`",
	"run link":              "the containers of a pod share their network: `crishim run --pod POD IMAGE`",
	"run mount":             "`crishim run -v /HOST:/CONTAINER[:ro] IMAGE` mounts a directory of the host",
	"run net":               "`crishim run --network host IMAGE` shares the host's network",
	"run overrides":         "a manifest has every field: `crishim apply -f`",
	"run pid":               "a manifest with hostPID or shareProcessNamespace has it: `crishim apply -f`",
	"run platform":          "the runtime chooses its own platform; `crishim run IMAGE@DIGEST` names an image exactly",
	"run port":              "`crishim run -p HOST:CONTAINER IMAGE` publishes a port",
	"run pull":              "`crishim run --with-pull IMAGE` always pulls, `--no-pull` never; else a missing image is pulled",
	"run restart":           "`crishim run` starts a container once; a manifest with restartPolicy is for `crishim sync DIR`",
	"run security-opt":      "a CRI configuration has it: `crishim create`; `crishim run --privileged IMAGE` lifts all limits",
	"run shm-size":          "a manifest with a medium Memory volume at /dev/shm has it: `crishim apply -f`",
	"run sysctl":            "a manifest with securityContext.sysctls has it: `crishim apply -f`",
	"run tmpfs":             "a manifest with an emptyDir has it: `crishim apply -f`",
	"run ulimit":            "CRI has no limits of that kind; the engine's own settings have",
	"run volumes-from":      "`crishim run -v /HOST:/CONTAINER IMAGE` mounts the same directory again",
	"start a":               "`crishim start CONTAINER`, then `crishim attach CONTAINER`",
	"start attach":          "`crishim start CONTAINER`, then `crishim attach CONTAINER`",
	"start i":               "`crishim start CONTAINER`, then `crishim attach -i CONTAINER`",
	"stop time":             "`crishim stop --timeout DURATION CONTAINER` sets the grace period",
	"stop signal":           "`crishim kill -s SIGNAL CONTAINER` sends another signal",
	"stop s":                "`crishim kill -s SIGNAL CONTAINER` sends another signal",
	"update cpus":           "`crishim update --cpu-quota 50000 --cpu-period 100000 CONTAINER` is half a processor",
	"update c":              "`crishim update --cpu-share WEIGHT CONTAINER` sets the weight",
	"update cpu-shares":     "`crishim update --cpu-share WEIGHT CONTAINER` sets the weight",
	"update m":              "`crishim update --memory SIZE CONTAINER` limits memory",
	"update restart":        "a manifest with restartPolicy is for `crishim sync DIR`",
	"wait condition":        "`crishim wait --for STATE TARGET` waits for a state",
}

// impliedFlags say what a verb does anyway: they are taken and nothing changes.
var impliedFlags = map[string][]string{
	"ps":     {"A", "all-namespaces"},
	"pods":   {"A", "all-namespaces", "a", "all"},
	"stats":  {"A", "all-namespaces", "no-stream"},
	"statsp": {"A", "all-namespaces", "no-stream"},
}

// sharedLetters are short flags of crictl that docker or kubectl have for something else. What
// is given with the letter decides, for it can be a value of one of the two only.
var sharedLetters = map[string]struct {
	flags []string          // the other flag, the first that the verb has
	means func(string) bool // reports whether a value is one of it
}{
	"n": {[]string{"in-namespace", "namespace"}, func(value string) bool { return !isNumber(value) }},
	"l": {[]string{"selector"}, isAssignment},
	"e": {[]string{"env"}, isAssignment},
}

func isNumber(value string) bool {
	_, err := strconv.ParseInt(value, 0, 64)
	return err == nil
}

func isAssignment(value string) bool { return strings.Contains(value, "=") && value[0] != '=' }
