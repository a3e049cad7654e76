package commands

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"
	"golang.org/x/sync/errgroup"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/output"
)

// targets are what a verb that changes things is to change: what arguments
// name, what a selector matches, or everything.
type targets struct {
	refs     []string
	all      bool
	selector client.Selector
	attempt  *uint32 // of the containers that arguments name; nil: as the verb likes
	dryRun   bool
	// passOn hands, with --compat=crictl, what names nothing to the runtime as it is:
	// whether stopping what is gone succeeds is then the runtime's to say.
	passOn bool
}

func (t *targets) allFlag(usage string) cli.Flag { return boolFlag(&t.all, "all", usage, "a") }

func (t *targets) dryRunFlag(done string) cli.Flag {
	return boolFlag(&t.dryRun, "dry-run", "print what would be "+done)
}

func selectorFlag(to *client.Selector) cli.Flag {
	return typed(to, func(text string) (client.Selector, error) {
		selector, err := client.ParseSelector(text)
		var syntax *client.SyntaxError
		if errors.As(err, &syntax) {
			err = withHint(errors.New(syntax.Reason), "%s", syntax.Hint())
		}
		return selector, err
	}, "selector", "those whose labels match `EXPRESSION`: app=web,tier!=db,env in (a,b),!old")
}

func attemptFlag(to **uint32) cli.Flag {
	return typed(to, func(text string) (*uint32, error) {
		if text == "" {
			return nil, nil
		}
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return nil, errors.New("must be a number from 0 on")
		}
		attempt := uint32(n)
		return &attempt, nil
	}, "attempt", "attempt `N` of the container instead of the newest")
}

// listed reports whether no argument named what was chosen.
func (t *targets) listed() bool { return t.all || len(t.selector) > 0 }

// check reads the arguments.
func (t *targets) check(env *Env, c *cli.Context) error {
	t.refs, t.passOn = c.Args().Slice(), t.passOn && env.compat
	switch {
	case t.all && len(t.selector) > 0:
		return usagef("--all and --selector: choose one")
	case t.all && len(t.refs) > 0:
		return usagef("--all takes no arguments, got %s", quote(t.refs[0]))
	case len(t.selector) > 0 && len(t.refs) > 0:
		return usagef("--selector takes no arguments, got %s", quote(t.refs[0]))
	case t.listed():
		return nil
	}
	return argCount(c, 1, -1)
}

// removal is what rm and rmp were asked to take away.
type removal struct {
	targets
	force bool
}

func (o *removal) forceFlag(usage string) cli.Flag { return boolFlag(&o.force, "force", usage, "f") }

// refuse leaves what still runs alone; a list may have more.
func (o *removal) refuse(env *Env, what, sandbox, called, hint string) error {
	switch {
	case o.listed() && o.dryRun:
		return env.say("Would leave %s%s: it still runs, --force stops it first", sandbox, called)
	case o.listed():
		return fmt.Errorf("%s %s still runs; --force stops it first", what, called)
	}
	return withHint(fmt.Errorf("%s %s still runs", what, called), hint, called)
}

// target is something that a user named, with the name, which is what
// messages about it should use. What --all and --selector choose has its id
// for a reference, as scripts want it, and a title for people.
type target[T any] struct {
	ref   string
	thing T
	title string
}

type (
	containerTarget = target[*runtimeapi.Container]
	podTarget       = target[*runtimeapi.PodSandbox]
	imageTarget     = target[*runtimeapi.Image]
)

// called is what to call it in a message.
func (t target[T]) called() string { return cmp.Or(t.title, t.ref) }

