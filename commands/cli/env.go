package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	urfave "github.com/urfave/cli/v2"
	"k8s.io/klog/v2" //nolint:depguard // only to silence the libraries that log there

	"github.com/crishim/crishim/client"
	_ "github.com/crishim/crishim/internal/gogc" // sets GOGC before main
	"github.com/crishim/crishim/internal/rundir"
	"github.com/crishim/crishim/output"
	"github.com/crishim/crishim/shim"
	"github.com/crishim/crishim/shim/docker"
)

// Env is everything a command may touch outside its arguments. No command reads os.Stdout,
// os.Getenv or time.Now by itself.
type Env struct {
	// Version is crishim's own, from the linker.
	Version  string
	In       io.Reader
	Out, Err io.Writer
	// LookupEnv reads an environment variable.
	LookupEnv func(string) (string, bool)
	// Now is the clock.
	Now func() time.Time
	// StartShim starts the embedded dockershim where there is only Docker.
	StartShim func(context.Context, client.Engine, shim.Options) (client.Shim, error)
	// AskPassword reads a line from the terminal without showing it.
	AskPassword func(ctx context.Context, prompt string) (string, error)
	// Cluster is the way to nodes of a cluster, where a command line is for these; else nil.
	Cluster *Cluster
	// Exit ends the process at a second interrupt; nil in tests.
	Exit func(int)
	// InTerminal, OutTerminal and ErrTerminal report which streams are terminals.
	InTerminal, OutTerminal, ErrTerminal bool
	// Width returns the terminal's present width in cells; 0 where there is none.
	Width func() int

	// CompleteTimeout is how long a runtime may take to complete a name; 0 means a third of a
	// second.
	CompleteTimeout time.Duration
	// ConnectTimeout is how long connecting may take without --connect-timeout; 0 means the
	// client's own limit.
	ConnectTimeout time.Duration
	// RunDir returns the user's directory for what lasts until the next boot; nil for none.
	RunDir func() (string, error)
	// StatsSecond is how long a second of --seconds is; 0 means a second.
	StatsSecond time.Duration
	// ConfigFile is where the config file is by default, Executable the program, next to which
	// it is looked for then. Empty ones are not looked for, so that tests do not depend on the
	// machine.
	ConfigFile, Executable string

	Compat bool // crictl's defaults, output and exit codes

	global   globals
	profiles *profiles
	tracing  *tracing
	loaded   *client.Config // the config file, once read
	mu       *sync.Mutex    // guards Out and Err, so that lines do not mix
	images   bool           // the verb is about images
	line     commandLine    // what is run
	newApp   func(*Env) *App
	shown    *View // of the verb; nil: it has none

	several *several     // nil: there is one endpoint
	node    string       // of a cluster, or one of several endpoints; "" for none
	of      *Env         // on one of several endpoints the Env of all; else nil
	try     bool         // what would be changed is only shown
	left    *atomic.Bool // who ran the command line in a pod has gone
}

// silenceKlog is for the libraries of streams, which write to standard error there.
var silenceKlog = sync.OnceFunc(func() { klog.SetLogger(klog.Logger{}) })

// SystemEnv returns the Env of the real process.
func SystemEnv(version string) *Env {
	silenceKlog()
	executable, err := os.Executable()
	if err != nil {
		executable = "" // then no config file is looked for next to it
	}
	return &Env{
		Version: version,
		In:      os.Stdin, Out: os.Stdout, Err: os.Stderr,
		LookupEnv:   os.LookupEnv,
		Now:         time.Now,
		StartShim:   startShim,
		Exit:        os.Exit,
		AskPassword: askPassword,
		InTerminal:  isTerminal(os.Stdin),
		OutTerminal: isTerminal(os.Stdout),
		ErrTerminal: isTerminal(os.Stderr),
		Width:       terminalWidth,
		RunDir:      func() (string, error) { return rundir.Base(os.LookupEnv) },
		ConfigFile:  client.DefaultConfigFile,
		Executable:  executable,
	}
}

// Fresh copies env for one command line, so that nothing of an earlier one stays behind.
func (env *Env) Fresh(compat bool) *Env {
	run := *env
	run.global, run.loaded = globals{maxRetries: noRetries, tracingEndpoint: "127.0.0.1:4317", samplingRate: -1, parallel: 64}, nil
	run.mu, run.profiles, run.tracing, run.left = new(sync.Mutex), new(profiles), new(tracing), new(atomic.Bool)
	run.line, run.shown, run.images, run.several, run.node, run.of, run.try = commandLine{}, nil, false, nil, "", nil, false
	run.Compat = compat
	return &run
}

// getenv returns the value of an environment variable, "" where it is not set.
func (env *Env) getenv(name string) string {
	value, _ := env.LookupEnv(name)
	return value
}

