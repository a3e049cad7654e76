package stream

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/remotecommand"
)

// parseStatus parses the content of the status channel into nil, an ExitError, a RemoteError or errNoStatus. Only an
// explicit success is nil.
func parseStatus(raw []byte) error {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return errNoStatus
	}
	var st metav1.Status
	if err := json.Unmarshal(raw, &st); err != nil {
		return &RemoteError{Message: string(raw)}
	}
	if st.Status == metav1.StatusSuccess {
		return nil
	}
	if st.Reason == remotecommand.NonZeroExitCodeReason && st.Details != nil {
		for _, c := range st.Details.Causes {
			if c.Type == remotecommand.ExitCodeCauseType {
				return exitStatus(c.Message, st.Message)
			}
		}
	}
	if text := runtimeText(st.Message); text != "" {
		return &RemoteError{Message: text}
	}
	return fmt.Errorf("%w: server sent %q", errNoStatus, raw)
}

// exitStatus returns an ExitError. A code below 0 or above 255 becomes 255. Zero and text that is no number become a
// RemoteError.
func exitStatus(code, message string) error {
	n, err := strconv.ParseInt(code, 10, 64)
	if err != nil || n == 0 {
		return &RemoteError{Message: fmt.Sprintf("unknown exit status %q: %s", code, message)}
	}
	if n < 0 || n > 255 {
		n = 255
	}
	return &ExitError{Code: int(n)}
}

// runtimeText strips the streaming server's prefix from the runtime's message.
func runtimeText(message string) string {
	for _, prefix := range []string{
		"Internal error occurred: ",
		"error executing command in container: ",
		"error attaching to container: ",
	} {
		message = strings.TrimPrefix(message, prefix)
	}
	return message
}
