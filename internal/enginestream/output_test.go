package enginestream

import (
	"bytes"
	"strings"
	"testing"
)

func TestOutputTooLongToBeAReasonIsNotHeld(t *testing.T) {
	t.Parallel()
	var stdout bytes.Buffer
	o := NewOutput(true, &stdout, nil)
	if err := o.Copy(strings.NewReader(strings.Repeat("x", 2*MaxHeld))); err != nil || stdout.Len() < MaxHeld {
		t.Errorf("got %d bytes, %v", stdout.Len(), err)
	}
}
