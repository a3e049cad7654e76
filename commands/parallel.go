package commands

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"

	"github.com/crishim/crishim/output"
)

// target is something that a user named, with the name, which is what
// messages about it should use. What --all and --selector choose has its id
// for a reference, as scripts want it, and a title for people.
type target[T any] struct {
	ref   string
	thing T
	title string
}

// called is what to call it in a message.
func (t target[T]) called() string { return cmp.Or(t.title, t.ref) }

// announce says before it happens what --all and --selector have chosen.
func announce[T any](env *Env, doing, what string, targets []target[T]) {
	text := fmt.Sprintf("%s %d %ss", doing, len(targets), what)
	if len(targets) == 1 {
		text = strings.TrimSuffix(text, "s")
	}
	if len(targets) > 0 {
		text += ":"
	}
	for _, t := range targets {
		text += "\n  " + output.Sanitize(t.called())
	}
	fmt.Fprintln(env.Err, text)
}

// atOnce is how many removals or pulls run side by side.
const atOnce = 8

// inParallel does all and keeps results and failures in the order of the
// items: what do says on the Env it gets comes out when its turn has come.
func inParallel[T any](env *Env, items []T, do func(*Env, T) error) error {
	errs := make([]error, len(items)+1)
	said := make([]bytes.Buffer, len(items))
	done := make([]chan struct{}, len(items))
	slots := make(chan struct{}, atOnce)
	for i := range items {
		done[i] = make(chan struct{})
	}
	go func() {
		for i, item := range items {
			slots <- struct{}{}
			go func() {
				defer func() { <-slots; close(done[i]) }()
				own := *env
				own.Out = &said[i]
				errs[i] = do(&own, item)
			}()
		}
	}()
	for i := range items {
		<-done[i]
		if _, err := env.Out.Write(said[i].Bytes()); err != nil {
			errs[len(items)] = err
		}
	}
	return join(errs...)
}

// say writes one line of a result. Lines of parallel work do not mix: each is
// one write.
func (env *Env) say(format string, args ...any) error {
	env.mu.Lock()
	defer env.mu.Unlock()
	_, err := fmt.Fprintln(env.Out, output.Sanitize(fmt.Sprintf(format, args...)))
	return err
}

// warn writes one line to stderr.
func (env *Env) warn(format string, args ...any) {
	env.mu.Lock()
	defer env.mu.Unlock()
	fmt.Fprintln(env.Err, "crishim: warning: "+output.Sanitize(fmt.Sprintf(format, args...)))
}

// debugf writes one line to stderr when --debug is on.
func (env *Env) debugf(format string, args ...any) {
	if !env.global.debug {
		return
	}
	env.mu.Lock()
	defer env.mu.Unlock()
	fmt.Fprintln(env.Err, "debug: "+output.Sanitize(fmt.Sprintf(format, args...)))
}
