package stream

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/moby/term"
)

// IsTerminal reports whether a file is a terminal.
func IsTerminal(f *os.File) bool { return term.IsTerminal(f.Fd()) }

// TerminalWidth returns the width of the terminal at standard output in cells, 0 if it has none.
func TerminalWidth() int {
	size, err := term.GetWinsize(os.Stdout.Fd())
	if err != nil {
		return 0
	}
	return int(size.Width)
}

// AskPassword reads a line from the terminal at standard input with echo disabled. Echo is restored before the process
// stops or ends. The caller cancels ctx on signals that end the process, such as SIGINT.
func AskPassword(ctx context.Context, prompt string) (string, error) {
	fd := os.Stdin.Fd()
	before, err := term.SaveState(fd)
	if err != nil {
		return "", fmt.Errorf("ask for the password: %w", err)
	}
	jobs := make(chan os.Signal, 4)
	signal.Notify(jobs, syscall.SIGCONT, syscall.SIGQUIT)
	defer signal.Stop(jobs)
	if !signal.Ignored(syscall.SIGTSTP) { // ignored in shells without job control
		signal.Notify(jobs, syscall.SIGTSTP)
	}
	ask := func() error {
		fmt.Fprint(os.Stderr, prompt)
		return term.DisableEcho(fd, before)
	}
	type answer struct {
		line string
		err  error
	}
	answers := make(chan answer, 1)
	err = ask()
	if err == nil {
		go func() { // a read of a terminal cannot be interrupted
			line, err := bufio.NewReader(os.Stdin).ReadString('\n')
			answers <- answer{line, err}
		}()
	}
	var got answer
	for done := err != nil; !done; {
		select {
		case got = <-answers:
			err, done = got.err, true
		case <-ctx.Done():
			err, done = ctx.Err(), true
		case s := <-jobs:
			switch s {
			case syscall.SIGCONT:
				err = ask()
			case syscall.SIGTSTP:
				err = term.RestoreTerminal(fd, before)
				_ = syscall.Kill(syscall.Getpid(), syscall.SIGSTOP)
			default:
				err = fmt.Errorf("ended by signal: %s", s)
			}
			done = err != nil
		}
	}
	fmt.Fprintln(os.Stderr)
	if restored := term.RestoreTerminal(fd, before); err == nil {
		err = restored
	}
	if errors.Is(err, io.EOF) {
		err = errors.New("no password was given")
	}
	return strings.TrimRight(got.line, "\r\n"), err
}
