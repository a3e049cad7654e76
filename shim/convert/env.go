package convert

import (
	"fmt"
	"strings"

	"github.com/containerd/errdefs"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Env is the engine's form of environment variables. A later entry wins over
// an earlier one of the same name, as in the engine. A name with "=" or a NUL
// byte anywhere cannot be told apart by the kernel, so it is refused.
func Env(vars []*runtimeapi.KeyValue) ([]string, error) {
	env := make([]string, 0, len(vars))
	for _, v := range vars {
		name, value := v.GetKey(), string(v.GetValue())
		if why := badVariable(name, value); why != "" {
			return nil, fmt.Errorf("environment variable %q %s: %w", name, why, errdefs.ErrInvalidArgument)
		}
		env = append(env, name+"="+value)
	}
	return env, nil
}

// badVariable says what is wrong with a variable, "" for nothing. It never
// repeats the value, which may be a secret.
func badVariable(name, value string) string {
	switch {
	case name == "":
		return "has no name"
	case strings.Contains(name, "="):
		return "has an equals sign in its name"
	case strings.ContainsRune(name, 0):
		return "has a NUL byte in its name"
	case strings.ContainsRune(value, 0):
		return "has a NUL byte in its value"
	}
	return ""
}
