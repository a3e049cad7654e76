package convert

import (
	"fmt"
	"strconv"
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

// EngineSignal is the engine's name for a CRI signal; the runtime's default is
// the empty string, which leaves the choice to the image.
func EngineSignal(s runtimeapi.Signal) (string, error) {
	if s == runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT {
		return "", nil
	}
	name, known := runtimeapi.Signal_name[int32(s)]
	if !known {
		return "", fmt.Errorf("stop signal %d: %w", s, errdefs.ErrInvalidArgument)
	}
	name = strings.TrimPrefix(name, "SIGNAL_")
	name = strings.Replace(name, "MINPLUS", "MIN+", 1)
	return strings.Replace(name, "MAXMINUS", "MAX-", 1), nil
}

// Signal is the CRI signal for what the engine stores, which is whatever the
// image or a person wrote: SIGTERM, term, 15, SIGRTMIN+3, RTMAX-1. Nothing at
// all is the engine's own default, SIGTERM.
func Signal(text string) runtimeapi.Signal {
	if text == "" {
		return runtimeapi.Signal_SIGNAL_SIGTERM
	}
	if n, err := strconv.Atoi(text); err == nil {
		return signalByNumber(n)
	}
	name := "SIGNAL_SIG" + strings.TrimPrefix(strings.ToUpper(text), "SIG")
	name = strings.NewReplacer("MIN+", "MINPLUS", "MAX-", "MAXMINUS").Replace(name)
	return runtimeapi.Signal(runtimeapi.Signal_value[name])
}

// signalByNumber maps the numbers of Linux on amd64 and arm64.
func signalByNumber(n int) runtimeapi.Signal {
	names := strings.Fields(`HUP INT QUIT ILL TRAP ABRT BUS FPE KILL USR1 SEGV USR2 PIPE ALRM TERM STKFLT
		CHLD CONT STOP TSTP TTIN TTOU URG XCPU XFSZ VTALRM PROF WINCH IO PWR SYS`)
	const realTimeMin, realTimeMax = 34, 64
	switch {
	case n >= 1 && n <= len(names):
		return Signal(names[n-1])
	case n == realTimeMin:
		return runtimeapi.Signal_SIGNAL_SIGRTMIN
	case n == realTimeMax:
		return runtimeapi.Signal_SIGNAL_SIGRTMAX
	case n > realTimeMin && n <= realTimeMin+15:
		return Signal("RTMIN+" + strconv.Itoa(n-realTimeMin))
	case n > realTimeMin && n < realTimeMax:
		return Signal("RTMAX-" + strconv.Itoa(realTimeMax-n))
	default:
		return runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT
	}
}
