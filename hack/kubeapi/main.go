// kubeapi runs the API server of package internal/test/kubeapi with nodes on a local container runtime, to try kubectl
// and kubectl crishim without a cluster:
//
//	make kubeapi
//	bin/kubeapi -nodes 3 -endpoint unix:///run/containerd/containerd.sock -dir /tmp/cluster
//	export KUBECONFIG=/tmp/cluster/kubeconfig
//	kubectl get nodes
//
// It prints a line for each completed request. On an interrupt it removes the pods.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/crishim/crishim/internal/test/kubeapi"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "kubeapi:", err)
		os.Exit(1)
	}
}

func run() (err error) {
	var o kubeapi.Options
	count := flag.Int("nodes", 3, "number of nodes")
	endpoint := flag.String("endpoint", "unix:///run/containerd/containerd.sock", "container runtime of all nodes, or docker://HOST for Docker")
	hostPaths := flag.String("host-paths", "", "where paths of the nodes are on this machine: PATH=HERE,...")
	flag.StringVar(&o.Dir, "dir", "", "directory for the kubeconfig and what pods need (default: a new one)")
	flag.Parse()
	if o.Dir == "" {
		if o.Dir, err = os.MkdirTemp("", "kubeapi-"); err != nil {
			return err
		}
		defer os.RemoveAll(o.Dir)
	} else if o.Dir, err = filepath.Abs(o.Dir); err != nil {
		return err
	} else if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return err
	}
	o.Nodes = kubeapi.Nodes(*count, *endpoint)
	paths := map[string]string{}
	for pair := range strings.SplitSeq(*hostPaths, ",") {
		if node, here, ok := strings.Cut(pair, "="); ok {
			paths[node] = here
		}
	}
	for i := range o.Nodes {
		o.Nodes[i].HostPaths = paths
	}
	o.Audit = func(line string) { fmt.Println(time.Now().Format("15:04:05.000"), line) }
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s, err := kubeapi.New(ctx, o)
	if err != nil {
		return err
	}
	fmt.Println("export KUBECONFIG=" + s.Kubeconfig)
	<-ctx.Done()
	return s.Close()
}
