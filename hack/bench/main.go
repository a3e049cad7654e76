// Command bench makes the measurements for hack/bench.sh that are not a single command: transfers through a
// port-forward, pods created by several clients at once, and the calls of a kubelet. It prints a line per run with the
// results of crishim and its peer, which alternate.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const usage = `usage: bench fetch RUNS URL DIRECT-URL       milliseconds of a GET on a connection of its own
       bench burst RUNS ENDPOINT PODS CLIENTS  pods per second by the CRI, containers per second by the engine's API (DOCKER_HOST)
       bench rhythm SECONDS ENDPOINT           processor seconds for a kubelet's lists and statistics, by the CRI and by the engine's API`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) < 3 {
		return errors.New(usage)
	}
	runs, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	switch {
	case args[0] == "fetch" && len(args) == 4:
		return fetchInTurn(ctx, runs, args[2], args[3])
	case args[0] == "burst" && len(args) == 5:
		pods, err := strconv.Atoi(args[3])
		if err != nil {
			return err
		}
		clients, err := strconv.Atoi(args[4])
		if err != nil {
			return err
		}
		return burstInTurn(ctx, runs, args[2], pods, clients)
	case args[0] == "rhythm" && len(args) == 3:
		return rhythmInTurn(ctx, runs, args[2])
	}
	return errors.New(usage)
}

// fetchInTurn discards the first run.
func fetchInTurn(ctx context.Context, runs int, urls ...string) error {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for i := range runs + 1 {
		var took [2]float64
		for j, url := range urls {
			start := time.Now()
			if err := call(ctx, client, http.MethodGet, url, nil, nil); err != nil {
				return err
			}
			took[j] = time.Since(start).Seconds() * 1000
		}
		if i > 0 {
			fmt.Println(took[0], took[1])
		}
	}
	return nil
}

// burstInTurn leaves its containers to hack/bench.sh on failure.
func burstInTurn(ctx context.Context, runs int, endpoint string, pods, clients int) error {
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	cri := runtimeapi.NewRuntimeServiceClient(conn)
	engine := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", strings.TrimPrefix(os.Getenv("DOCKER_HOST"), "unix://"))
	}}}
	ids := make([]string, pods)
	for i := range runs {
		ours, err := perSecond(pods, clients, func(n int) error {
			meta := &runtimeapi.PodSandboxMetadata{Name: fmt.Sprintf("burst-%d-%d", i, n), Namespace: "crishim-bench", Uid: strconv.FormatInt(time.Now().UnixNano(), 36)}
			res, err := cri.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{Metadata: meta, Linux: &runtimeapi.LinuxPodSandboxConfig{}}})
			ids[n] = res.GetPodSandboxId()
			return err
		})
		if err != nil {
			return err
		}
		config, err := configOf(ctx, engine, ids[0])
		if err != nil {
			return err
		}
		if _, err := perSecond(pods, clients, func(n int) error {
			_, stopErr := cri.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: ids[n]})
			_, err := cri.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: ids[n]})
			return errors.Join(stopErr, err)
		}); err != nil {
			return err
		}
		theirs, err := perSecond(pods, clients, func(n int) (err error) {
			ids[n], err = runContainer(ctx, engine, fmt.Sprintf("crishim-bench-%d-%d", i, n), config)
			return err
		})
		if err != nil {
			return err
		}
		if _, err := perSecond(pods, clients, func(n int) error {
			return call(ctx, engine, http.MethodDelete, containers+ids[n]+"?force=1", nil, nil)
		}); err != nil {
			return err
		}
		fmt.Println(ours, theirs)
	}
	return nil
}

// rhythmInTurn lists pods and containers once a second and asks for the statistics of all containers every ten seconds,
// as a kubelet does. The peer is a shim that answers from the engine's list and, for statistics, from an inspection and
// a reading of each container; its processor time is the sum of the engine and this process.
func rhythmInTurn(ctx context.Context, seconds int, endpoint string) error {
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	cri := runtimeapi.NewRuntimeServiceClient(conn)
	engine := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", strings.TrimPrefix(os.Getenv("DOCKER_HOST"), "unix://"))
	}}}
	dockerd, err := server(os.Getenv("DOCKER_HOST"))
	if err != nil {
		return err
	}
	serve, err := server(endpoint)
	if err != nil {
		return err
	}
	ours, err := processorTime(ctx, seconds, []int{dockerd, serve}, func(second int) error {
		_, podsErr := cri.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
		_, err := cri.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
		if second%10 == 0 {
			_, statsErr := cri.ListContainerStats(ctx, &runtimeapi.ListContainerStatsRequest{})
			err = errors.Join(err, statsErr)
		}
		return errors.Join(podsErr, err)
	})
	if err != nil {
		return err
	}
	theirs, err := processorTime(ctx, seconds, []int{dockerd, os.Getpid()}, func(second int) error {
		var listed []struct{ ID string }
		for range 2 {
			if err := call(ctx, engine, http.MethodGet, containers+"json?all=1", nil, &listed); err != nil {
				return err
			}
		}
		if second%10 != 0 {
			return nil
		}
		// Engine 20.10 answers at its next reading, which it takes once a second, also with one-shot.
		var all errgroup.Group
		for _, c := range listed {
			all.Go(func() error {
				var answer any
				if err := call(ctx, engine, http.MethodGet, containers+c.ID+"/json", nil, &answer); err != nil {
					return err
				}
				return call(ctx, engine, http.MethodGet, containers+c.ID+"/stats?stream=0&one-shot=1", nil, &answer)
			})
		}
		return all.Wait()
	})
	if err == nil {
		fmt.Println(ours, theirs)
	}
	return err
}

// processorTime calls do once a second and returns the processor time, in seconds, that the processes take.
func processorTime(ctx context.Context, seconds int, pids []int, do func(second int) error) (float64, error) {
	used := func() (sum float64, _ error) {
		for _, pid := range pids {
			p, err := procfs.NewProc(pid)
			if err != nil {
				return 0, err
			}
			stat, err := p.Stat()
			if err != nil {
				return 0, err
			}
			sum += stat.CPUTime()
		}
		return sum, nil
	}
	before, err := used()
	if err != nil {
		return 0, err
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for i := range seconds {
		if err := do(i); err != nil {
			return 0, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	after, err := used()
	return after - before, err
}

// server returns the pid of the process that listens on a unix socket.
func server(endpoint string) (int, error) {
	conn, err := net.Dial("unix", strings.TrimPrefix(endpoint, "unix://"))
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *syscall.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) {
		cred, credErr = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if err := errors.Join(err, credErr); err != nil {
		return 0, err
	}
	return int(cred.Pid), nil
}

// perSecond returns the rate of n calls made by concurrent clients.
func perSecond(n, clients int, do func(int) error) (float64, error) {
	var all errgroup.Group
	all.SetLimit(clients)
	start := time.Now()
	for i := range n {
		all.Go(func() error { return do(i) })
	}
	err := all.Wait()
	return float64(n) / time.Since(start).Seconds(), err
}

const containers = "http://docker/containers/"

// configOf returns a create request for a container like the given one.
func configOf(ctx context.Context, engine *http.Client, id string) (map[string]any, error) {
	var detail struct {
		Config     map[string]any
		HostConfig any
	}
	err := call(ctx, engine, http.MethodGet, containers+id+"/json", nil, &detail)
	if err != nil {
		return nil, err
	}
	delete(detail.Config, "Labels") // otherwise it would belong to the pod
	detail.Config["HostConfig"] = detail.HostConfig
	return detail.Config, nil
}

// runContainer makes the same calls as RunPodSandbox.
func runContainer(ctx context.Context, engine *http.Client, name string, config map[string]any) (string, error) {
	var created struct{ ID string }
	if err := call(ctx, engine, http.MethodPost, containers+"create?name="+name, config, &created); err != nil {
		return "", err
	}
	if err := call(ctx, engine, http.MethodPost, containers+created.ID+"/start", nil, nil); err != nil {
		return "", err
	}
	return created.ID, call(ctx, engine, http.MethodGet, containers+created.ID+"/json", nil, nil)
}

// call sends in as JSON and decodes the response into out. If in is nil it sends no body; if out is nil it discards the
// response.
func call(ctx context.Context, client *http.Client, method, url string, in, out any) error {
	var body io.Reader
	if in != nil {
		raw, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode >= http.StatusBadRequest {
		text, _ := io.ReadAll(res.Body)
		return fmt.Errorf("%s %s: %s: %s", method, url, res.Status, bytes.TrimSpace(text))
	}
	if out != nil {
		return json.NewDecoder(res.Body).Decode(out)
	}
	_, err = io.Copy(io.Discard, res.Body)
	return err
}
