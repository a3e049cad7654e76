package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	urfave "github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/internal/shellwords"
	"github.com/crishim/crishim/output"
)

// Targets are the objects that a verb changes: the objects that arguments name, that a selector matches, or all.
type Targets struct {
	Refs     []string
	All      bool
	Selector client.Selector
	In       Scope   // the namespace of -n
	Attempt  *uint32 // of the containers that arguments name; nil for the verb's default
	dryRun   bool
	// PassUnknown passes an unknown name to the runtime with --compat=crictl: the runtime decides whether stopping it
	// succeeds.
	PassUnknown bool
}

func (t *Targets) AllFlag(usage string) urfave.Flag { return BoolFlag(&t.All, "all", usage, "a") }

func (t *Targets) NamespaceFlag() urfave.Flag { return t.In.NamespaceFlag() }

// DryRunFlag returns --dry-run of the verbs that change many things.
func (t *Targets) DryRunFlag(done string) urfave.Flag {
	return BoolFlag(&t.dryRun, "dry-run", "Print what would be "+done)
}

// DryRun reports whether changes are only shown.
func (t *Targets) DryRun(p *Printer) bool { return t.dryRun || p.DryRun() }

func AttemptFlag(to **uint32) urfave.Flag {
	return Typed(to, func(text string) (*uint32, error) {
		if text == "" {
			return nil, nil
		}
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return nil, errors.New("must be a number from 0 on")
		}
		attempt := uint32(n)
		return &attempt, nil
	}, "attempt", "Use attempt `N` of the container instead of the newest")
}

// listed reports whether --all or --selector chooses the targets, instead of arguments.
func (t *Targets) listed() bool { return t.All || len(t.Selector) > 0 }

// Check stores the arguments in t.Refs. A command line must have exactly one of arguments, --all and --selector. Without
// --compat=crictl, Check clears PassUnknown.
func (t *Targets) Check(in *Invocation, c *urfave.Context) error {
	t.Refs, t.PassUnknown = c.Args().Slice(), t.PassUnknown && in.Compat
	switch {
	case t.All && len(t.Selector) > 0:
		return Usagef("--all and --selector: choose one")
	case t.All && len(t.Refs) > 0:
		return Usagef("--all takes no arguments, got %s", Quote(t.Refs[0]))
	case len(t.Selector) > 0 && len(t.Refs) > 0:
		return Usagef("--selector takes no arguments, got %s", Quote(t.Refs[0]))
	case t.listed():
		return nil
	}
	return ArgCount(c, 1, -1)
}

// RemoveOptions has the options of rm and rmp.
type RemoveOptions struct {
	Targets
	Force bool
}

func (o *RemoveOptions) ForceFlag(usage string) urfave.Flag {
	return BoolFlag(&o.Force, "force", usage, "f")
}

// Refuse returns the error about a target that still runs. The other targets are removed. In a dry run with
// --all or a selector, Refuse prints a line instead.
func (o *RemoveOptions) Refuse(p *Printer, what, sandbox, called, hint string) error {
	switch {
	case o.listed() && o.DryRun(p):
		return p.Say("Would leave %s%s: it still runs, --force stops it first", sandbox, called)
	case o.listed():
		return fmt.Errorf("%s %s still runs; --force stops it first", what, called)
	}
	return WithHint(fmt.Errorf("%s %s still runs", what, called), hint, shellwords.Quote(called))
}

// target is an object that a verb changes. Ref is the user's name for it. With --all and --selector Ref is the id, for
// scripts.
type target[T any] struct {
	Ref    string
	Object T
	Title  string // name in messages of a target that --all or --selector chose
	full   string // Ref with the namespace of -n
}

type (
	ContainerTarget = target[*runtimeapi.Container]
	PodTarget       = target[*runtimeapi.PodSandbox]
	ImageTarget     = target[*runtimeapi.Image]
)

// Called returns the target's name in messages.
func (t target[T]) Called() string { return cmp.Or(t.Title, t.full, t.Ref) }

// Arg returns the target's name in another command line.
func (t target[T]) Arg() string { return cmp.Or(t.full, t.Ref) }