// width returns the terminal's width; 0 means unlimited.
func (env *Env) width() int {
	if !env.OutTerminal || env.Width == nil {
		return 0
	}
	return env.Width()
}

// Color reports whether the result is written in colours: on a terminal, unless NO_COLOR is set.
func (env *Env) Color() bool {
	switch env.global.color {
	case "always":
		return true
	case "never":
		return false
	}
	return env.OutTerminal && env.getenv("NO_COLOR") == "" && env.getenv("TERM") != "dumb" && !env.Compat
}

// Say writes one line of a result. Lines of parallel work do not mix: each is one write.
func (env *Env) Say(format string, args ...any) error {
	env.mu.Lock()
	defer env.mu.Unlock()
	_, err := fmt.Fprintln(env.Out, output.Sanitize(fmt.Sprintf(format, args...)))
	return err
}

// Span is a part of a line with its colour.
type Span struct {
	Tone output.Tone
	Text string
}

// SaySpans is Say for a line with colours, where the result has them.
func (env *Env) SaySpans(spans ...Span) error {
	var line strings.Builder
	colours := output.Options{Color: env.Color()}
	for _, s := range spans {
		line.WriteString(colours.Paint(s.Tone, output.Sanitize(s.Text)))
	}
	env.mu.Lock()
	defer env.mu.Unlock()
	_, err := fmt.Fprintln(env.Out, line.String())
	return err
}

