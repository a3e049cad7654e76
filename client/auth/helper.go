package auth

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"

	"github.com/docker/cli/cli/config/configfile"
	"github.com/docker/cli/cli/config/types"
	"github.com/docker/docker-credential-helpers/credentials"

	"github.com/crishim/crishim/internal/program"
)

const (
	// maxAnswer is how much a credential helper may print, in bytes.
	maxAnswer = 1 << 20
	// outputDelay is how long a helper's output is read after the helper has
	// ended: a program that it leaves behind may keep the pipe open.
	outputDelay = time.Second
	// tokenUser is the user's name in a helper's answer whose secret is an identity token.
	tokenUser = "<token>"
)

// helperFor returns the program that keeps the credentials of a registry, "" if
// the file itself does.
func helperFor(file *configfile.ConfigFile, registry string) string {
	suffix, own := file.CredentialHelpers[registry]
	if !own {
		suffix = file.CredentialsStore
	}
	if suffix == "" {
		return ""
	}
	return "docker-credential-" + suffix
}

// runHelper asks a credential helper for the credentials of a registry. docker's own library
// does not end a helper with the context, reads its output without a limit, and
// puts that output, which may be the secret, into its errors.
func runHelper(ctx context.Context, helper, registry string, stderr io.Writer) (types.AuthConfig, error) {
	cmd := program.Command(ctx, helper, credentials.ActionGet)
	answer := &limitedBuffer{left: maxAnswer}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(registry), answer, stderr
	cmd.WaitDelay = outputDelay
	err := cmd.Run()
	switch {
	case ctx.Err() != nil && err != nil:
		return types.AuthConfig{}, fmt.Errorf("no answer: %w", context.Cause(ctx))
	case credentials.IsErrCredentialsNotFoundMessage(answer.text.String()):
		return types.AuthConfig{}, nil
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		if notRun, ok := errors.AsType[*exec.Error](err); ok {
			err = notRun.Err // it would name the program again
		}
		return types.AuthConfig{}, err
	}
	var login credentials.Credentials
	if json.Unmarshal(answer.text.Bytes(), &login) != nil { // its error would show a part
		return types.AuthConfig{}, errNoAnswer
	}
	if login.Username == tokenUser {
		return types.AuthConfig{IdentityToken: login.Secret}, nil
	}
	return types.AuthConfig{Username: login.Username, Password: login.Secret}, nil
}

var errNoAnswer = errors.New("what it printed is no credentials")

// limitedBuffer keeps what is written up to a number of bytes and refuses more.
type limitedBuffer struct {
	text bytes.Buffer
	left int
}

func (b *limitedBuffer) Write(p []byte) (int, error) {
	if len(p) > b.left {
		return 0, fmt.Errorf("it printed more than %d bytes", maxAnswer)
	}
	b.left -= len(p)
	return b.text.Write(p)
}