// Containers returns the chosen containers. With --all and --selector only containers in the state are chosen, ""
// meaning any.
func (t *Targets) Containers(ctx context.Context, conn *client.Conn, want client.Want, state string) (found []ContainerTarget, err error) {
	if t.listed() {
		all, err := (&Filter{Selector: t.Selector, State: state, In: t.In}).Containers(ctx, conn)
		for _, c := range NamePods(ctx, conn, all) {
			found = append(found, ContainerTarget{Ref: c.GetId(), Object: c, Title: title(ContainerPathOf(c).FullName(), c.GetId())})
		}
		return found, err
	}
	err = Each(t.Refs, func(ref string) error {
		query := t.In.Query(ref, want)
		query.Attempt = t.Attempt
		c, err := conn.FindContainer(ctx, query)
		if t.PassUnknown && IsGone(err) {
			c, err = &runtimeapi.Container{Id: ref}, nil
		}
		if err == nil {
			one := ContainerTarget{Ref: ref, Object: c}
			if t.In.Given() {
				one.full = ContainerPathOf(NamePods(ctx, conn, []*runtimeapi.Container{c})[0]).FullName()
			}
			found = append(found, one)
		}
		return err
	})
	return found, err
}

// Pods returns the chosen pods.
func (t *Targets) Pods(ctx context.Context, conn *client.Conn) (found []PodTarget, err error) {
	if t.listed() {
		all, err := (&Filter{Selector: t.Selector, In: t.In}).Pods(ctx, conn)
		for _, p := range all {
			found = append(found, PodTarget{Ref: p.GetId(), Object: p, Title: title(PodPath(p.GetMetadata()), p.GetId())})
		}
		return found, err
	}
	err = Each(t.Refs, func(ref string) error {
		p, err := conn.FindPod(ctx, t.In.Query(ref, client.NewestAttempt))
		if IsGone(err) && strings.Contains(ref, "/") {
			if c, _ := conn.Container(ctx, ref, client.NewestAttempt); c != nil {
				err = WithHint(err, "it is a container; `crishim stop %s` and `crishim rm %[1]s` are for those", shellwords.Quote(ref))
			}
		}
		if t.PassUnknown && IsGone(err) {
			p, err = &runtimeapi.PodSandbox{Id: ref}, nil
		}
		if err == nil {
			one := PodTarget{Ref: ref, Object: p}
			if t.In.Given() {
				one.full = PodPath(p.GetMetadata())
			}
			found = append(found, one)
		}
		return err
	})
	return found, err
}

// Batch is the work of a verb on each of its targets.
type Batch[T any] struct {
	What   string                 // "running container"
	Doing  string                 // "stopping", for the list of --all
	InTurn bool                   // one target after the other
	Would  func(target[T]) string // the line of --dry-run
	// Skip reports whether a target is skipped, and prints the reason.
	Skip func(*Printer, target[T]) (bool, error)
	Do   func(*Printer, target[T]) error
	Done string // the line after success, with Ref: "Stopped sandbox %s"
}

// Run does the work on found. failed is the error about targets that were not found.
func (b Batch[T]) Run(p *Printer, t *Targets, found []target[T], failed error) error {
	if failed == nil && len(found) == 0 && len(t.Selector) > 0 {
		p.Warn("no %s matches the selector", b.What)
	}
	if failed == nil && t.All && !t.DryRun(p) && b.Doing != "" {
		fmt.Fprintln(p.Err, b.announcement(p.Compat, found))
	}
	limit := MaxConcurrent
	if b.InTurn {
		limit = 1
	}
	return Join(failed, InParallel(p, found, limit, func(p *Printer, one target[T]) error {
		if b.Skip != nil {
			if skipped, err := b.Skip(p, one); skipped || err != nil {
				return err
			}
		}
		if t.DryRun(p) {
			return p.Say("%s", b.Would(one))
		}
		if err := b.Do(p, one); err != nil {
			return About(one.Called(), err)
		}
		if b.Done != "" {
			return p.Say(b.Done, one.Ref)
		}
		return nil
	}))
}

// announcement lists the targets of --all.
func (b Batch[T]) announcement(crictl bool, found []target[T]) string {
	what := b.What[strings.LastIndexByte(b.What, ' ')+1:]
	if crictl && len(found) == 0 && b.Doing == "removing" {
		return "No " + what + "s to remove"
	}
	lines := []string{b.Doing + " " + output.Count(len(found), what)}
	if len(found) > 0 {
		lines[0] += ":"
	}
	for _, one := range found {
		lines = append(lines, "  "+output.Sanitize(one.Called()))
	}
	return strings.Join(lines, "\n")
}