// Ask asks on the terminal for a yes or no.
func (env *Env) Ask(ctx context.Context, question string) (bool, error) {
	if !env.InTerminal || !env.ErrTerminal {
		return false, errors.New("nothing is done: there is no terminal to ask on")
	}
	fmt.Fprintf(env.Err, "%s [y/N] ", output.Sanitize(question))
	answers := make(chan string, 1)
	go func() { // a read of a terminal cannot be interrupted
		line, _ := bufio.NewReader(env.In).ReadString('\n')
		answers <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case answer := <-answers:
		return answer == "y" || answer == "yes", nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// Warn writes one line to stderr.
func (env *Env) Warn(format string, args ...any) {
	f := Failure{Node: env.node, Code: "warning", Message: output.Sanitize(fmt.Sprintf(format, args...))}
	if env.of == nil {
		f.Node = ""
	}
	env.say("warning", failure{Failure: f})
}

// Note writes one line to stderr, without the prefix of a warning.
func (env *Env) Note(format string, args ...any) {
	env.mu.Lock()
	defer env.mu.Unlock()
	fmt.Fprintln(env.Err, output.Sanitize(fmt.Sprintf(format, args...)))
}

// Debugf writes one line to stderr when --debug is on.
func (env *Env) Debugf(format string, args ...any) {
	if env.global.debug {
		env.Note("debug: "+format, args...)
	}
}

// Offline returns the action of a verb that asks no runtime, or not at once: check reads the
// arguments and complains of wrong usage.
func (env *Env) Offline(check func(*Env, *urfave.Context) error, run func(context.Context, *Env) error) urfave.ActionFunc {
	return func(c *urfave.Context) error {
		if err := check(env, c); err != nil {
			return err
		}
		if env.Cluster == nil || env.several != nil {
			return run(c.Context, env)
		}
		err := within(c.Context, env.deadline(), func(ctx context.Context) error { return run(ctx, env) })
		if late := (*lateError)(nil); errors.As(err, &late) {
			return env.onThatNode(err)
		}
		return err
	}
}

// Connected returns the action of a verb that asks the runtime.
func (env *Env) Connected(check func(*Env, *urfave.Context) error, run func(context.Context, *Env, *client.Conn) error) urfave.ActionFunc {
	connected := func(ctx context.Context, env *Env) error {
		conn, err := env.Connect(ctx)
		if err != nil {
			return err
		}
		defer conn.Close()
		return run(ctx, env, conn)
	}
	return env.Offline(check, func(ctx context.Context, env *Env) error {
		if env.several != nil {
			return env.onNodes(ctx, connected)
		}
		return connected(ctx, env)
	})
}

// ForImages returns the action of a verb about images: it dials the image endpoint, and the runtime's only
// where it needs that too.
func (env *Env) ForImages(action urfave.ActionFunc) urfave.ActionFunc {
	return func(c *urfave.Context) error {
		env.images = true
		return action(c)
	}
}

// Connect resolves the endpoint and dials it.
func (env *Env) Connect(ctx context.Context) (*client.Conn, error) {
	return env.ConnectShim(ctx, false)
}

// ConnectShim connects. For a verb that runs long the embedded dockershim takes all of its
// settings, else those that matter to one command.
func (env *Env) ConnectShim(ctx context.Context, longRunning bool) (*client.Conn, error) {
	options, err := env.ClientOptions(longRunning)
	if err != nil {
		return nil, err
	}
	if env.Cluster != nil {
		if err := env.open(ctx, &options); err != nil {
			return nil, err
		}
	}
	if !longRunning && env.namesOthers(options) {
		options.Others = othersTime
	}
	conn, err := client.Connect(ctx, options)
	if err != nil {
		return nil, err
	}
	env.noteChoice(conn, options)
	if flag := env.ShimFlag(); flag != "" && !conn.Embedded {
		return nil, Join(fmt.Errorf("--%s is for the embedded dockershim, and %s is used: take -r docker://", flag, conn.RuntimeEndpoint), conn.Close())
	}
	return conn, nil
}

// othersTime is how long runtimes that are not used may take to be named. They answer within a
// few milliseconds.
const othersTime = 100 * time.Millisecond

// namesOthers reports whether someone at a terminal is shown which of several runtimes is
// used: once, and never in scripts and pipes.
func (env *Env) namesOthers(o client.Options) bool {
	if o.RuntimeEndpoint != "" || env.Compat || !env.OutTerminal || !env.ErrTerminal {
		return false
	}
	file, err := env.noticeFile()
	if err != nil || file == "" {
		return err == nil
	}
	_, err = os.Stat(file)
	return errors.Is(err, fs.ErrNotExist)
}

// noticeFile returns the file whose existence means that the user has seen the notice; "" for none.
func (env *Env) noticeFile() (string, error) {
	if env.RunDir == nil {
		return "", nil
	}
	dir, err := env.RunDir()
	return filepath.Join(dir, "several-runtimes"), err
}

// noteChoice names a choice of the runtime that the user may not expect.
func (env *Env) noteChoice(conn *client.Conn, o client.Options) {
	if conn.TakenAs != "" && env.of == nil {
		env.Note("crishim: %s is a Docker engine: taken as -r %s", conn.TakenAs, conn.RuntimeEndpoint)
	}
	// A restart of serve leaves its socket open, and may take longer than the probe waits.
	for _, c := range conn.Candidates {
		if c.Chosen || env.Compat || env.of != nil {
			break
		}
		if c.State == client.StateHangs {
			env.Note("crishim: warning: %s accepts connections but does not answer, so %s is used; -r chooses", c.Endpoint, conn.RuntimeEndpoint)
		}
	}
	others := conn.Others()
	if o.Others == 0 || len(others) == 0 {
		return
	}
	env.Note("crishim: several runtimes answer; %s (%s) is used, -r takes another: %s", conn.Version.GetRuntimeName(), conn.RuntimeEndpoint, strings.Join(others, ", "))
	file, err := env.noticeFile()
	if err == nil && file != "" {
		err = os.WriteFile(file, nil, 0o600)
	}
	if err != nil {
		env.Debugf("the notice will be shown again: %v", err)
	}
}

// ClientOptions are flags over environment over config file.
func (env *Env) ClientOptions(longRunning bool) (client.Options, error) {
	config, err := env.Config()
	if err != nil {
		return client.Options{}, err
	}
	g := &env.global
	o := client.Options{
		RuntimeEndpoint: cmp.Or(strings.Join(g.runtimeEndpoints, ""), env.getenv("CONTAINER_RUNTIME_ENDPOINT"), config.RuntimeEndpoint),
		ImageEndpoint:   cmp.Or(g.imageEndpoint, env.getenv("IMAGE_SERVICE_ENDPOINT"), config.ImageEndpoint),
		Images:          env.images,
		ConnectTimeout:  cmp.Or(g.connectTimeout, env.ConnectTimeout),
		Timeout:         g.timeout,
		QueryTimeout:    max(config.Timeout, 0),
		MaxRetries:      config.MaxRetries,
		LookupEnv:       env.LookupEnv,
		Engines:         func(host string) []client.Engine { return docker.Endpoints(host, env.LookupEnv) },
		Now:             env.Now,
		Tracer:          env.Tracer(),
	}
	embedded, err := env.ShimOptions(config, longRunning)
	if err != nil {
		return client.Options{}, err
	}
	embedded.Tracer = env.Tracer()
	if env.StartShim != nil {
		o.StartShim = func(ctx context.Context, e client.Engine) (client.Shim, error) {
			return env.StartShim(ctx, e, embedded)
		}
	}
	if g.debug {
		o.Debug = env.Debugf
	}
	o.Batch = env.of != nil
	if g.maxRetries != noRetries {
		o.MaxRetries = g.maxRetries
	}
	return o, nil
}

// startShim starts the embedded dockershim on an engine that was found.
func startShim(ctx context.Context, e client.Engine, o shim.Options) (client.Shim, error) {
	o.Engine.Endpoint = &e
	return shim.StartEmbedded(ctx, o)
}

// OwnVersion returns the linker's version, else the module's.
func OwnVersion(env *Env) string {
	if env.Version != "" {
		return env.Version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
