package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	urfave "github.com/urfave/cli/v2"
	"k8s.io/klog/v2" //nolint:depguard // only to silence the libraries that log there

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli/argv"
	_ "github.com/crishim/crishim/internal/gogc" // sets GOGC before main
	"github.com/crishim/crishim/output"
	"github.com/crishim/crishim/shim"
	"github.com/crishim/crishim/shim/docker"
)

// Env is everything a command may touch outside its arguments, such as its streams, environment and clock.
type Env struct {
	Version   string // crishim's own, from the linker
	In        io.Reader
	Out, Err  io.Writer
	LookupEnv func(string) (string, bool)
	Now       func() time.Time
	// StartShim starts the embedded dockershim where there is only Docker.
	StartShim func(context.Context, client.Engine, shim.Options) (client.Shim, error)
	// AskPassword reads a line from the terminal without showing it.
	AskPassword func(ctx context.Context, prompt string) (string, error)
	// Cluster reaches the nodes of a cluster; nil if the command line is not for nodes.
	Cluster *Cluster
	// Exit ends the process at a second interrupt; nil in tests.
	Exit func(int)
	// Which streams are terminals.
	InTerminal, OutTerminal, ErrTerminal bool
	// Width returns the terminal's present width in cells; 0 if there is no terminal.
	Width func() int

	// CompleteTimeout limits the completion of a name; 0 means 300 ms.
	CompleteTimeout time.Duration
	// ConnectTimeout is the default of --connect-timeout; 0 means the client's own limit.
	ConnectTimeout time.Duration
	// StatsSecond is how long a second of --seconds is; 0 means a second.
	StatsSecond time.Duration
	// ConfigFile is the default config file. If it does not exist, a file next to Executable is
	// read. Tests leave both empty.
	ConfigFile, Executable string

	Compat bool // crictl's defaults, output and exit codes

	global   globals
	profiles *profiles
	tracing  *tracing
	loaded   *client.Config // the config file, once read
	mu       *sync.Mutex    // guards Out and Err, so that lines do not mix
	images   bool           // the verb dials the image endpoint
	line     argv.Line      // the command line that runs
	newApp   func(*Env) *App
	shown    *View // of the verb; nil if it has none

	several *several     // nil for one endpoint
	node    string       // of a cluster, or one of several endpoints; "" for none
	of      *Env         // the Env of all endpoints on one of several; else nil
	try     bool         // changes are only shown
	left    *atomic.Bool // the client of a command line in a pod has gone
}

// silenceKlog silences the streaming libraries, which log to standard error.
var silenceKlog = sync.OnceFunc(func() { klog.SetLogger(klog.Logger{}) })

// SystemEnv returns the Env of the real process.
func SystemEnv(version string) *Env {
	silenceKlog()
	executable, _ := os.Executable() // "" on an error
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
		ConfigFile:  client.DefaultConfigFile,
		Executable:  executable,
	}
}

// Fresh copies env for one command line, without the state of an earlier one.
func (env *Env) Fresh(compat bool) *Env {
	run := *env
	run.global, run.loaded = globals{maxRetries: noRetries, tracingEndpoint: "127.0.0.1:4317", samplingRate: -1, parallel: 64}, nil
	run.mu, run.profiles, run.tracing, run.left = new(sync.Mutex), new(profiles), new(tracing), new(atomic.Bool)
	run.line, run.shown, run.images, run.several, run.node, run.of, run.try = argv.Line{}, nil, false, nil, "", nil, false
	run.Compat = compat
	return &run
}

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

// Color reports whether the result is written in colours.
func (env *Env) Color() bool {
	switch env.global.color {
	case "always":
		return true
	case "never":
		return false
	}
	return env.OutTerminal && env.getenv("NO_COLOR") == "" && env.getenv("TERM") != "dumb" && !env.Compat
}

// Say writes one line of a result.
func (env *Env) Say(format string, args ...any) error {
	return env.SaySpans(Span{Text: fmt.Sprintf(format, args...)})
}

// Span is a part of a line with its colour.
type Span struct {
	Tone output.Tone
	Text string
}

// SaySpans writes one line of a result, in one write so that lines of parallel work do not mix.
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
	f := Failure{Code: "warning", Message: output.Sanitize(fmt.Sprintf(format, args...))}
	if env.of != nil {
		f.Node = env.node
	}
	env.say("warning", failure{Failure: f})
}

// Note writes one line to stderr without a prefix.
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

// Offline returns the action of a verb that does not connect, or connects by itself. check reads the
// arguments and reports wrong usage.
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

// Connected returns the action of a verb that runs on a connection to the runtime, or to each of several.
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

// ForImages returns the action of a verb about images, which dials the runtime's endpoint only if it
// needs that, too.
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

// ConnectShim is Connect for a verb that may run long: the embedded dockershim then takes all of
// its settings instead of those for one command.
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
	conn, err := client.Connect(ctx, options)
	if err != nil {
		return nil, err
	}
	env.noteChoice(conn)
	if flag := env.ShimFlag(); flag != "" && !conn.Embedded {
		return nil, Join(fmt.Errorf("--%s is for the embedded dockershim, and %s is used: take -r docker://", flag, conn.RuntimeEndpoint), conn.Close())
	}
	return conn, nil
}

// noteChoice names a choice of the runtime that the user may not expect.
func (env *Env) noteChoice(conn *client.Conn) {
	if env.of != nil {
		return
	}
	if conn.TakenAs != "" {
		env.Note("crishim: %s is a Docker engine: taken as -r %s", conn.TakenAs, conn.RuntimeEndpoint)
	}
	// A restart of serve leaves its socket open, and may take longer than the probe waits.
	for _, c := range conn.Candidates {
		if c.Chosen || env.Compat {
			break
		}
		if c.State == client.StateHangs {
			env.Note("crishim: warning: %s accepts connections but does not answer, so %s is used; -r chooses", c.Endpoint, conn.RuntimeEndpoint)
		}
	}
}

// ClientOptions returns how to connect. Flags win over the environment, and that over the config file.
func (env *Env) ClientOptions(longRunning bool) (client.Options, error) {
	config, err := env.Config()
	if err != nil {
		return client.Options{}, err
	}
	g := &env.global
	o := client.Options{
		RuntimeEndpoint: cmp.Or(g.runtimeEndpoint(), env.getenv("CONTAINER_RUNTIME_ENDPOINT"), config.RuntimeEndpoint),
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
