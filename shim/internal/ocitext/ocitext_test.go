package ocitext

import "testing"

func TestPlain(t *testing.T) {
	for text, want := range map[string]string{
		`OCI runtime exec failed: exec failed: unable to start container process: exec: "x": executable file not found in $PATH: unknown`:                                                                  `exec: "x": executable file not found in $PATH`,
		`OCI runtime exec failed: exec failed: container_linux.go:380: starting container process caused: exec: "/x": permission denied: unknown`:                                                          `exec: "/x": permission denied`,
		`Error response from daemon: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: exec: "x": executable file not found in $PATH: unknown`: `exec: "x": executable file not found in $PATH`,
		`unable to find user nobody: no matching entries in passwd file`:                                                                                                                                   `unable to find user nobody: no matching entries in passwd file`,
		"": "",
	} {
		if got := Plain(text); got != want {
			t.Errorf("Plain(%q) = %q, want %q", text, got, want)
		}
	}
}
