// Package ocitext shortens what an engine, containerd and the OCI runtime say of
// a process that could not be started to what happened.
package ocitext

import (
	"strings"

	"github.com/crishim/crishim/internal/lazyregexp"
)

// prefixes is what engine, containerd and runc put before what happened.
var prefixes = lazyregexp.New(`^(Error response from daemon: |failed to create (shim task|task for container): |failed to start shim: |` +
	`OCI runtime (create|start|exec) failed: |runc (create|start|exec) failed: |exec failed: |` +
	`(container_linux|process_linux|rootfs_linux|standard_init_linux)\.go:\d+: |` +
	`(starting container process|container init) caused( ".*")?: |unable to start container process: |error during container init: )`)

// Plain returns the text without the layers in front of it and the class behind it.
func Plain(text string) string {
	for {
		short := prefixes.ReplaceAllString(text, "")
		if short == text {
			return strings.TrimSuffix(text, ": unknown")
		}
		text = short
	}
}
