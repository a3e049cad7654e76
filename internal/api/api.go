// Package api is the private gRPC service between crishim's command line and its shim, for requests that CRI does not
// have. The messages are in crishim.proto. hack/generate.sh generates the Go code, which is committed, so that building
// needs no protoc.
package api

// AnnotationTemporary marks a container that must not outlive the command that creates it. If the command is killed
// together with its embedded shim, the user's next shim on the machine removes the container.
const AnnotationTemporary = "io.crishim.temporary"

// AnnotationConsoleSize is the initial size of a container's terminal as ROWSxCOLUMNS. CRI has no field for it, and a
// size that is set after the start may come too late for the program.
const AnnotationConsoleSize = "io.crishim.console-size"

// MaxSyncOutput limits the total size of both outputs of an ExecSync: clients such as the kubelet accept messages of up
// to 16 MiB. The longer output is truncated first.
const MaxSyncOutput = 16<<20 - 4<<10

// DetailNoPod is a detail in the status error for a container of the engine that is outside any pod.
const DetailNoPod = "crishim-no-pod"

// Chunk is the maximum number of bytes of an archive in one message. The encoded message fits into a 32 KiB buffer of
// gRPC. The next larger buffers have 1 MiB, and gRPC clears a buffer for each message.
const Chunk = 32<<10 - 256
