package commands

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
)

// choice is what a verb that changes things is to change: what arguments
// name, what a selector matches, or everything.
type choice struct {
	refs     []string
	all      bool
	selector client.Selector
	attempt  *uint32 // of the containers that arguments name; nil: as the verb likes
	// passOn hands what names nothing to the runtime as it is: whether
	// stopping what is gone succeeds is then the runtime's to say, as for
	// crictl.
	passOn bool
}

func selectorFlag() cli.Flag {
	return &cli.StringFlag{Name: "selector", Usage: "those whose labels match `EXPRESSION`: app=web,tier!=db,env in (a,b),!old"}
}

func attemptFlag() cli.Flag {
	return &cli.StringFlag{Name: "attempt", Usage: "attempt `N` of the container instead of the newest"}
}

func readSelector(c *cli.Context) (client.Selector, error) {
	selector, err := client.ParseSelector(c.String("selector"))
	if err != nil {
		return nil, usagef("--selector: %v", err)
	}
	return selector, nil
}

func readAttempt(c *cli.Context) (*uint32, error) {
	text := c.String("attempt")
	if text == "" {
		return nil, nil
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return nil, usagef("--attempt %s: want a number from 0 on", quote(text))
	}
	attempt := uint32(n)
	return &attempt, nil
}

// readChoice reads the arguments, --all, --selector and --attempt, as far as
// the verb has them.
func readChoice(c *cli.Context) (o choice, err error) {
	o.refs, o.all = c.Args().Slice(), c.Bool("all")
	if o.selector, err = readSelector(c); err != nil {
		return o, err
	}
	if o.attempt, err = readAttempt(c); err != nil {
		return o, err
	}
	switch {
	case o.all && len(o.selector) > 0:
		return o, usagef("--all and --selector: choose one")
	case o.all && len(o.refs) > 0:
		return o, usagef("--all takes no arguments, got %s", quote(o.refs[0]))
	case len(o.selector) > 0 && len(o.refs) > 0:
		return o, usagef("--selector takes no arguments, got %s", quote(o.refs[0]))
	case o.all, len(o.selector) > 0:
		return o, nil
	}
	return o, argCount(c, 1, -1)
}

// listed says that no argument named what was chosen.
func (o choice) listed() bool { return o.all || len(o.selector) > 0 }

// warnOfNone says that a selector has chosen nothing: it may be misspelt.
func (o choice) warnOfNone(env *Env, what string, chosen int) {
	if chosen == 0 && len(o.selector) > 0 {
		env.warn("no %s matches the selector", what)
	}
}

// title is a name with the beginning of the id, which tells attempts apart.
func title(name, id string) string { return fmt.Sprintf("%s (%.13s)", name, id) }

func podPath(m *runtimeapi.PodSandboxMetadata) string {
	return strings.TrimPrefix(m.GetNamespace()+"/"+m.GetName(), "/")
}

// containers are the chosen ones; --all and --selector choose among those of
// a state, nil being any.
func (o choice) containers(ctx context.Context, conn *client.Conn, want client.Want, state *runtimeapi.ContainerState) (found []target[*runtimeapi.Container], err error) {
	if o.all || len(o.selector) > 0 {
		all, err := containerFilter{selector: o.selector, state: state, newest: -1}.list(ctx, conn)
		if err != nil {
			return nil, err
		}
		for i, named := range namePods(ctx, conn, all) {
			from := sourceOf(named)
			found = append(found, target[*runtimeapi.Container]{all[i].GetId(), all[i], title(from.fullName(), all[i].GetId())})
		}
		return found, nil
	}
	err = each(o.refs, func(ref string) error {
		c, err := conn.FindContainer(ctx, client.Query{Ref: ref, Want: want, Attempt: o.attempt})
		if o.passOn && isGone(err) {
			c, err = &runtimeapi.Container{Id: ref}, nil
		}
		if err == nil {
			found = append(found, target[*runtimeapi.Container]{ref: ref, thing: c})
		}
		return err
	})
	return found, err
}

// pods are the chosen pods.
func (o choice) pods(ctx context.Context, conn *client.Conn) (found []target[*runtimeapi.PodSandbox], err error) {
	if o.all || len(o.selector) > 0 {
		all, err := podFilter{selector: o.selector, newest: -1}.list(ctx, conn)
		for _, p := range all {
			found = append(found, target[*runtimeapi.PodSandbox]{p.GetId(), p, title(podPath(p.GetMetadata()), p.GetId())})
		}
		return found, err
	}
	err = each(o.refs, func(ref string) error {
		p, err := conn.Pod(ctx, ref, client.Any)
		if o.passOn && isGone(err) {
			p, err = &runtimeapi.PodSandbox{Id: ref}, nil
		}
		if err == nil {
			found = append(found, target[*runtimeapi.PodSandbox]{ref: ref, thing: p})
		}
		return err
	})
	return found, err
}
