package stream

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
)

// exitError is the outcome of a command that ended with another status than 0.
type exitError struct{ code int }

func (e exitError) Error() string { return fmt.Sprintf("command terminated with exit code %d", e.code) }

// outcome turns an exit status into what a session ends with.
func exitOutcome(code int, err error) error {
	if err == nil && code != 0 {
		return exitError{code: code}
	}
	return err
}

// statusMessage is the part of metav1.Status that v4 and v5 clients read.
type statusMessage struct {
	Metadata struct{}       `json:"metadata"`
	Status   string         `json:"status"`
	Message  string         `json:"message,omitempty"`
	Reason   string         `json:"reason,omitempty"`
	Details  *statusDetails `json:"details,omitempty"`
	Code     int            `json:"code,omitempty"`
}

type statusDetails struct {
	Causes []statusCause `json:"causes"`
}

type statusCause struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

func statusOf(outcome error) statusMessage {
	if outcome == nil {
		return statusMessage{Status: "Success"}
	}
	var exit exitError
	if errors.As(outcome, &exit) {
		return statusMessage{
			Status:  "Failure",
			Message: exit.Error(),
			Reason:  "NonZeroExitCode",
			Details: &statusDetails{Causes: []statusCause{{Reason: "ExitCode", Message: strconv.Itoa(exit.code)}}},
		}
	}
	return statusMessage{
		Status:  "Failure",
		Message: outcome.Error(),
		Reason:  "InternalError",
		Code:    http.StatusInternalServerError,
	}
}

// writeOutcome writes to the error stream: JSON for v4 and later; the text of a
// failure, and nothing for success, before.
func writeOutcome(w io.Writer, asJSON bool, outcome error) error {
	if !asJSON {
		if outcome == nil {
			return nil
		}
		_, err := io.WriteString(w, outcome.Error())
		return err
	}
	text, err := json.Marshal(statusOf(outcome))
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}
