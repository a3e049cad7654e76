package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"k8s.io/klog/v2" //nolint:depguard // only to silence the libraries that log there

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/client/stream"
	_ "github.com/crishim/crishim/internal/gogc" // sets GOGC before main
	"github.com/crishim/crishim/kuberuntime/pod"
	"github.com/crishim/crishim/output"
	"github.com/crishim/crishim/shim"
)

// Process holds the surroundings of a command line: streams, terminals, environment, clock, and the ways to reach
// runtimes.
type Process struct {
	Version   string // crishim's own, from the linker
	In        io.Reader
	Out, Err  io.Writer
	LookupEnv func(string) (string, bool)
	Now       func() time.Time
	// AskPassword reads a line from the terminal without showing it.
	AskPassword func(ctx context.Context, prompt string) (string, error)
	// Exit ends the process at a second interrupt; nil in tests and for Invocation.RunLine.
	Exit func(int)
	// InTerminal, OutTerminal and ErrTerminal report whether the streams are terminals.
	InTerminal, OutTerminal, ErrTerminal bool
	// Width returns the terminal's present width in cells; 0 if there is no terminal.
	Width func() int

	// StartShim starts the embedded dockershim if the runtime is Docker.
	StartShim func(context.Context, client.Engine, shim.Options) (client.Shim, error)
	// Cluster reaches the nodes of a cluster; nil if the command line is not for nodes.
	Cluster *Cluster

	// CompleteTimeout limits the completion of a name; 0 means 300 ms.
	CompleteTimeout time.Duration
	// ConnectTimeout is the default of --connect-timeout; 0 means the default of client.Options.
	ConnectTimeout time.Duration
	// StatsSecond replaces the second in --seconds, and the interval of `top --once`, to make tests fast; 0 means no change.
	StatsSecond time.Duration
	// ConfigFile is the default config file. If it does not exist, a file next to Executable is
	// read. Tests leave both empty.
	ConfigFile, Executable string
}

// silenceKlog silences the streaming libraries, which log to standard error.
var silenceKlog = sync.OnceFunc(func() { klog.SetLogger(klog.Logger{}) })

// SystemProcess returns the real process.
func SystemProcess(version string) *Process {
	silenceKlog()
	executable, _ := os.Executable() // "" on an error
	return &Process{
		Version: version,
		In:      os.Stdin, Out: os.Stdout, Err: os.Stderr,
		LookupEnv:   os.LookupEnv,
		Now:         time.Now,
		StartShim:   startShim,
		Exit:        os.Exit,
		AskPassword: stream.AskPassword,
		InTerminal:  stream.IsTerminal(os.Stdin),
		OutTerminal: stream.IsTerminal(os.Stdout),
		ErrTerminal: stream.IsTerminal(os.Stderr),
		Width:       stream.TerminalWidth,
		ConfigFile:  client.DefaultConfigFile,
		Executable:  executable,
	}
}

// startShim starts the embedded dockershim on a discovered engine.
func startShim(ctx context.Context, e client.Engine, o shim.Options) (client.Shim, error) {
	o.Engine.Endpoint = &e
	return shim.StartEmbedded(ctx, o)
}

func (p *Process) getenv(name string) string {
	value, _ := p.LookupEnv(name)
	return value
}

// OwnVersion returns the linker's version, else the module's.
func (p *Process) OwnVersion() string {
	if p.Version != "" {
		return p.Version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

// PodDirs returns the directories in which sync and apply keep pods on this machine.
func (p *Process) PodDirs() pod.Dirs { return pod.DefaultDirs(p.LookupEnv) }

// Confirm asks on the terminal for a yes or no. Only y and yes mean yes. It returns an error if standard input or
// standard error is not a terminal.
func (p *Process) Confirm(ctx context.Context, question string) (bool, error) {
	if !p.InTerminal || !p.ErrTerminal {
		return false, errors.New("nothing is done: there is no terminal to ask on")
	}
	fmt.Fprintf(p.Err, "%s [y/N] ", output.Sanitize(question))
	answers := make(chan string, 1)
	go func() { // a read of a terminal cannot be interrupted
		line, _ := bufio.NewReader(p.In).ReadString('\n')
		answers <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case answer := <-answers:
		return answer == "y" || answer == "yes", nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}
