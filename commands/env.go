package commands

import (
	"context"
	"io"
	"os"
	"sync"
	"time"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/shim"
)

// Env is everything a command may touch outside its arguments. No command
// reads os.Stdout, os.Getenv or time.Now by itself.
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
	// Exit ends the process at a second interrupt; nil in tests.
	Exit func(int)
	// InTerminal, OutTerminal and ErrTerminal say which streams are terminals.
	InTerminal, OutTerminal, ErrTerminal bool
	// Width tells the terminal's present width in cells; 0 where there is none.
	Width func() int

	// CompleteTimeout is how long a runtime may take to complete a name; 0
	// means a third of a second.
	CompleteTimeout time.Duration
	// ConnectTimeout is how long connecting may take without --connect-timeout; 0
	// means the client's own limit.
	ConnectTimeout time.Duration
	// ConfigFile is where the config file is by default, Executable the
	// program, beside which it is looked for next. Empty ones are not looked
	// for, so that tests do not depend on the machine.
	ConfigFile, Executable string

	global   globals
	profiles *profiles
	loaded   *client.Config // the config file, once read
	mu       *sync.Mutex    // one line at a time
	compat   bool           // crictl's defaults, output and exit codes
	help     helpWriter     // where urfave writes help pages
}

// SystemEnv is the Env of the real process.
func SystemEnv(version string) *Env {
	postponeGC()
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
		Executable:  executable(),
	}
}

// executable is the program's own path, "" where the system does not know it.
func executable() string {
	path, err := os.Executable()
	if err != nil {
		return ""
	}
	return path
}

// fresh copies env for one command line, so that nothing of an earlier one
// stays behind.
func (env *Env) fresh(compat bool) *Env {
	run := *env
	run.global, run.loaded = globals{}, nil
	run.mu, run.profiles = new(sync.Mutex), new(profiles)
	run.help = helpWriter{out: env.Out}
	run.compat = compat
	return &run
}

// helpWriter keeps the error of writing a help page, which urfave drops.
type helpWriter struct {
	out io.Writer
	err error
}

func (w *helpWriter) Write(p []byte) (int, error) {
	n, err := w.out.Write(p)
	if err != nil && w.err == nil {
		w.err = err
	}
	return n, err
}

// getenv is the value of an environment variable, "" where it is not set.
func (env *Env) getenv(name string) string {
	value, _ := env.LookupEnv(name)
	return value
}

// width is the terminal's width; 0 means unlimited.
func (env *Env) width() int {
	if !env.OutTerminal || env.Width == nil {
		return 0
	}
	return env.Width()
}

// color says whether cells may be coloured.
func (env *Env) color() bool {
	return env.OutTerminal && env.getenv("NO_COLOR") == "" && env.getenv("TERM") != "dumb"
}
