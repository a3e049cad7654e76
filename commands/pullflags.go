package commands

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client/auth"
	"github.com/crishim/crishim/commands/progress"
	"github.com/crishim/crishim/internal/bounded"
	"github.com/crishim/crishim/output"
)

// pullOptions say how images are pulled.
type pullOptions struct {
	auth      *runtimeapi.AuthConfig // nil: look it up
	authFile  string
	timeout   time.Duration
	ifMissing bool
	retries   int
	progress  bool              // say how far it is
	display   *progress.Display // nil: one for each pull
}

// pullFlags are the flags of all verbs that may pull.
func pullFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "creds", Usage: "`USER[:PASSWORD]` for the registry (env CRICTL_CREDS)"},
		&cli.StringFlag{Name: "auth", Usage: "`BASE64` of user:password for the registry (env CRICTL_AUTH)"},
		&cli.StringFlag{Name: "username", Aliases: []string{"u"}, Usage: "`USER` for the registry; the password is asked for"},
		&cli.BoolFlag{Name: "password-stdin", Usage: "read the password from standard input"},
		&cli.StringFlag{Name: "authfile", Usage: "read credentials from `FILE` instead of ~/.docker/config.json"},
		pullTimeoutFlag(),
	}
}

func pullTimeoutFlag() cli.Flag {
	flag := durationFlag("pull-timeout", "pt", "give a pull this long: 90, 90s, 5m (env CRICTL_PULL_TIMEOUT, default no limit)")
	return flag
}

func readPullFlags(env *Env, c *cli.Context) (o pullOptions, err error) {
	o.authFile, o.timeout = c.String("authfile"), durationOf(c, "pull-timeout")
	o.progress = env.ErrTerminal && !env.compat
	if text := env.getenv("CRICTL_PULL_TIMEOUT"); text != "" && !c.IsSet("pull-timeout") {
		if o.timeout, err = parseDuration(text); err != nil {
			return o, usagef("CRICTL_PULL_TIMEOUT=%s: %v", text, err)
		}
	}
	creds, encoded, user := c.String("creds"), c.String("auth"), c.String("username")
	given := 0
	for _, text := range []string{creds, encoded, user} {
		if text != "" {
			given++
		}
	}
	if given > 1 {
		return o, usagef("--creds, --auth and --username: choose one")
	}
	if given == 0 {
		creds, encoded = env.getenv("CRICTL_CREDS"), env.getenv("CRICTL_AUTH")
	}
	switch {
	case encoded != "":
		if o.auth, err = auth.ParseBase64(encoded); err != nil {
			return o, usagef("--auth: %v", err)
		}
		return o, nil
	case user != "":
		creds = user
	}
	if creds == "" {
		if c.Bool("password-stdin") {
			return o, usagef("--password-stdin needs --username or --creds")
		}
		return o, nil
	}
	o.auth, err = env.credentials(c.Context, creds, c.Bool("password-stdin"))
	return o, err
}

// credentials takes USER:PASSWORD apart, or asks for the password.
func (env *Env) credentials(ctx context.Context, creds string, fromStdin bool) (*runtimeapi.AuthConfig, error) {
	user, password, found := strings.Cut(creds, ":")
	switch {
	case user == "":
		return nil, usagef("the registry credentials have no user name")
	case fromStdin:
		text, err := bounded.ReadAll(env.In, bounded.Config)
		if err != nil {
			return nil, err
		}
		password = strings.TrimRight(string(text), "\r\n")
	case !found:
		if env.AskPassword == nil || !env.InTerminal {
			return nil, usagef("no password for %s: give it with --password-stdin", quote(user))
		}
		var err error
		if password, err = env.AskPassword(ctx, "Password for "+output.Sanitize(user)+": "); err != nil {
			return nil, err
		}
	}
	return &runtimeapi.AuthConfig{Username: user, Password: password}, nil
}

// authFor is what to send a registry for an image; nil is anonymous. What a
// flag gave goes before what docker or podman keep.
func (o pullOptions) authFor(ctx context.Context, env *Env, image string) (*runtimeapi.AuthConfig, error) {
	if o.auth != nil {
		return o.auth, nil
	}
	if o.timeout > 0 { // a credential helper may hang as a registry may
		limited, cancel := context.WithTimeoutCause(ctx, o.timeout, fmt.Errorf("--pull-timeout of %s is over", o.timeout))
		defer cancel()
		ctx = limited
	}
	return auth.Lookup(ctx, image, auth.Options{AuthFile: o.authFile, LookupEnv: env.LookupEnv})
}