// containers are the chosen ones; --all and --selector choose among those of
// a state, "" being any.
func (t *targets) containers(ctx context.Context, conn *client.Conn, want client.Want, state string) (found []containerTarget, err error) {
	if t.listed() {
		all, err := (&filter{selector: t.selector, state: state}).containers(ctx, conn)
		for _, c := range namePods(ctx, conn, all) {
			found = append(found, containerTarget{c.GetId(), c, title(sourceOf(c).fullName(), c.GetId())})
		}
		return found, err
	}
	err = each(t.refs, func(ref string) error {
		c, err := conn.FindContainer(ctx, client.Query{Ref: ref, Want: want, Attempt: t.attempt})
		if t.passOn && isGone(err) {
			c, err = &runtimeapi.Container{Id: ref}, nil
		}
		if err == nil {
			found = append(found, containerTarget{ref: ref, thing: c})
		}
		return err
	})
	return found, err
}

// pods are the chosen pods.
func (t *targets) pods(ctx context.Context, conn *client.Conn) (found []podTarget, err error) {
	if t.listed() {
		all, err := (&filter{selector: t.selector}).pods(ctx, conn)
		for _, p := range all {
			found = append(found, podTarget{p.GetId(), p, title(podPath(p.GetMetadata()), p.GetId())})
		}
		return found, err
	}
	err = each(t.refs, func(ref string) error {
		p, err := conn.Pod(ctx, ref, client.Any)
		if t.passOn && isGone(err) {
			p, err = &runtimeapi.PodSandbox{Id: ref}, nil
		}
		if err == nil {
			found = append(found, podTarget{ref: ref, thing: p})
		}
		return err
	})
	return found, err
}

// A batch is what a verb does with each of its targets.
type batch[T any] struct {
	what   string                 // is chosen: "running container"
	doing  string                 // is announced for --all: "stopping"
	inTurn bool                   // one after the other, for their order may matter
	would  func(target[T]) string // is printed by --dry-run
	// skip reports whether a target is left alone, of which it has told the user.
	skip func(*Env, target[T]) (bool, error)
	do   func(*Env, target[T]) error
}

// run does the work on what was found; failed is what could not be.
func (b batch[T]) run(env *Env, t *targets, found []target[T], failed error) error {
	if failed == nil && len(found) == 0 && len(t.selector) > 0 { // it may be misspelt
		env.warn("no %s matches the selector", b.what)
	}
	if failed == nil && t.all && !t.dryRun && b.doing != "" {
		fmt.Fprintln(env.Err, b.announcement(found))
	}
	limit := atOnce
	if b.inTurn {
		limit = 1
	}
	return join(failed, inParallel(env, found, limit, func(env *Env, one target[T]) error {
		if b.skip != nil {
			if skipped, err := b.skip(env, one); skipped || err != nil {
				return err
			}
		}
		if t.dryRun {
			return env.say("%s", b.would(one))
		}
		if err := b.do(env, one); err != nil {
			return about(one.called(), err)
		}
		return nil
	}))
}

// announcement lists before it happens what --all has chosen.
func (b batch[T]) announcement(found []target[T]) string {
	lines := []string{fmt.Sprintf("%s %d %ss", b.doing, len(found), b.what)}
	if len(found) == 1 {
		lines[0] = strings.TrimSuffix(lines[0], "s")
	}
	if len(found) > 0 {
		lines[0] += ":"
	}
	for _, one := range found {
		lines = append(lines, "  "+output.Sanitize(one.called()))
	}
	return strings.Join(lines, "\n")
}

// atOnce is how many removals or pulls run side by side.
const atOnce = 8

// inParallel does all, up to limit at once, and keeps results and failures in the order of
// the items: what do says on the Env it gets comes out when its turn has come.
func inParallel[T any](env *Env, items []T, limit int, do func(*Env, T) error) error {
	errs := make([]error, len(items)+1)
	said := make([]bytes.Buffer, len(items))
	done := make([]chan struct{}, len(items))
	for i := range items {
		done[i] = make(chan struct{})
	}
	var work errgroup.Group
	work.SetLimit(limit)
	go func() {
		for i, item := range items {
			work.Go(func() error {
				defer close(done[i])
				own := *env
				own.Out = &said[i]
				errs[i] = do(&own, item)
				return nil
			})
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
