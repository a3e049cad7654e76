package ocierror

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

// TestOf checks that the name of the command has no influence.
func TestOf(t *testing.T) {
	const runc = "OCI runtime exec failed: exec failed: unable to start container process: "
	for text, want := range map[string]struct {
		failure Failure
		status  int
	}{
		runc + `exec: "x": executable file not found in $PATH: unknown`:                                       {NotFound, 127},
		runc + `exec: "/x": stat /x: no such file or directory: unknown`:                                      {NotFound, 127},
		"crun: executable file `x` not found in $PATH: No such file or directory":                             {NotFound, 127},
		runc + `exec: "no such file or directory": permission denied: unknown`:                                {NotExecutable, 126},
		runc + `exec: "/etc": is a directory: unknown`:                                                        {NotExecutable, 126},
		runc + "exec /x: exec format error: unknown":                                                          {WrongFormat, 126},
		runc + `chdir to cwd ("/x") set in config.json failed: no such file or directory: unknown`:            {NoWorkingDir, 126},
		runc + "mkdir /etc/passwd: not a directory: unknown":                                                  {NoWorkingDir, 126},
		runc + `error during container init: error mounting "/x" to rootfs at "/y": not a directory: unknown`: {NoMount, 126},
		runc + "write /x: no space left on device: unknown":                                                   {DiskFull, 126},
		"OCI runtime create failed: it did not say why":                                                       {Unknown, 126},
		"unable to find user x: no matching entries in passwd file":                                           {noUser, 0},
		"open /run/x: no such file or directory":                                                              {NotFound, 0},
	} {
		if failure, status := Of(text), ExitStatus(text); failure != want.failure || status != want.status {
			t.Errorf("%q: got %d and status %d, want %d and %d", text, failure, status, want.failure, want.status)
		}
	}
}
